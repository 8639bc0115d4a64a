//! Generators and doubles that the tests, benches and demos of all crates share.

mod chat;
pub mod jpeg;
mod leaf;
mod noise;
mod photo;
mod picture;
mod random;
mod sizes;
mod words;

pub use chat::{CHAT_KEY, ChatDataset};
pub use jpeg::encode_jpeg;
pub use photo::photo;
pub use sizes::SizeMixture;
