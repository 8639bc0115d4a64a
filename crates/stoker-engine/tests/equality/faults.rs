//! The fault matrix: what each fault of a store does to a run over lines and single images, shards
//! of tar and a table, from listing and indexing to the last batch.
//!
//! A fault that passes leaves the batches as they are, to the byte, and is found among the retries,
//! by its cause. One that stays ends the run with an error that says what was read, how often and what
//! came; that it does so by the deadline is held under a clock that jumps, in the room itself
//! (`fetch/simulation`). The matrix is one long file: its rows are read beside the rule that judges
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use stoker_engine::error::{Error, FetchError, FetchErrorKind};
use stoker_engine::loader::{Loader, Next};
use stoker_engine::metrics::{FetchReport, RetriesReport};
use stoker_engine::recipe::Recipe;
use stoker_s3::{Backend, Config, Fault, Faults, Operation, Rule, Server, Throttle};

use super::formats::{self, Chat};
use super::{PATIENCE, Seen, common, rank, see};

/// A store with the same samples in three formats.
struct Bed {
    server: Server,
}

/// How a run went.
struct Run {
    end: End,
    seen: Vec<Seen>,
    /// None where it did not get as far as to have one.
    report: Option<FetchReport>,
    injected: BTreeMap<String, u64>,
    /// Requests that the server had.
    requests: u64,
}

#[derive(Debug)]
enum End {
    Whole,
    Failed(Error),
    Hangs,
}

impl Bed {
    fn new(samples: usize) -> Self {
        let chats = formats::chats();
        let chats: &[Chat] = &chats[..samples];
        let config = Config { unsigned: true, ..Config::default() };
        let server = Server::start(&config, Backend::memory()).unwrap();
        let (first, second) = chats.split_at(samples / 3);
        let shards = [
            ("packed-0.tar".to_owned(), formats::tar(first, 0)),
            ("packed-1.tar".to_owned(), formats::tar(second, first.len())),
            ("table.parquet".to_owned(), formats::parquet(chats)),
        ];
        for (key, bytes) in formats::jsonl(chats).into_iter().chain(shards) {
            server.put("data", &key, bytes).unwrap();
        }
        Self { server }
    }

    fn recipe(&self, indexes: &Path, attempts: u32) -> Recipe {
        // What drips for ever is given up when it has taken its share of the deadline.
        let deadline = if attempts == TRIES { "6s" } else { "5min" };
        let dataset = |(name, source): (&str, &str)| json!({"name": name, "source": format!("s3://data/{source}"), "index-dir": indexes});
        let sources =
            [("lines", "train.jsonl"), ("shards", "packed-*.tar"), ("table", "table.parquet")];
        Recipe::from_value(json!({
            "model": common::model("qwen3-vl"),
            "datasets": sources.map(dataset),
            "fetch": {
                "endpoint": self.server.endpoint(),
                "anonymous": true,
                "attempts": attempts,
                "deadline": deadline,
                "read-timeout": "600ms",
            },
            "plan": {"epochs": 1, "shuffle": "none"},
            "vision": {"min-pixels": 4096, "max-pixels": 65536},
            "pack": {"batch-size": 4},
            "engine": {"on-bad-sample": "stop", "memory": "64MiB"},
        }))
        .unwrap()
    }

    /// Drains the recipe, with nothing known from before.
    fn run(&self, faults: &Faults, attempts: u32) -> Run {
        // Two shards make two pages.
        let faults = Faults { seed: 3, page_size: Some(1), ..faults.clone() };
        self.server.set_faults(&faults).unwrap();
        let before = self.server.stats().requests;
        let indexes = tempfile::tempdir().unwrap();
        let loader = Loader::open(self.recipe(indexes.path(), attempts), rank(0, 1));
        let mut seen = Vec::new();
        let end = match &loader {
            Ok(loader) => loop {
                match loader.next(PATIENCE) {
                    Ok(Next::Batch(batch)) => seen.push(see(&batch)),
                    Ok(Next::End) => break End::Whole,
                    Ok(Next::Waiting) => break End::Hangs,
                    Err(error) => break End::Failed(error),
                }
            },
            Err(error) => End::Failed(error.clone()),
        };
        // Connections are idle at the end at the latest.
        let since = Instant::now();
        while faults.idle.is_some() && self.server.injected().is_empty() {
            assert!(since.elapsed() < PATIENCE, "no connection is closed");
            std::thread::sleep(Duration::from_millis(5));
        }
        let report = loader.ok().map(|loader| loader.report().fetch);
        let (injected, requests) = (self.server.injected(), self.server.stats().requests - before);
        Run { end, seen, report, injected, requests }
    }

    /// A run without faults.
    fn clean(&self) -> Run {
        let run = self.run(&Faults::default(), 8);
        assert!(matches!(run.end, End::Whole), "{:?}", run.end);
        assert_eq!(run.injected, BTreeMap::new());
        let report = run.report.as_ref().unwrap();
        // The second one of a late request may be dropped before the server has it.
        let sent = report.requests - report.hedges..=report.requests;
        assert!(sent.contains(&run.requests), "{sent:?}, and {} had by the server", run.requests);
        assert_eq!(report.retries, 0);
        run
    }
}

/// Whether the run is the clean one, with all that went wrong found in its counts.
fn same(run: &Run, clean: &[Seen]) -> Result<(), String> {
    match &run.end {
        End::Whole if run.seen == clean => {}
        End::Whole => return Err("other batches".to_owned()),
        End::Hangs => return Err("it hangs".to_owned()),
        End::Failed(error) => return Err(error.to_string()),
    }
    if run.injected.is_empty() {
        return Err("nothing went wrong".to_owned());
    }
    let report = run.report.as_ref().ok_or("no report")?;
    let counted = |causes: fn(&RetriesReport) -> u64| causes(&report.causes);
    let mut failures: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for (fault, count) in &run.injected {
        let (cause, retries) = match fault.as_str() {
            // These are slow, or no failures of requests.
            "drip" | "pause" | "idle-close" | "close-after" => continue,
            "refuse" | "reset" | "reset-body" | "hang-up" | "hang-up-body" => {
                ("connection", counted(|it| it.connection))
            }
            "stall" => ("stalled", counted(|it| it.stalled)),
            "status-503" | "status-429" | "slow-down" => ("busy", counted(|it| it.busy)),
            "status-500" => ("failed", counted(|it| it.failed)),
            // The answer to HEAD has no words that say so.
            "expired" => ("credentials", counted(|it| it.credentials + it.failed)),
            "redirect" => ("redirected", counted(|it| it.redirected)),
            _ => ("wrong", counted(|it| it.wrong)),
        };
        let (sum, _) = failures.entry(cause).or_insert((0, retries));
        *sum += count;
    }
    // Of a late request and its second one, either may fail unheard where the other's answer is good.
    let unheard = failures.values().map(|(count, retries)| count.saturating_sub(*retries));
    let lacking: u64 = unheard.sum();
    if lacking <= report.hedges {
        return Ok(());
    }
    let (causes, hedges) = (&report.causes, report.hedges);
    Err(format!("{lacking} not found: {causes:?}, {hedges} hedges, for {:?}", run.injected))
}

/// Whether the run ended with the error that is to be expected.
fn named(run: &Run, cell: &Staying) -> Result<(), String> {
    let error = match &run.end {
        End::Failed(Error::Fetch(error)) => error,
        End::Failed(other) => return Err(format!("another error: {other}")),
        End::Whole => return Err("the run took it".to_owned()),
        End::Hangs => return Err("it hangs".to_owned()),
    };
    let FetchError { kind, status, range, attempts, uri, .. } = &**error;
    // What is not worth another attempt is not tried again.
    let tried = if *kind == FetchErrorKind::Transient { *attempts == TRIES } else { *attempts > 0 };
    let key = cell.key.trim_start_matches('*');
    let right = (*kind, *status) == (cell.kind, cell.status)
        && uri.contains(key)
        && range.is_none() == is(key, "jpg")
        && tried
        && error.to_string().contains(uri.as_str());
    if right { Ok(()) } else { Err(format!("{error:?}")) }
}

/// Whether a key ends so.
fn is(key: &str, extension: &str) -> bool {
    key.rsplit_once('.').is_some_and(|(_, end)| end == extension)
}

/// Fails for the cells that fail, all of them at once.
fn settle(cells: impl Iterator<Item = (&'static str, Result<(), String>)>) {
    let wrong = cells.filter_map(|(name, result)| Some(format!("{name}: {}", result.err()?)));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const IMAGES: &str = "*.jpg";

fn status(status: u16, retry_after: Option<u64>, as_date: bool) -> Fault {
    Fault::Status { status, retry_after, as_date }
}

fn pause() -> Fault {
    Fault::Stall { at: None, lasts: Some(Duration::from_millis(50)) }
}

fn silence() -> Fault {
    Fault::Stall { at: Some(40), lasts: None }
}

fn redirect() -> Fault {
    Fault::Redirect { status: None, region: Some("eu-west-1".into()), endpoint: None }
}

/// To where the request came from.
fn for_now(endpoint: &str) -> Fault {
    Fault::Redirect { status: Some(307), region: None, endpoint: Some(endpoint.to_owned()) }
}

/// Some of the requests meet it, and no request twice.
fn some(share: f64, fault: Fault) -> Rule {
    Rule { share, requests: Some((1, 1)), ..Rule::new(fault) }
}

fn of(keys: &str, rule: Rule) -> Rule {
    Rule { keys: Some(keys.to_owned()), ..rule }
}

/// Of parts only: what a whole object should have been like, its answer alone says.
fn parts(fault: Fault) -> Rule {
    // The lines, the shards and the table are read by parts.
    of("*[!g]", Rule { operations: vec![Operation::Get], ..some(0.3, fault) })
}

/// Of what is answered with a body, which says what is wrong.
fn with_words(rule: Rule) -> Rule {
    Rule { operations: vec![Operation::Get, Operation::List], ..rule }
}

fn head(rule: Rule) -> Rule {
    Rule { operations: vec![Operation::Head], ..rule }
}

fn rules(rule: Rule) -> Faults {
    Faults { rules: vec![rule], ..Faults::default() }
}

/// Faults that pass; `endpoint` is the server's.
fn passing(endpoint: &str) -> Vec<(&'static str, Faults)> {
    let listing = |fault| Rule {
        operations: vec![Operation::List],
        later_pages: true,
        requests: Some((1, 1)),
        ..Rule::new(fault)
    };
    let refuse = Fault::Refuse { lasts: Some(Duration::from_millis(50)) };
    let untold = |at| Fault::Short { at, told: false };
    vec![
        ("refuse", rules(some(0.05, refuse))),
        ("reset", rules(some(0.3, Fault::Reset { at: None }))),
        ("reset-body", rules(some(0.3, Fault::Reset { at: Some(40) }))),
        ("hang-up", rules(some(0.3, Fault::HangUp { at: None }))),
        ("hang-up-body", rules(some(0.3, Fault::HangUp { at: Some(40) }))),
        ("500", rules(some(0.3, status(500, None, false)))),
        ("503", rules(some(0.1, status(503, None, false)))),
        ("503 with a time", rules(some(0.05, status(503, Some(1), false)))),
        ("429 with a date", rules(some(0.05, status(429, Some(1), true)))),
        ("error-body of a part", rules(parts(Fault::ErrorBody {}))),
        ("error-body of a whole object", rules(of(IMAGES, some(0.3, Fault::ErrorBody {})))),
        ("expired 400", rules(with_words(some(0.3, Fault::Expired { status: None })))),
        ("expired at a HEAD", rules(head(some(1.0, Fault::Expired { status: None })))),
        ("expired 403", rules(with_words(some(0.3, Fault::Expired { status: Some(403) })))),
        ("redirect", rules(some(0.3, redirect()))),
        ("redirect for now", rules(some(0.3, for_now(endpoint)))),
        ("wrong-range", rules(some(0.3, Fault::WrongRange {}))),
        ("no-range", rules(some(0.3, Fault::NoRange {}))),
        ("whole-object", rules(some(0.3, Fault::WholeObject {}))),
        ("short-told of a part", rules(parts(Fault::Short { at: None, told: true }))),
        ("short-untold of a part", rules(parts(untold(None)))),
        ("short-untold of a whole object", rules(of(IMAGES, some(0.3, untold(None))))),
        ("silence", rules(some(0.2, silence()))),
        ("pause", rules(some(0.3, pause()))),
        ("drip", rules(some(0.3, Fault::Drip { rate: 100_000 }))),
        ("error at a later page", rules(listing(status(500, None, false)))),
        ("repeated page", rules(listing(Fault::RepeatPage {}))),
        (
            "idle connections closed",
            Faults { idle: Some(Duration::from_millis(30)), ..Faults::default() },
        ),
        (
            "connections closed after two requests",
            Faults { requests_per_connection: Some(2), ..Faults::default() },
        ),
        (
            "throttle",
            Faults {
                throttle: Some(Throttle { rate: 20.0, depth: 0, doubles_after: None }),
                ..Faults::default()
            },
        ),
    ]
}

#[test]
fn a_fault_that_passes_leaves_the_batches_as_they_are() {
    let bed = Bed::new(9);
    let clean = bed.clean().seen;
    let cells = passing(&bed.server.endpoint()).into_iter().map(|(name, faults)| {
        let mut run = bed.run(&faults, 8);
        // A stall that ends soon is one that nobody has to notice.
        if name == "pause" {
            let pauses = run.injected.remove("stall").map(|count| ("pause".to_owned(), count));
            run.injected.extend(pauses);
        }
        let result = same(&run, &clean);
        (name, result)
    });
    settle(cells);
}

/// Attempts where a fault stays.
const TRIES: u32 = 2;

/// A fault that stays with one object.
struct Staying {
    name: &'static str,
    fault: Fault,
    /// An image, which is read whole, or a shard, which is read by parts.
    key: &'static str,
    kind: FetchErrorKind,
    status: Option<u16>,
}

fn staying(endpoint: &str) -> Vec<Staying> {
    use FetchErrorKind::{Changed, Denied, Transient, Unconfigured};
    let (image, shard) = ("*images/000003.jpg", "*packed-1.tar");
    let cell = |name, fault, key, kind, status| Staying { name, fault, key, kind, status };
    let untold = Fault::Short { at: None, told: false };
    vec![
        cell("reset", Fault::Reset { at: None }, image, Transient, None),
        cell("reset-body", Fault::Reset { at: Some(40) }, shard, Transient, None),
        cell("hang-up", Fault::HangUp { at: None }, shard, Transient, None),
        cell("hang-up-body", Fault::HangUp { at: Some(0) }, image, Transient, None),
        cell("500", status(500, None, false), image, Transient, Some(500)),
        cell("503", status(503, None, false), shard, Transient, Some(503)),
        cell("429", status(429, Some(0), false), image, Transient, Some(429)),
        cell("error-body", Fault::ErrorBody {}, image, Transient, None),
        cell("error-body of a part", Fault::ErrorBody {}, shard, Transient, None),
        cell("expired", Fault::Expired { status: None }, image, Denied, Some(400)),
        cell("redirect", redirect(), shard, Unconfigured, Some(301)),
        cell("redirect for now", for_now(endpoint), image, Unconfigured, Some(307)),
        cell("wrong-range", Fault::WrongRange {}, shard, Transient, None),
        cell("no-range", Fault::NoRange {}, shard, Transient, None),
        cell("whole-object", Fault::WholeObject {}, shard, Transient, None),
        cell("short-told", Fault::Short { at: None, told: true }, shard, Transient, None),
        cell("short-untold", untold.clone(), shard, Transient, None),
        cell("short-untold of a whole object", untold, image, Transient, None),
        cell("silence", Fault::Stall { at: Some(0), lasts: None }, image, Transient, None),
        cell("drip", Fault::Drip { rate: 5 }, image, Transient, None),
        cell("replaced", Fault::Replaced {}, shard, Changed, Some(412)),
    ]
}

#[test]
fn a_fault_that_stays_ends_the_run_by_its_name() {
    let bed = Bed::new(9);
    let cells = staying(&bed.server.endpoint()).into_iter().map(|cell| {
        // What is read of a shard from its first byte on is its index.
        let bytes = is(cell.key, "tar").then_some((1, u64::MAX));
        let faults = rules(of(cell.key, Rule { bytes, ..Rule::new(cell.fault.clone()) }));
        let run = bed.run(&faults, TRIES);
        (cell.name, named(&run, &cell))
    });
    settle(cells);
}

/// Nobody listens: any read may be the first to notice.
#[test]
fn a_store_that_is_gone_ends_the_run() {
    let bed = Bed::new(3);
    let gone = Fault::Refuse { lasts: Some(PATIENCE * 10) };
    let rule = of("*images/000001.jpg", Rule::new(gone));
    let run = bed.run(&rules(rule), TRIES);
    let End::Failed(Error::Fetch(error)) = &run.end else { panic!("{:?}", run.end) };
    assert_eq!((error.kind, error.attempts), (FetchErrorKind::Transient, TRIES), "{error}");
}

#[test]
fn five_percent_of_all_faults_together_cost_at_most_a_quarter_more_requests() {
    let bed = Bed::new(formats::SAMPLES);
    let clean = bed.clean();
    let refuse = Fault::Refuse { lasts: Some(Duration::from_millis(50)) };
    let together = [
        Rule::new(refuse),
        Rule::new(Fault::Reset { at: None }),
        Rule::new(Fault::Reset { at: Some(40) }),
        Rule::new(Fault::HangUp { at: None }),
        Rule::new(Fault::HangUp { at: Some(40) }),
        Rule::new(status(500, None, false)),
        Rule::new(status(503, None, false)),
        Rule::new(status(429, Some(1), false)),
        parts(Fault::ErrorBody {}),
        Rule::new(Fault::Expired { status: None }),
        Rule::new(redirect()),
        Rule::new(Fault::WrongRange {}),
        Rule::new(Fault::NoRange {}),
        Rule::new(Fault::WholeObject {}),
        parts(Fault::Short { at: None, told: true }),
        parts(Fault::Short { at: None, told: false }),
        Rule::new(silence()),
        Rule::new(Fault::Drip { rate: 50_000 }),
        Rule::new(Fault::RepeatPage {}),
    ];
    let share = 0.05 / together.len() as f64;
    let rules = together.map(|rule| Rule { share, requests: None, ..rule });
    let run = bed.run(&Faults { rules: rules.into(), ..Faults::default() }, 8);
    same(&run, &clean.seen).unwrap();
    let more = run.requests - clean.requests;
    println!("{} requests, {more} more for {:?}", clean.requests, run.injected);
    assert!(more * 4 <= clean.requests, "{more} more for {}", clean.requests);
}

/// A wrong byte of the right number of bytes is nothing that a length or a range could tell: the
/// samples are of other bytes, or can't be used, and no request is repeated.
#[test]
fn altered_bytes_are_not_noticed_by_their_answers() {
    let bed = Bed::new(3);
    let clean = bed.clean().seen;
    for fault in [Fault::Flip { at: None }, Fault::RepeatHalf {}] {
        let run = bed.run(&rules(of(IMAGES, Rule::new(fault))), 8);
        assert!(!run.injected.is_empty());
        assert!(run.seen != clean, "the images are not what they were");
        assert!(!matches!(run.end, End::Failed(Error::Fetch(_))), "{:?}", run.end);
        assert_eq!(run.report.map(|report| report.retries), Some(0));
    }
}
