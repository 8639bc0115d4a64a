//! Systems without abstract sockets: loaders are not seen there, unless over HTTP.

use std::fmt;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use super::{Glance, Watched};

/// A running loader; here there is none that can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {}

impl Name {
    /// The process that it is in.
    pub fn pid(&self) -> u32 {
        match *self {}
    }

    /// What it is doing.
    pub fn ask(&self, _patience: Duration) -> io::Result<Glance> {
        match *self {}
    }
}

impl fmt::Display for Name {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// The loaders that run on this machine.
pub fn running() -> io::Result<Vec<Name>> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "running loaders are found on Linux only; read them over HTTP: set engine.metrics",
    ))
}

pub(super) fn listen() -> Option<TcpListener> {
    None
}

pub(super) async fn serve(_listener: TcpListener, _watched: Arc<Watched>) {}
