//! An S3 server to embed in demos, tests and benches.
//!
//! It speaks the real protocol (`s3s`: routing, SigV4, XML) over objects in memory or in a folder,
//! and behaves like a distant store: each request waits for its first byte and is then paced, by a
//! [`Profile`] fitted to published measurements. What a request meets is a pure function of the
//! seed, the object, the range and how often that was asked for before, so that a run can be
//! repeated whatever order its requests arrive in.
//!
//! On request it is a bad store: [`Faults`] are rules for which requests are refused, reset, cut
//! short, answered with errors or with something else, and each one that happened is counted.
//!
//! [`Server::start`] needs no runtime of the caller: the server has one named thread, which ends
//! within a second of [`Server::close`] or of dropping the server.

mod backend;
mod body;
mod checksum;
mod faults;
mod issuer;
mod listing;
mod profile;
mod server;
mod service;
mod shaping;

pub use backend::Backend;
pub use faults::{Fault, Faults, InvalidFaults, Operation, Rule, Throttle};
pub use issuer::Issuer;
pub use profile::{Draw, Profile, UnknownProfile};
pub use server::{Config, Credentials, Error, Server, Stats};
