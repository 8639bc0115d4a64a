//! Generators and doubles that the tests, benches and demos of all crates share.

mod chat;
mod fault;
pub mod fuzz;
pub mod jpeg;
mod leaf;
mod noise;
mod photo;
mod picture;
mod random;
mod scheduler;
mod sizes;
mod words;

pub use chat::{CHAT_KEY, ChatDataset};
pub use fault::{IN_DECODING, IN_MEASURING, IN_PARSING};
pub(crate) use fault::{panic_at, panic_over};
pub use jpeg::encode_jpeg;
pub use photo::photo;
pub use scheduler::scheduler_tells_of_threads;
pub use sizes::SizeMixture;
