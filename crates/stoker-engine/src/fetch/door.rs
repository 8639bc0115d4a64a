//! What is to be known of a store before anything is read from it: where it is, who we are there, what
//! time it has, how fast it answers. For people who look for what is wrong; a run asks none of this.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::DateTime;
use futures::stream::{self, StreamExt};
use object_store::client::{HttpRequest, HttpRequestBody};
use reqwest::Method;
use reqwest::header::DATE;
use tokio::time::{Instant, timeout, timeout_at};

use super::failure::{Failure, Tries};
use super::headers;
use super::store::Store;
use super::{Fetcher, Urgency};
use crate::error::{Error, FetchErrorKind, Result};
use crate::sample::{Extent, Location};

/// How long requests that are on their way may still take, when no more are sent.
const LATEST: Duration = Duration::from_secs(5);

/// Most bytes that are read of one extent.
const OF_ONE: u64 = 4 << 20;

/// Where requests for the objects of a store go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Door {
    /// What keys are appended to: endpoint and bucket.
    pub address: String,
    /// The region that is asked first, where the store has regions.
    pub region: Option<String>,
    /// Whether requests go unsigned.
    pub unsigned: bool,
}

/// What a store says to anybody, whoever they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Its time, in seconds since 1970.
    pub time: Option<i64>,
    /// From the request to its answer; a connection was made first.
    pub took: Duration,
}

/// Who signs, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Where they come from: "the environment", "profile …".
    pub source: String,
    /// How long they are good; `None` where nobody says so.
    pub life: Option<Duration>,
    /// Whether they end at all, as far as can be seen.
    pub temporary: bool,
    /// Whether their source has others when they end.
    pub renews: bool,
}

/// How fast a store gives some extents.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Requests in flight, at most.
    pub at_once: usize,
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// How long it took.
    pub took: Duration,
    /// Seconds to the first byte at the median; `None` where nothing came.
    pub first_byte_p50: Option<f64>,
    /// 95th percentile of it.
    pub first_byte_p95: Option<f64>,
    /// Answers that asked for patience.
    pub throttled: u64,
    /// Reads that failed, and the first of their errors.
    pub failed: u64,
    /// The first of their errors.
    pub error: Option<Error>,
}

impl Pace {
    /// Bytes that came in a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

impl Fetcher {
    /// Where requests for an object go; nothing for a local file. Nobody is asked.
    pub fn door(&self, object: &Location) -> Result<Option<Door>> {
        let store = self.room.store(object).map_err(|failure| self.refused(object, failure))?;
        let Store::Remote(remote) = &*store else { return Ok(None) };
        let place = remote.place();
        let address = match place.base.as_str() {
            "" => format!("{}://{}", object.scheme.as_str(), object.authority),
            base => base.to_owned(),
        };
        let region = Some(place.region.clone()).filter(|region| !region.is_empty());
        Ok(Some(Door { address, region, unsigned: remote.is_unsigned() }))
    }

    /// Asks for the head of an object without saying who we are. Any answer will do, a refusal too;
    /// an error is that there is none.
    pub fn greeting_blocking(&self, object: &Location) -> Result<Greeting> {
        let (fetcher, object) = (self.clone(), object.clone());
        self.block(async move {
            let refused = |failure| fetcher.refused(&object, failure);
            let store = fetcher.room.store(&object).map_err(refused)?;
            let Store::Remote(remote) = &*store else {
                return Err(Error::Bug("a local file has no door".to_owned()));
            };
            let url = remote.url(&remote.place(), &object).map_err(refused)?;
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = Method::HEAD;
            *request.uri_mut() = url
                .as_str()
                .parse()
                .map_err(|_| refused(Failure::transient("the address is not a URL")))?;
            let (since, silence) = (Instant::now(), fetcher.room.config.read_timeout);
            let answer = timeout(silence, remote.client.execute(request)).await;
            let answer = answer.unwrap_or_else(|_| {
                Err(object_store::client::HttpError::new(
                    object_store::client::HttpErrorKind::Timeout,
                    std::io::Error::from(std::io::ErrorKind::TimedOut),
                ))
            });
            let answer = answer.map_err(|error| refused(Failure::of_way(&error)))?;
            let date = headers::text(answer.headers(), &DATE);
            let time = date.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
            Ok(Greeting { time: time.map(|time| time.timestamp()), took: since.elapsed() })
        })
    }

    /// Has credentials for a store, and says where they come from; nothing where requests go unsigned.
    pub fn credentials_blocking(&self, object: &Location) -> Result<Option<Credentials>> {
        let (fetcher, object) = (self.clone(), object.clone());
        self.block(async move {
            let refused = |failure| fetcher.refused(&object, failure);
            match &*fetcher.room.store(&object).map_err(refused)? {
                Store::Files => Ok(None),
                Store::Remote(remote) => remote.credentials().await.map_err(refused),
            }
        })
    }

    /// Reads extents, one after the other and anew when all are read, so many at a time; for about as
    /// long as `patience`, and of about `most` bytes at most. Of each its first 4 MiB.
    pub fn pace_blocking(
        &self,
        extents: Vec<Extent>,
        at_once: usize,
        patience: Duration,
        most: u64,
    ) -> Result<Pace> {
        let fetcher = self.clone();
        self.block(async move {
            let since = Instant::now();
            let came = Arc::new(AtomicU64::new(0));
            let (told, until) = (Arc::clone(&came), since + patience);
            let goes_on =
                move |_: &Extent| Instant::now() < until && told.load(Ordering::Relaxed) < most;
            let extents = extents.into_iter().cycle().take_while(goes_on);
            let read = |extent: Extent| {
                let fetcher = fetcher.clone();
                async move { fetcher.beginning(&extent, OF_ONE).await }
            };
            let mut reads = stream::iter(extents).map(read).buffer_unordered(at_once.max(1));
            let (mut done, mut failed, mut error, mut took) = (0, 0, None, since.elapsed());
            while let Ok(Some(read)) = timeout_at(until + LATEST, reads.next()).await {
                took = since.elapsed();
                match read {
                    Ok((bytes, _)) => {
                        came.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                        done += 1;
                    }
                    Err(met) => {
                        failed += 1;
                        // What is missing is the data's matter: other objects may be there.
                        let missing =
                            matches!(&met, Error::Fetch(it) if it.kind == FetchErrorKind::NotFound);
                        error.get_or_insert(met);
                        if done == 0 && failed >= at_once as u64 && !missing {
                            break;
                        }
                    }
                }
            }
            let meter = &fetcher.room.metrics.fetch;
            let first_byte = |share| meter.first_byte.quantile(share).map(|micros| micros / 1e6);
            Ok(Pace {
                at_once,
                reads: done,
                bytes: came.load(Ordering::Relaxed),
                took,
                first_byte_p50: first_byte(0.50),
                first_byte_p95: first_byte(0.95),
                throttled: meter.throttled.get(),
                failed,
                error,
            })
        })
    }

    fn refused(&self, object: &Location, failure: Failure) -> Error {
        Tries::new(&self.room.config, Urgency::NOW, object, None).refused(failure)
    }
}
