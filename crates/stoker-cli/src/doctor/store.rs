//! The stores: their names, their clocks, who we are there, and how fast they are.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use serde_json::json;
use stoker_engine::error::{Bytes, Error, FetchErrorKind};
use stoker_engine::fetch::{Credentials, Door, Greeting, Pace};
use stoker_engine::loader::{Data, Examination};
use stoker_engine::recipe::Recipe;
use stoker_engine::sample::Location;

use super::finding::Finding;
use crate::outcome::{self, FAILED};

/// By how much a clock may be wrong: S3 refuses requests from a quarter of an hour on.
const SKEWED: i64 = 15 * 60;
const DRIFTING: i64 = 5 * 60;

/// Credentials that end sooner and can't be had anew are no use to a run.
const SOON: Duration = Duration::from_hours(12);

/// Seconds to the first byte from which on a store is slow: those of another continent, and of one
/// that is in trouble.
const SLOW_P50: f64 = 0.2;
const SLOW_P95: f64 = 1.0;

/// How often it is read from at once, for how long each time, and how much of it, at most.
const AT_ONCE: [usize; 3] = [1, 4, 16];
const MOST_AT_ONCE: usize = 64;
pub(super) const PROBE: Duration = Duration::from_millis(1500);
const MOST: u64 = 64 << 20;

/// What can be said of a store before anything is read; what of it is still to be compared later.
pub(super) struct Met {
    pub(super) store: Location,
    /// The region that was asked first.
    region: Option<String>,
}

/// Meets each store of a recipe: its name, whether it answers, its clock, who we are there.
pub(super) fn meet(
    examination: &Examination,
    now: i64,
    tell: &mut dyn FnMut(Finding) -> std::io::Result<()>,
) -> std::io::Result<Vec<Met>> {
    let mut met = Vec::new();
    for store in examination.stores() {
        let store = match store {
            Ok(store) => store,
            Err(reason) => {
                let hint = "check dataset.source and dataset.media-root";
                tell(Finding::failure("store", outcome::USAGE, reason, hint))?;
                continue;
            }
        };
        let door = match examination.door(&store) {
            Ok(Some(door)) => door,
            Ok(None) => continue,
            Err(error) => {
                tell(Finding::error("store", &error))?;
                continue;
            }
        };
        let greeting = examination.greeting(&store);
        tell(name(&door, greeting.is_ok()))?;
        tell(reached(&door, &greeting))?;
        if let Ok(greeting) = &greeting {
            tell(clock(greeting, now))?;
        }
        tell(credentials(&examination.credentials(&store), door.unsigned))?;
        met.push(Met { store, region: door.region });
    }
    if met.is_empty() && examination.stores().is_empty() {
        tell(Finding::ok("store", "local files: no name, no clock and no credentials are needed"))?;
    }
    Ok(met)
}

/// The host and the port of an address.
fn host_and_port(address: &str) -> Option<(String, u16)> {
    let (scheme, rest) = address.split_once("://")?;
    let authority = rest.split('/').next().filter(|authority| !authority.is_empty())?;
    let usual = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, usual),
    };
    Some((host.trim_matches(['[', ']']).to_owned(), port))
}

/// Whether its host has an address here. A store that answers all the same is reached by a proxy.
fn name(door: &Door, answers: bool) -> Finding {
    const CHECK: &str = "names";
    let Some((host, port)) = host_and_port(&door.address) else {
        return Finding::failure(
            CHECK,
            outcome::USAGE,
            "the endpoint is not a URL",
            "check fetch.endpoint",
        );
    };
    if host.parse::<std::net::IpAddr>().is_ok() {
        return Finding::ok(CHECK, format!("{host} is an address, and needs no name server"));
    }
    let since = Instant::now();
    match (host.as_str(), port).to_socket_addrs() {
        Ok(addresses) => {
            let (count, took) = (addresses.count(), since.elapsed().as_secs_f64());
            let figures = json!({"host": host, "addresses": count, "seconds": took});
            let words = format!("{host} has {count} addresses, told in {:.0} ms", took * 1e3);
            let finding = if took > 1.0 {
                Finding::warning(
                    CHECK,
                    words,
                    "the name server is slow: look into /etc/resolv.conf",
                )
            } else {
                Finding::ok(CHECK, words)
            };
            finding.with(figures)
        }
        Err(error) if answers => Finding::ok(
            CHECK,
            format!(
                "{host} is not known to the name server here ({error}), but to that of the proxy"
            ),
        ),
        Err(error) => Finding::failure(
            CHECK,
            FAILED,
            format!("{host} is not known to the name server ({error})"),
            "check fetch.endpoint, the region and /etc/resolv.conf; behind a proxy, its name server counts",
        ),
    }
}

fn reached(door: &Door, greeting: &Result<Greeting, Error>) -> Finding {
    const CHECK: &str = "store";
    match greeting {
        Ok(greeting) => {
            let took = greeting.took.as_secs_f64();
            let words =
                format!("{} answers, in {:.0} ms with a new connection", door.address, took * 1e3);
            Finding::ok(CHECK, words).with(json!({"address": door.address, "seconds": took}))
        }
        Err(error) => Finding::error(CHECK, error).with(json!({"address": door.address})),
    }
}

/// Both clocks; the way of the answer is less than what counts.
pub(super) fn clock(greeting: &Greeting, now: i64) -> Finding {
    const CHECK: &str = "clock";
    let Some(theirs) = greeting.time else {
        return Finding::ok(CHECK, "the store does not tell its time");
    };
    let ahead = now - theirs;
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    let words = match ahead.abs() {
        seconds @ ..120 => format!("{seconds} s {way} the store's"),
        seconds => format!("this machine's clock is {} minutes {way} the store's", seconds / 60),
    };
    let hint = "set it, and keep it right (chrony, systemd-timesyncd)";
    let finding = match ahead.abs() {
        SKEWED.. => {
            let words = format!("{words}: signed requests are refused from 15 minutes on");
            Finding::failure(CHECK, FAILED, words, hint)
        }
        DRIFTING.. => Finding::warning(CHECK, words, hint),
        _ => Finding::ok(CHECK, words),
    };
    finding.with(json!({"ahead_seconds": ahead}))
}

/// Where credentials come from and when they end; never what they are.
pub(super) fn credentials(found: &Result<Option<Credentials>, Error>, unsigned: bool) -> Finding {
    const CHECK: &str = "credentials";
    let Credentials { source, life, temporary, renews } = match found {
        Ok(None) if unsigned => {
            return Finding::ok(CHECK, "none: requests go unsigned (fetch.anonymous)");
        }
        Ok(None) => return Finding::ok(CHECK, "none are needed"),
        Err(error) => return Finding::error(CHECK, error),
        Ok(Some(credentials)) => credentials,
    };
    let hint = "for a run that is longer, use a role, web identity or a profile";
    let finding = match life {
        Some(life) if *renews => Finding::ok(
            CHECK,
            format!("of {source}; they end in {}, and are had anew before", told(*life)),
        ),
        Some(life) if *life < SOON => Finding::warning(
            CHECK,
            format!("of {source}; they end in {}, and can't be had anew", told(*life)),
            hint,
        ),
        Some(life) => Finding::ok(CHECK, format!("of {source}; they end in {}", told(*life))),
        None if *temporary && !renews => Finding::warning(
            CHECK,
            format!(
                "of {source}, with a session token: they end, nobody says when, and can't be had anew"
            ),
            hint,
        ),
        None => Finding::ok(CHECK, format!("of {source}")),
    };
    finding.with(json!({
        "source": source,
        "ends_in_seconds": life.map(|life| life.as_secs()),
        "temporary": temporary,
        "renewed": renews,
    }))
}

fn told(life: Duration) -> String {
    match life.as_secs() / 60 {
        minutes @ ..120 => format!("{minutes} minutes"),
        minutes => format!("{} hours", minutes / 60),
    }
}

/// Whether the stores were asked in their regions, now that they have answered.
pub(super) fn regions(examination: &Examination, met: &[Met]) -> Vec<Finding> {
    met.iter().filter_map(|met| region(met, examination.region(&met.store))).collect()
}

fn region(met: &Met, now: Option<String>) -> Option<Finding> {
    const CHECK: &str = "region";
    let (asked, now) = (met.region.as_deref()?, now?);
    let bucket = &met.store.authority;
    let finding = if asked == now {
        Finding::ok(CHECK, format!("{bucket} is asked in {asked}"))
    } else {
        Finding::warning(
            CHECK,
            format!("{bucket} is in {now}, and was asked in {asked} first"),
            &format!(
                "set fetch.region = \"{now}\"; and train there, as each byte from another region is \
                 slower and paid for"
            ),
        )
    };
    Some(finding.with(json!({"bucket": bucket, "asked": asked, "region": now})))
}

/// How fast the stores give the recipe's own data, to more and more requests at once.
pub(super) fn throughput(
    examination: &Examination,
    recipe: &Recipe,
    data: &Data,
    probe: Duration,
) -> Option<Finding> {
    const CHECK: &str = "throughput";
    let extents = match examination.extents(data) {
        Ok(extents) if extents.is_empty() => return None,
        Ok(extents) => extents,
        Err(error) => return Some(Finding::error(CHECK, &error)),
    };
    let most = (recipe.fetch.concurrency.max(1) as usize).min(MOST_AT_ONCE);
    let levels = AT_ONCE.iter().copied().filter(|at_once| *at_once < most).chain([most]);
    let mut paces = Vec::new();
    for at_once in levels {
        match examination.pace(&extents, at_once, probe, MOST) {
            Ok(pace) => paces.push(pace),
            Err(error) => return Some(Finding::error(CHECK, &error)),
        }
    }
    Some(judged(&paces))
}

/// What the paces say of a store.
pub(super) fn judged(paces: &[Pace]) -> Finding {
    const CHECK: &str = "throughput";
    let figures: Vec<_> = paces
        .iter()
        .map(|pace| {
            json!({
                "at_once": pace.at_once,
                "reads": pace.reads,
                "failed": pace.failed,
                "throttled": pace.throttled,
                "bytes_per_second": pace.bytes_per_second(),
                "first_byte_p50_seconds": pace.first_byte_p50,
                "first_byte_p95_seconds": pace.first_byte_p95,
            })
        })
        .collect();
    let error = paces.iter().find_map(|pace| pace.error.as_ref());
    // Of the fewest requests that brought anything: there nothing of ours is waited for.
    let first = paces.iter().find_map(|pace| Some((pace.first_byte_p50?, pace.first_byte_p95?)));
    let Some((p50, p95)) = first else {
        let finding = match error {
            Some(error) => Finding::error(CHECK, error),
            None => Finding::failure(CHECK, FAILED, "nothing came in time", "check the network"),
        };
        return finding.with(json!(figures));
    };
    let rates: Vec<_> = paces
        .iter()
        .map(|pace| format!("{}/s to {}", Bytes(pace.bytes_per_second() as u64), pace.at_once))
        .collect();
    let words = format!(
        "first byte after {:.0} ms (p95 {:.0} ms); {}",
        p50 * 1e3,
        p95 * 1e3,
        rates.join(", ")
    );
    let throttled: u64 = paces.iter().map(|pace| pace.throttled).sum();
    let finding = if let Some(error) = error {
        let failed: u64 = paces.iter().map(|pace| pace.failed).sum();
        let missing = matches!(error, Error::Fetch(it) if it.kind == FetchErrorKind::NotFound);
        let hint = if missing { "see what samples says" } else { "a run tries again, and waits" };
        Finding::warning(
            CHECK,
            format!("{words}; {failed} reads failed, the first so: {error}"),
            hint,
        )
    } else if throttled > 0 {
        let hint = "spread the objects over more prefixes, or pack them into shards";
        Finding::warning(CHECK, format!("{words}; it asked for patience {throttled} times"), hint)
    } else if p50 > SLOW_P50 || p95 > SLOW_P95 {
        let hint = "train where the data is, work further ahead (engine.prefetch), or keep a local cache \
                    (fetch.cache)";
        Finding::warning(CHECK, format!("{words}: it is far away, or slow"), hint)
    } else {
        Finding::ok(CHECK, words)
    };
    finding.with(json!(figures))
}

#[cfg(test)]
mod tests;
