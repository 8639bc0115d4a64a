//! Credentials that end: a service that gives them out, as containers and EC2 machines have one.
//!
//! Only the latest are good. They change as time goes by, or when [`Issuer::rotate`] says so; a
//! [server](crate::Server) that knows the issuer answers the ones before with `ExpiredToken`, and
//! wrong session tokens with `InvalidToken`. Some are given out again and again until they end.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::dto::{Timestamp, TimestampFormat};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::server::Error;

/// What IMDS gives its sessions.
const SESSION: &str = "stoker-session";
/// The name of the machine's role.
const ROLE: &str = "trainer";
const FOLDER: &str = "/latest/meta-data/iam/security-credentials/";
const ID: &str = "STOKER";

/// A running service; it stops when it is dropped.
#[derive(Debug)]
pub struct Issuer {
    address: SocketAddr,
    book: Arc<Book>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What a server has to know.
#[derive(Debug)]
pub(crate) struct Book {
    start: Instant,
    every: Duration,
    /// Changes that did not wait for their time.
    forced: AtomicU64,
    /// How often credentials were given out.
    given: AtomicU64,
}

/// What a server is to think of an access key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Ended,
    Unknown,
}

impl Issuer {
    /// Starts a service on a free port of the loopback device; its credentials change so often.
    pub fn start(every: Duration) -> Result<Self, Error> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let failed = |source| Error::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let book = Arc::new(Book {
            start: Instant::now(),
            every,
            forced: AtomicU64::new(0),
            given: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let kept = Arc::clone(&book);
        let thread = thread::Builder::new()
            .name("stoker-issuer".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        _ = stopped => {}
                        _ = accept(listener, kept) => {}
                    }
                });
            })
            .map_err(failed)?;
        Ok(Self { address: bound, book, stop: Some(stop), thread: Some(thread) })
    }

    /// Where a container asks (`AWS_CONTAINER_CREDENTIALS_FULL_URI`).
    pub fn container(&self) -> String {
        format!("http://{}/container", self.address)
    }

    /// Where a machine asks (`AWS_EC2_METADATA_SERVICE_ENDPOINT`).
    pub fn machine(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends the credentials that are good now.
    pub fn rotate(&self) {
        self.book.forced.fetch_add(1, Ordering::Relaxed);
    }

    /// How often credentials were given out.
    pub fn given(&self) -> u64 {
        self.book.given.load(Ordering::Relaxed)
    }

    /// How often the credentials changed.
    pub fn rotations(&self) -> u64 {
        self.book.number()
    }

    pub(crate) fn book(&self) -> Arc<Book> {
        Arc::clone(&self.book)
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_default();
        }
    }
}

impl Book {
    /// The number of the good ones.
    fn number(&self) -> u64 {
        let by_time = self.start.elapsed().as_nanos() / self.every.as_nanos().max(1);
        by_time as u64 + self.forced.load(Ordering::Relaxed)
    }

    /// How long the good ones last if nobody ends them.
    fn left(&self) -> Duration {
        let every = self.every.as_nanos().max(1);
        let gone = self.start.elapsed().as_nanos() % every;
        Duration::from_nanos((every - gone) as u64)
    }

    pub(crate) fn judge(&self, access_key_id: &str) -> Verdict {
        let number = access_key_id.strip_prefix(ID).and_then(|number| number.parse::<u64>().ok());
        match (number, self.number()) {
            (Some(number), now) if number == now => Verdict::Good,
            (Some(number), now) if number < now => Verdict::Ended,
            _ => Verdict::Unknown,
        }
    }

    pub(crate) fn secret(access_key_id: &str) -> String {
        let half = |seed| xxh3_64_with_seed(access_key_id.as_bytes(), seed);
        format!("secret-{:016x}{:016x}", half(1), half(2))
    }

    pub(crate) fn token(access_key_id: &str) -> String {
        let part = |seed| xxh3_64_with_seed(access_key_id.as_bytes(), seed);
        format!("token/{:016x}+{:016x}=", part(3), part(4))
    }

    fn give(&self) -> String {
        self.given.fetch_add(1, Ordering::Relaxed);
        let id = format!("{ID}{:014}", self.number());
        #[expect(clippy::disallowed_methods, reason = "the end of credentials is a date")]
        let end = SystemTime::now() + self.left();
        let mut written = Vec::new();
        // A date of these years can be written.
        Timestamp::from(end).format(TimestampFormat::DateTime, &mut written).unwrap_or_default();
        let (secret, token) = (Self::secret(&id), Self::token(&id));
        format!(
            r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{id}","SecretAccessKey":"{secret}","Token":"{token}","Expiration":"{}"}}"#,
            String::from_utf8_lossy(&written)
        )
    }

    fn answer(&self, request: &Request<Incoming>) -> (StatusCode, String) {
        let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let is_in_session = header("x-aws-ec2-metadata-token") == Some(SESSION);
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/container") => (StatusCode::OK, self.give()),
            (&Method::PUT, "/latest/api/token")
                if header("x-aws-ec2-metadata-token-ttl-seconds").is_some() =>
            {
                (StatusCode::OK, SESSION.to_owned())
            }
            (&Method::GET, path) if path.starts_with(FOLDER) => match &path[FOLDER.len()..] {
                _ if !is_in_session => (StatusCode::UNAUTHORIZED, String::new()),
                "" => (StatusCode::OK, ROLE.to_owned()),
                ROLE => (StatusCode::OK, self.give()),
                _ => (StatusCode::NOT_FOUND, String::new()),
            },
            _ => (StatusCode::NOT_FOUND, String::new()),
        }
    }
}

async fn accept(listener: std::net::TcpListener, book: Arc<Book>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let book = Arc::clone(&book);
        let service = service_fn(move |request: Request<Incoming>| {
            let (status, text) = book.answer(&request);
            let mut answer = Response::new(s3s::Body::from(Bytes::from(text)));
            *answer.status_mut() = status;
            async move { Ok::<_, Infallible>(answer) }
        });
        tokio::spawn(async move {
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
            // A client that hangs up is its own affair.
            drop(served);
        });
    }
}
