//! `[fetch]`.

use std::time::Duration;

use super::{Cache, choices};

/// `[fetch]`: the store.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetch {
    /// Most requests in flight; how many a store gets is found out. 64: at 30 ms a request, 2,000
    /// images a second.
    pub concurrency: u32,
    /// Tries of one read, the first included. 8.
    pub attempts: u32,
    /// How long to wait for a connection. 5 s.
    pub connect_timeout: Duration,
    /// How long to wait for the next byte. 10 s; a body that only drips is given up earlier.
    pub read_timeout: Duration,
    /// How long a read may take with all its tries, until it ends with an error. 5 min; waiting for
    /// memory is not counted.
    pub deadline: Duration,
    /// Address of an S3-compatible store, such as `http://localhost:9000`.
    pub endpoint: Option<String>,
    /// Region of the store; by default what the environment says, or `us-east-1`.
    pub region: Option<String>,
    /// Whether requests go unsigned (public data).
    pub anonymous: bool,
    /// Whether a bucket is part of the host's name or of the path; by default of the host's name
    /// at AWS itself, of the path elsewhere.
    pub addressing: Option<Addressing>,
    /// Whether we pay for requests to buckets whose owners don't. No.
    pub requester_pays: bool,
    /// File of certificates (PEM) to trust besides those of the machine.
    pub ca_file: Option<String>,
    /// Whether objects that are read whole are held against the checksum that S3 tells of them. No: it
    /// takes a store that tells them, and TLS notices what is flipped on the way.
    pub checksum: bool,
    /// A folder that keeps what was read, for the next epoch and the next run; none by default, as a
    /// disk that nobody offered is not ours to fill.
    pub cache: Option<Cache>,
}

/// Where the address of a bucket names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// `https://host/bucket/key`.
    Path,
    /// `https://bucket.host/key`.
    VirtualHost,
}

impl Addressing {
    /// The name that recipes use.
    pub fn as_str(self) -> &'static str {
        choices::name_of(choices::ADDRESSING, &self)
    }
}

impl Default for Fetch {
    fn default() -> Self {
        Self {
            concurrency: 64,
            attempts: 8,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(10),
            deadline: Duration::from_mins(5),
            endpoint: None,
            region: None,
            anonymous: false,
            addressing: None,
            requester_pays: false,
            ca_file: None,
            cache: None,
            checksum: false,
        }
    }
}
