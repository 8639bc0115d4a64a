//! Generators and doubles that the tests, benches and demos of all crates share.

pub mod jpeg;
