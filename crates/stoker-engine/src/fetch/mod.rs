//! stub
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use crate::error::Result;
use crate::metrics::Metrics;
use crate::recipe;
use crate::sample::{Extent, Location};

/// Reads objects.
#[derive(Clone, Debug)]
pub struct Fetcher {}

/// What a store knows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Bytes.
    pub size: u64,
    /// Entity tag, or a file's modification time as text.
    pub version: Option<String>,
}

impl Fetcher {
    /// Starts the runtime.
    pub fn new(config: &recipe::Fetch, metrics: Arc<Metrics>) -> Result<Self> {
        let _ = (config, metrics);
        Ok(Self {})
    }
    /// Size and version.
    pub async fn stat(&self, object: &Location) -> Result<ObjectInfo> {
        let _ = object;
        unimplemented!()
    }
    /// Reads an extent; `admit` is told the size before the body is read, and may wait or refuse.
    pub async fn read<F, W>(&self, extent: &Extent, admit: F) -> Result<Bytes>
    where
        F: Fn(u64) -> W,
        W: Future<Output = Result<()>>,
    {
        let _ = (extent, admit);
        unimplemented!()
    }
    /// The same from a thread that is not the runtime's.
    pub fn read_blocking(&self, extent: &Extent) -> Result<Bytes> {
        let _ = extent;
        unimplemented!()
    }
    /// Size and version from a thread that is not the runtime's.
    pub fn stat_blocking(&self, object: &Location) -> Result<ObjectInfo> {
        let _ = object;
        unimplemented!()
    }
    /// Reads a whole object from front to back with bounded memory (large ranges, one ahead).
    pub fn reader(&self, object: &Arc<Location>) -> Result<impl std::io::Read + Send + use<>> {
        let _ = object;
        Ok(std::io::empty())
    }
    /// Runs a future on the runtime; dropping the handle does not stop it.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let _ = future;
        unimplemented!()
    }
}
