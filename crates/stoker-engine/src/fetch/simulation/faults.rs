//! Random reads in random weather: right bytes or a named error, in time, within all limits.
//!
//! `STOKER_SEEDS=17` runs that seed, `STOKER_SEEDS=2000..90000` a range of them.

use std::ops::Range;

use futures::future::join_all;
use tokio::time::{Instant, sleep};

use super::store::{Fault, content, size};
use super::*;
use crate::error::{Error, FetchError, FetchErrorKind};
use crate::fetch::Urgency;
use crate::sample::Extent;

/// Seeds of an ordinary run of each test.
const SEEDS: u64 = 700;

const ALL: [Fault; 21] = [
    Fault::Refused,
    Fault::Reset,
    Fault::Silence,
    Fault::Status(500, false),
    Fault::Status(503, false),
    Fault::Status(503, true),
    Fault::Status(429, true),
    Fault::ResetBody,
    Fault::ShortBody,
    Fault::LongBody,
    Fault::Stall,
    Fault::Drip,
    Fault::WrongRange,
    Fault::NoRange,
    Fault::WholeObject,
    Fault::Replaced,
    Fault::Untold,
    Fault::Trickle,
    Fault::ErrorBody,
    Fault::Expired,
    Fault::Redirect,
];

/// What an error says of a fault that never goes away (either of two things where it depends on when one
/// looks), and whether it befalls reads of whole objects.
const FOREVER: [(Fault, FetchErrorKind, &str, bool); 18] = [
    (Fault::Refused, FetchErrorKind::Transient, "can't connect", true),
    (Fault::Reset, FetchErrorKind::Transient, "the connection failed", true),
    (Fault::Silence, FetchErrorKind::Transient, "timed out", true),
    (Fault::Status(500, false), FetchErrorKind::Transient, "the store failed", true),
    (Fault::Status(503, false), FetchErrorKind::Transient, "the store is busy", true),
    (Fault::Status(429, true), FetchErrorKind::Transient, "the store is busy", true),
    (Fault::ResetBody, FetchErrorKind::Transient, "the connection failed", true),
    (Fault::ShortBody, FetchErrorKind::Transient, "the body ended after", true),
    (Fault::LongBody, FetchErrorKind::Transient, "the body is longer than", true),
    (Fault::Stall, FetchErrorKind::Transient, "no byte in|bytes a second", true),
    (Fault::Trickle, FetchErrorKind::Transient, "no byte in|bytes a second", true),
    (Fault::WrongRange, FetchErrorKind::Transient, "another range", false),
    (Fault::NoRange, FetchErrorKind::Transient, "the store answered the range", false),
    (Fault::WholeObject, FetchErrorKind::Transient, "ignored the range", false),
    (Fault::Untold, FetchErrorKind::Transient, "the body ended after", true),
    (Fault::ErrorBody, FetchErrorKind::Transient, "an error in place of the object", true),
    (Fault::Expired, FetchErrorKind::Denied, "the credentials have expired", true),
    (Fault::Redirect, FetchErrorKind::Unconfigured, "the store leads elsewhere", true),
];

#[expect(clippy::disallowed_methods, reason = "a test is told its seeds by whoever runs it")]
fn seeds() -> Range<u64> {
    let Ok(told) = std::env::var("STOKER_SEEDS") else { return 0..SEEDS };
    let number = |text: &str| text.parse().expect("seeds are whole numbers");
    match told.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&told)..number(&told) + 1,
    }
}

/// One read: of which object, which part, when, how urgent, and what becomes of it.
#[derive(Clone, Debug)]
struct Errand {
    key: u64,
    part: Part,
    begin: Duration,
    urgency: Urgency,
    /// Given up after that time.
    cancelled: Option<Duration>,
    /// How long memory is waited for.
    memory: Option<Duration>,
}

#[derive(Clone, Debug)]
enum Part {
    Whole,
    Range(Range<u64>),
    Beginning(u64),
    Info,
}

impl Errand {
    fn draw(chance: &Chance, number: u64) -> Self {
        // The key says the size; keys differ, so that the store can tell reads apart.
        let most = chance.choose(&[1000, 100_000, 400_000, 3_900_000]);
        let key = number * 4_000_000 + chance.below(most);
        let size = size(key) as u64;
        let start = chance.below(size + 1);
        let part = match chance.below(8) {
            0 => Part::Info,
            1 => Part::Beginning(1 + chance.below(64 << 10)),
            2..5 => Part::Whole,
            _ => Part::Range(start..start + chance.below(size - start + 1)),
        };
        let maybe = |most: f64| (chance.below(8) == 0).then(|| chance.seconds(most));
        let urgency = Urgency { batch: chance.below(20), part: chance.below(3) };
        let (cancelled, memory) = (maybe(0.3), maybe(3.0));
        Self { key, part, begin: chance.seconds(1.0), urgency, cancelled, memory }
    }

    /// What it gave, and when; `None` where it was given up.
    async fn run(&self, fetcher: &Fetcher) -> Option<(Result<Got, Error>, Instant)> {
        sleep(self.begin).await;
        let fetcher = fetcher.at(self.urgency);
        let object = object(self.key);
        let reading = async {
            let admit = async |_| {
                sleep(self.memory.unwrap_or_default()).await;
                Ok(())
            };
            let extent = |range| Extent { object: Arc::clone(&object), range };
            match &self.part {
                Part::Info => fetcher.stat(&object).await.map(|info| Got::Size(info.size)),
                Part::Beginning(most) => {
                    let got = fetcher.beginning(&extent(None), *most).await;
                    got.map(|(bytes, size)| Got::Beginning(bytes, size))
                }
                Part::Whole => fetcher.read(&extent(None), admit).await.map(Got::Bytes),
                Part::Range(range) => {
                    fetcher.read(&extent(Some(range.clone())), admit).await.map(Got::Bytes)
                }
            }
        };
        let got = match self.cancelled {
            None => reading.await,
            Some(after) => timeout(after, reading).await.ok()?,
        };
        Some((got, Instant::now()))
    }

    /// Whether this is what the object had, at one of its versions.
    fn is_right(&self, got: &Got, versions: u64) -> bool {
        (0..=versions).any(|version| {
            let all = content(self.key, version);
            match (got, &self.part) {
                (Got::Size(size), _) => *size == all.len() as u64,
                (Got::Beginning(bytes, size), Part::Beginning(most)) => {
                    let most = (*most).min(all.len() as u64) as usize;
                    // A server that does not know ranges gives nothing of a large object.
                    *size == all.len() as u64 && (*bytes == all[..most] || bytes.is_empty())
                }
                (Got::Bytes(bytes), Part::Range(range)) => {
                    *bytes == all[range.start as usize..range.end as usize]
                }
                (Got::Bytes(bytes), _) => *bytes == all,
                _ => false,
            }
        })
    }
}

#[derive(Debug)]
enum Got {
    Size(u64),
    Beginning(bytes::Bytes, u64),
    Bytes(bytes::Bytes),
}

/// Lives a world of that seed, and says how many reads and requests it saw.
fn live(seed: u64, config: &recipe::Fetch, weather: &Weather, close: bool) -> (u64, u64) {
    world(seed, config, weather.clone(), async |world| {
        let World { fetcher, metrics, store, chance } = world;
        // Now and then enough of them to know what is usual.
        let count = if seed.is_multiple_of(16) { 400 } else { 5 + chance.below(25) };
        let errands: Vec<_> = (0..count).map(|number| Errand::draw(&chance, number)).collect();
        let reads = join_all(errands.iter().map(|errand| errand.run(&fetcher)));
        let ended = if close {
            let closing = timeout(chance.seconds(1.5), reads).await;
            fetcher.close();
            closing.unwrap_or_default()
        } else {
            reads.await
        };
        for (errand, end) in errands.iter().zip(ended) {
            let Some((got, end)) = end else { continue };
            let about = || -> String {
                format!("seed {seed}, {errand:?}: {got:?}").chars().take(900).collect()
            };
            let about: &dyn Fn() -> String = &about;
            match &got {
                Ok(got) => assert!(errand.is_right(got, store.version(errand.key)), "{}", about()),
                Err(Error::Fetch(error)) => judge(error, config, weather, about),
                Err(error) => panic!("{error}: {}", about()),
            }
            if let Some((first, _)) = store.first(errand.key) {
                let took = (end - first).saturating_sub(errand.memory.unwrap_or_default());
                assert!(took <= config.deadline + Duration::from_millis(10), "{}", about());
            }
        }
        let most = config.concurrency as usize;
        assert!(store.peak() <= most, "seed {seed}: {} in flight", store.peak());
        fetcher.close();
        // What was given up ends when the runtime comes to it.
        sleep(Duration::from_millis(1)).await;
        let requests = metrics.fetch.requests.get();
        assert!(store.asked() <= requests, "seed {seed}: {} of {requests}", store.asked());
        let meter = &metrics.fetch;
        let gauges = [meter.in_flight.get(), meter.queued.get(), meter.limit.get()];
        assert_eq!((gauges, store.in_flight()), ([0; 3], 0), "seed {seed}: gauges");
        let hedges = meter.hedges.get() as f64;
        // Those that found no connection are no requests, but first ones all the same.
        let most = 0.05 * (requests + meter.retries.get()) as f64;
        assert!(hedges <= most, "seed {seed}: {hedges} of {requests} twice");
        assert!(matches!(fetcher.stat(&object(1)).await, Err(Error::Stopped)), "seed {seed}");
        (errands.len() as u64, requests)
    })
}

/// An error must be one that the weather explains, and say all that its reader needs.
fn judge(
    error: &FetchError,
    config: &recipe::Fetch,
    weather: &Weather,
    about: &dyn Fn() -> String,
) {
    assert!(error.uri.starts_with("s3://bucket/") && !error.reason.is_empty(), "{}", about());
    match error.kind {
        FetchErrorKind::Changed => {
            assert!(weather.faults.contains(&Fault::Replaced), "{}", about());
        }
        FetchErrorKind::Denied => assert!(weather.faults.contains(&Fault::Expired), "{}", about()),
        FetchErrorKind::Unconfigured => {
            assert!(weather.faults.contains(&Fault::Redirect), "{}", about());
        }
        FetchErrorKind::Transient => {
            let late = error.reason.contains("fetch.deadline");
            assert!(late || error.attempts == config.attempts, "{}", about());
            assert!(error.attempts <= config.attempts, "{}", about());
            let rare = weather.share_of_faults <= 0.05 && weather.most.is_none();
            assert!(!rare || config.attempts < 8 || late, "{}", about());
        }
        _ => panic!("{}", about()),
    }
}

fn stormy(seed: u64) -> (recipe::Fetch, Weather) {
    let chance = Chance::seeded(seed ^ 3);
    let config = recipe::Fetch {
        concurrency: 1 + chance.below(32) as u32,
        attempts: 1 + chance.below(10) as u32,
        deadline: chance.choose(&[5, 30, 300].map(Duration::from_secs)),
        ..recipe::Fetch::default()
    };
    let faults = (0..=chance.below(4)).map(|_| chance.choose(&ALL)).collect();
    let share_of_faults = chance.choose(&[0.0, 0.05, 0.3, 1.0]);
    let most = (chance.below(4) == 0).then(|| 5.0 + 200.0 * chance.share());
    let profile = chance.choose(&[Profile::Standard, Profile::Slower(10.0)]);
    (config, Weather { profile, share_of_faults, faults, most, versions: chance.below(4) > 0 })
}

#[test]
fn reads_give_right_bytes_or_a_named_error_in_time_in_any_weather() {
    for seed in seeds() {
        let (config, weather) = stormy(seed);
        live(seed, &config, &weather, false);
    }
}

#[test]
fn closing_in_the_midst_of_it_leaves_nothing() {
    for seed in seeds() {
        let (config, weather) = stormy(seed);
        live(seed, &config, &weather, true);
    }
}

#[test]
fn a_fault_that_never_goes_away_ends_each_read_by_its_name_within_the_deadline() {
    for (seed, (fault, kind, words, befalls_whole)) in FOREVER.into_iter().enumerate() {
        for (deadline, attempts) in [(300, 8), (30, 8), (3, 8), (300, 2)] {
            let deadline = Duration::from_secs(deadline);
            let config = recipe::Fetch { attempts, deadline, ..recipe::Fetch::default() };
            let weather = Weather {
                share_of_faults: 1.0,
                faults: vec![fault],
                ..Weather::fair(Profile::Standard)
            };
            world(seed as u64, &config, weather, async |world| {
                let mut most = 0;
                for range in [None, Some(1000..250_000)] {
                    if range.is_none() && !befalls_whole {
                        continue;
                    }
                    let object = object(8_300_000);
                    let extent = Extent { object: Arc::clone(&object), range: range.clone() };
                    let since = Instant::now();
                    let read = world.fetcher.read(&extent, async |_| Ok(())).await;
                    let took = since.elapsed();
                    let about = format!("{fault:?} {range:?} {deadline:?}, {took:?}: {read:?}");
                    assert!(took <= deadline + Duration::from_millis(10), "{about}");
                    let Err(Error::Fetch(error)) = &read else { panic!("{about}") };
                    assert_eq!((error.kind, &error.range), (kind, &range), "{about}");
                    most = most.max(error.attempts);
                    let late =
                        error.reason.contains("fetch.deadline") || error.reason.contains("in time");
                    assert!(error.attempts == attempts || late, "{about}");
                    let told = words.split('|').any(|words| error.reason.contains(words));
                    assert!(told || late, "{about}");
                    assert!(error.to_string().contains(&object.to_string()), "{about}");
                }
                let fetch = &world.metrics.fetch;
                // Silence may take all the time there is.
                assert!(fetch.retries.get() > 0 || most == 1, "{fault:?}");
            });
        }
    }
}

/// With one request in twenty at fault no read fails, and requests are few more than reads.
#[test]
fn one_fault_in_twenty_costs_few_requests_and_no_read() {
    let faults: Vec<_> = ALL.into_iter().filter(|fault| *fault != Fault::Replaced).collect();
    let weather = Weather { share_of_faults: 0.05, faults, ..Weather::fair(Profile::Standard) };
    let (mut reads, mut requests) = (0, 0);
    for seed in seeds() {
        let (more_reads, more_requests) = live(seed, &recipe::Fetch::default(), &weather, false);
        reads += more_reads;
        requests += more_requests;
    }
    assert!(requests <= reads + reads / 4, "{requests} requests for {reads} reads");
}

#[test]
#[ignore = "minutes: a hundred thousand worlds"]
fn many_more_seeds() {
    for seed in SEEDS..100_000 {
        let (config, weather) = stormy(seed);
        live(seed, &config, &weather, seed % 3 == 0);
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    let (config, weather) = stormy(42);
    let requests = || live(42, &config, &weather, false);
    assert_eq!(requests(), requests());
    // And another one differs.
    let others: Vec<_> = (43..60).map(|seed| live(seed, &config, &weather, false)).collect();
    assert!(others.iter().any(|other| *other != others[0]));
}
