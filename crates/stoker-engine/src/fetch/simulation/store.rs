//! A store in memory that takes its time, and misbehaves as it is told to.

use std::collections::HashMap;
use std::f64::consts::TAU;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use bytes::Bytes;
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::header::{HeaderName, HeaderValue, IF_MATCH, RANGE};
use reqwest::{Method, StatusCode};
use tokio::time::{Duration, Instant, sleep};

use super::body::SimBody;
use crate::fetch::random::Chance;

/// How long answers take: the numbers of `stoker-s3`'s profiles, or all slower by a factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Profile {
    Standard,
    Slower(f64),
}

impl Profile {
    /// Seconds to first byte, and bytes per second.
    fn draw(self, chance: &Chance) -> (f64, f64) {
        let (median, sigma) = if chance.share() < 0.95 { (0.028, 0.5) } else { (0.140, 0.8) };
        let first_byte = (median * (sigma * normal(chance)).exp()).min(5.0);
        let rate = (58.0 * (0.45 * normal(chance)).exp()).min(95.0) * 1_048_576.0;
        match self {
            Self::Standard => (first_byte, rate),
            Self::Slower(times) => (first_byte * times, rate / times),
        }
    }
}

/// By Box and Muller.
fn normal(chance: &Chance) -> f64 {
    let (radius, angle) = (chance.share(), chance.share());
    (-2.0 * (1.0 - radius).max(1e-12).ln()).sqrt() * (TAU * angle).cos()
}

/// What may befall a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing listens.
    Refused,
    /// The connection ends before the answer.
    Reset,
    /// No answer at all.
    Silence,
    /// A status, and whether it is said when to come again.
    Status(u16, bool),
    /// The body ends too early, as an error or as if nothing were.
    ResetBody,
    ShortBody,
    /// More comes than was announced.
    LongBody,
    /// The body falls silent.
    Stall,
    /// The body falls silent for some seconds.
    Pause,
    /// The body drips from some byte on.
    Drip,
    /// Another range than was asked for; none where one was asked for; or the whole object.
    WrongRange,
    NoRange,
    WholeObject,
    /// The object is replaced before the answer.
    Replaced,
    /// The body ends too early, and nothing said how long it is.
    Untold,
    /// The body comes at a few bytes a second.
    Trickle,
    /// An error with the status of an answer.
    ErrorBody,
    /// The credentials have ended.
    Expired,
    /// The object is where it was asked for.
    Redirect,
}

/// How the store behaves.
#[derive(Clone, Debug)]
pub(super) struct Weather {
    pub(super) profile: Profile,
    /// Share of requests that a fault befalls, and which.
    pub(super) share_of_faults: f64,
    pub(super) faults: Vec<Fault>,
    /// Requests a second beyond which it answers 503, with a second's worth saved.
    pub(super) most: Option<f64>,
    /// Whether objects have versions.
    pub(super) versions: bool,
}

impl Weather {
    pub(super) fn fair(profile: Profile) -> Self {
        Self { profile, share_of_faults: 0.0, faults: Vec::new(), most: None, versions: true }
    }
}

#[derive(Debug)]
pub(super) struct SimStore {
    pub(super) weather: Mutex<Weather>,
    chance: Chance,
    state: Mutex<State>,
    in_flight: Arc<AtomicUsize>,
    peak: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    versions: HashMap<u64, u64>,
    /// When each key was first asked for, and how long that answer took to its last byte.
    firsts: HashMap<u64, (Instant, f64)>,
    /// An object that comes at 100 KB/s.
    slow: Option<u64>,
    asked: u64,
    tokens: f64,
    filled: Option<Instant>,
}

/// Objects are parts of this.
static NOISE: LazyLock<Bytes> = LazyLock::new(|| {
    let chance = Chance::seeded(7);
    (0..6 << 20).map(|_| (chance.share() * 256.0) as u8).collect::<Vec<_>>().into()
});

/// What an object holds at a version.
pub(super) fn content(key: u64, version: u64) -> Bytes {
    let start = ((key * 7919 + version * 104_729) % (2 << 20)) as usize;
    NOISE.slice(start..start + size(key))
}

/// Bytes of an object: its key says it.
pub(super) fn size(key: u64) -> usize {
    (key % 4_000_000) as usize
}

impl SimStore {
    pub(super) fn new(seed: u64, weather: Weather) -> Arc<Self> {
        let (weather, chance, state) =
            (Mutex::new(weather), Chance::seeded(seed), Mutex::default());
        let (in_flight, peak) = (Arc::default(), AtomicUsize::new(0));
        Arc::new(Self { weather, chance, state, in_flight, peak })
    }

    pub(super) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn asked(&self) -> u64 {
        self.state.lock().unwrap().asked
    }

    /// When a key was first asked for, and how long that answer would have taken in seconds.
    pub(super) fn first(&self, key: u64) -> Option<(Instant, f64)> {
        self.state.lock().unwrap().firsts.get(&key).copied()
    }

    /// From now on that object comes slowly.
    pub(super) fn slow_down(&self, key: u64) {
        self.state.lock().unwrap().slow = Some(key);
    }

    pub(super) fn version(&self, key: u64) -> u64 {
        self.state.lock().unwrap().versions.get(&key).copied().unwrap_or(0)
    }

    fn is_too_much(&self, most: Option<f64>) -> bool {
        let (Some(most), now) = (most, Instant::now()) else { return false };
        let mut state = self.state.lock().unwrap();
        let since = state.filled.map_or(1.0, |filled| (now - filled).as_secs_f64());
        state.filled = Some(now);
        state.tokens = (state.tokens + since * most).min(most);
        let has = state.tokens >= 1.0;
        state.tokens -= f64::from(u8::from(has));
        !has
    }

    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let open = Open::begin(self);
        let weather = self.weather.lock().unwrap().clone();
        let key: u64 = request.uri().path().rsplit('/').next().unwrap().parse().unwrap();
        let (first_byte, rate) = weather.profile.draw(&self.chance);
        let is_slow = self.state.lock().unwrap().slow == Some(key);
        let rate = if is_slow { 100_000.0 } else { rate };
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap());
        let asked = header(RANGE).map(range);
        let is_faulty = self.chance.share() < weather.share_of_faults;
        let mut fault = is_faulty.then(|| self.chance.choose(&weather.faults));
        if self.is_too_much(weather.most) {
            fault = Some(Fault::Status(503, false));
        }
        {
            let mut state = self.state.lock().unwrap();
            state.asked += u64::from(fault != Some(Fault::Refused));
            let length = asked.as_ref().map_or(size(key), |range| range.end - range.start);
            let whole = first_byte + length as f64 / rate;
            state.firsts.entry(key).or_insert((Instant::now(), whole));
            if fault == Some(Fault::Replaced) {
                *state.versions.entry(key).or_default() += 1;
            }
        }
        match fault {
            Some(Fault::Refused) => return Err(error(HttpErrorKind::Connect)),
            Some(Fault::Silence) => std::future::pending().await,
            _ => sleep(Duration::from_secs_f64(first_byte)).await,
        }
        if fault == Some(Fault::Reset) {
            return Err(error(HttpErrorKind::Interrupted));
        }
        if let Some(Fault::Status(code, told)) = fault {
            let mut answer = reply(code, HttpResponseBody::from(String::new()));
            put(&mut answer, "x-amz-request-id", "REQ1");
            if told {
                put(&mut answer, "retry-after", "1");
            }
            return Ok(answer);
        }
        if let Some(mut answer) = fault.and_then(refusal) {
            put(&mut answer, "content-type", "application/xml");
            put(&mut answer, "location", &request.uri().to_string());
            return Ok(answer);
        }
        let (version, bytes) = (self.version(key), content(key, self.version(key)));
        let etag = format!("\"{version}\"");
        if header(IF_MATCH).is_some_and(|wanted| wanted != etag) {
            return Ok(reply(412, HttpResponseBody::from(String::new())));
        }
        let asked = asked.filter(|_| fault != Some(Fault::WholeObject));
        let (status, sent) = match &asked {
            None => (200, 0..bytes.len()),
            Some(range) if range.start >= bytes.len() => {
                return Ok(reply(416, HttpResponseBody::from(String::new())));
            }
            Some(range) => (206, range.start..range.end.min(bytes.len())),
        };
        let head = *request.method() == Method::HEAD;
        let body = SimBody::new(&bytes.slice(sent.clone()), rate, fault, &self.chance, open);
        let mut answer = if head {
            reply(status, HttpResponseBody::from(String::new()))
        } else {
            reply(status, HttpResponseBody::new(body))
        };
        if fault != Some(Fault::Untold) || head {
            put(&mut answer, "content-length", &sent.len().to_string());
        }
        if weather.versions {
            put(&mut answer, "etag", &etag);
        }
        if asked.is_some() && fault != Some(Fault::NoRange) {
            let wrong = usize::from(fault == Some(Fault::WrongRange));
            let (first, last) = (sent.start + wrong, sent.end - 1 + wrong);
            let told = format!("bytes {first}-{last}/{}", bytes.len());
            put(&mut answer, "content-range", &told);
        }
        Ok(answer)
    }
}

fn range(text: &str) -> Range<usize> {
    let (first, last) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    first.parse().unwrap()..last.parse().map_or(usize::MAX, |last: usize| last + 1)
}

/// An answer that has nothing of the object.
fn refusal(fault: Fault) -> Option<HttpResponse> {
    let (status, code) = match fault {
        Fault::ErrorBody => (200, "InternalError"),
        Fault::Expired => (400, "ExpiredToken"),
        Fault::Redirect => (307, "TemporaryRedirect"),
        _ => return None,
    };
    Some(reply(status, format!("<Error><Code>{code}</Code></Error>").into()))
}

pub(super) fn error(kind: HttpErrorKind) -> HttpError {
    HttpError::new(kind, std::io::Error::other("the simulation said so"))
}

fn reply(status: u16, body: HttpResponseBody) -> HttpResponse {
    let mut answer = HttpResponse::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
    answer
}

fn put(answer: &mut HttpResponse, name: &'static str, value: &str) {
    let value = HeaderValue::try_from(value).unwrap();
    answer.headers_mut().insert(HeaderName::from_static(name), value);
}

/// The store as a client sees it.
#[derive(Debug)]
pub(super) struct Door(pub(super) Arc<SimStore>);

#[async_trait::async_trait]
impl HttpService for Door {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        self.0.answer(request).await
    }
}

/// A request that the store is busy with.
#[derive(Debug)]
pub(super) struct Open(Arc<AtomicUsize>);

impl Open {
    fn begin(store: &SimStore) -> Self {
        let now = store.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        store.peak.fetch_max(now, Ordering::Relaxed);
        Self(Arc::clone(&store.in_flight))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
