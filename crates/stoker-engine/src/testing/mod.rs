//! Generators and doubles that the tests of all crates share, and the demo.

mod chat;
mod jpeg;
mod leaf;
mod noise;
mod photo;
mod picture;
mod random;
mod words;

pub use chat::{CHAT_KEY, ChatDataset};
pub use jpeg::encode_jpeg;
pub use photo::photo;
