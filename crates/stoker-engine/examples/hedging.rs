//! What second requests gain: objects of 300 KB from `stoker-s3` with the latencies of S3 Standard,
//! over loopback, read with and without them. Both in one run, in turns; medians over the rounds. Then
//! the store becomes slow as a whole, and gets few of them until that is usual.
//!
//!     cargo build --release --workspace --exclude stoker-python --example hedging
//!     target/release/examples/hedging

#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream;
use stoker_engine::error::Result;
use stoker_engine::fetch::Fetcher;
use stoker_engine::metrics::Metrics;
use stoker_engine::recipe;
use stoker_engine::sample::{Extent, Location, Scheme};
use stoker_s3::{Backend, Config, Profile, Server};

const OBJECTS: usize = 64;
const BYTES: usize = 300_000;
const READS: usize = 1000;
const AT_ONCE: usize = 16;
const ROUNDS: usize = 9;
const SLOW_ROUNDS: usize = 4;

/// One way to read, and what each round of it took.
struct Way {
    name: &'static str,
    fetcher: Fetcher,
    metrics: Arc<Metrics>,
    rounds: Vec<Round>,
}

struct Round {
    p50: Duration,
    p99: Duration,
    /// Per read.
    requests: f64,
    hedges: f64,
}

impl Way {
    fn new(
        name: &'static str,
        open: fn(&recipe::Fetch, Arc<Metrics>) -> Result<Fetcher>,
        config: &recipe::Fetch,
    ) -> Result<Self> {
        let metrics = Arc::<Metrics>::default();
        let fetcher = open(config, Arc::clone(&metrics))?;
        Ok(Self { name, fetcher, metrics, rounds: Vec::new() })
    }

    /// Reads so many objects, some at a time.
    fn round(&mut self) -> Result<()> {
        let before = self.metrics.fetch.requests.get();
        let twice = self.metrics.fetch.hedges.get();
        let fetcher = &self.fetcher;
        let reads = stream::iter(0..READS).map(async |number| {
            let key = (number % OBJECTS).to_string();
            let object = Location { scheme: Scheme::S3, authority: "bucket".into(), key };
            let extent = Extent { object: Arc::new(object), range: None };
            let since = Instant::now();
            fetcher.read(&extent, |_| ready(Ok(()))).await.map(|_| since.elapsed())
        });
        let reads = reads.buffer_unordered(AT_ONCE).collect::<Vec<_>>();
        let times: Result<Vec<Duration>> = futures::executor::block_on(reads).into_iter().collect();
        let mut times = times?;
        times.sort();
        let requests = (self.metrics.fetch.requests.get() - before) as f64 / READS as f64;
        let hedges = (self.metrics.fetch.hedges.get() - twice) as f64 / READS as f64;
        let (p50, p99) = (times[READS / 2], times[READS * 99 / 100]);
        self.rounds.push(Round { p50, p99, requests, hedges });
        Ok(())
    }

    fn median<T: PartialOrd>(&self, of: impl Fn(&Round) -> T) -> T {
        let mut values: Vec<T> = self.rounds.iter().map(of).collect();
        values.sort_by(|one, other| one.partial_cmp(other).expect("numbers have an order"));
        values.swap_remove(values.len() / 2)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config { profile: Profile::Standard, unsigned: true, ..Config::default() };
    let server = Server::start(&config, Backend::memory())?;
    for key in 0..OBJECTS {
        server.put("bucket", &key.to_string(), vec![key as u8; BYTES])?;
    }
    let endpoint = Some(server.endpoint());
    let config = recipe::Fetch { endpoint, anonymous: true, ..recipe::Fetch::default() };
    let mut ways = [
        Way::new("once", Fetcher::unhedged, &config)?,
        Way::new("twice where late", Fetcher::new, &config)?,
    ];
    for round in 0..=ROUNDS {
        for way in &mut ways {
            way.round()?;
            if round == 0 {
                // What is usual was not known yet.
                way.rounds.clear();
            }
        }
    }
    println!("{ROUNDS} rounds of {READS} reads, {AT_ONCE} at a time; medians over the rounds");
    println!("{:<18} {:>9} {:>9} {:>18}", "sent", "p50 ms", "p99 ms", "requests per read");
    for way in &ways {
        let (p50, p99) = (way.median(|round| round.p50), way.median(|round| round.p99));
        let requests = way.median(|round| round.requests);
        let (p50, p99) = (p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3);
        println!("{:<18} {p50:>9.1} {p99:>9.1} {requests:>18.3}", way.name);
    }
    let p99s = || ways.iter().map(|way| way.median(|round| round.p99).as_secs_f64());
    let (once, twice) = (p99s().next().unwrap_or_default(), p99s().next_back().unwrap_or_default());
    println!("p99 of the one by the other: {:.2}", twice / once);

    server.set_profile(Profile::Cold);
    let late = &mut ways[1];
    late.rounds.clear();
    for _ in 0..SLOW_ROUNDS {
        late.round()?;
    }
    let shares: Vec<String> =
        late.rounds.iter().map(|round| format!("{:.1} %", round.hedges * 100.0)).collect();
    println!(
        "the store slow as a whole: sent twice in each round of {READS}: {}",
        shares.join(", ")
    );
    Ok(())
}
