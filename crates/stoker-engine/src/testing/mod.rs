//! Generators and doubles that the tests of all crates share, and the demo.

mod chat;
pub mod jpeg;
mod leaf;
mod noise;
mod photo;
mod picture;
mod random;
mod words;

pub use chat::{CHAT_KEY, ChatDataset};
pub use photo::photo;
