//! Decides which request meets which fault, and counts those that have happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use glob::Pattern;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::request::Asked;
use super::rule::{Fault, Rule};
use super::throttle::Buckets;
use super::{Faults, InvalidFaults};

/// The script and all that is remembered for it.
#[derive(Debug)]
pub(crate) struct Injector {
    faults: Faults,
    /// The compiled patterns of the rules.
    keys: Vec<Option<Pattern>>,
    /// How often each target was asked for, by its hash.
    asked: Mutex<HashMap<u64, u64>>,
    injected: Mutex<BTreeMap<String, u64>>,
    replaced: Mutex<BTreeSet<String>>,
    throttle: Mutex<Buckets>,
    since: Instant,
}

impl Injector {
    pub(crate) fn new(faults: &Faults) -> Result<Self, InvalidFaults> {
        let faults = faults.clone().checked()?;
        let compile = |rule: &Rule| rule.keys.as_deref().map(Pattern::new).transpose();
        let keys = faults.rules.iter().map(compile).collect::<Result<_, _>>();
        Ok(Self {
            keys: keys.map_err(|error| InvalidFaults(error.to_string()))?,
            throttle: Mutex::new(Buckets::new(faults.throttle.clone())),
            faults,
            asked: Mutex::default(),
            injected: Mutex::default(),
            replaced: Mutex::default(),
            since: Instant::now(),
        })
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What a request meets.
    pub(super) fn decide(&self, asked: &Asked) -> Option<Fault> {
        if self.faults.rules.is_empty() {
            return None;
        }
        let target = asked.target();
        let number = {
            let mut times = lock(&self.asked);
            let times = times.entry(xxh3_64(target.as_bytes())).or_default();
            *times += 1;
            *times
        };
        let hits = |(index, rule): &(usize, &Rule)| {
            self.matches(*index, rule, asked, number) && self.draws(*index, rule, &target, number)
        };
        self.faults.rules.iter().enumerate().find(hits).map(|(_, rule)| rule.fault.clone())
    }

    fn matches(&self, index: usize, rule: &Rule, asked: &Asked, number: u64) -> bool {
        let within = |(first, last): (u64, u64), number| (first..=last).contains(&number);
        let header = |(name, value): &(String, String)| {
            asked.headers.get(name.as_str()).is_some_and(|it| it.as_bytes() == value.as_bytes())
        };
        let later = asked.page.is_some();
        rule.fault.fits(asked.operation, asked.range.is_some() || later)
            && (rule.operations.is_empty() || rule.operations.contains(&asked.operation))
            && self.keys[index].as_ref().is_none_or(|keys| keys.matches(&asked.path))
            && rule.requests.is_none_or(|requests| within(requests, number))
            && rule.bytes.is_none_or(|bytes| asked.first_byte().is_some_and(|it| within(bytes, it)))
            && rule.header.as_ref().is_none_or(header)
            && (later || !rule.later_pages)
    }

    /// By a hash as uniform as a generator's first draw would be.
    fn draws(&self, index: usize, rule: &Rule, target: &str, number: u64) -> bool {
        let drawn = format!("{index}\n{number}\n{target}");
        let hash = xxh3_64_with_seed(drawn.as_bytes(), self.faults.seed);
        ((hash >> 11) as f64) < rule.share * (1_u64 << 53) as f64
    }

    /// Whether the throttle lets a request for `bucket/key` through.
    pub(super) fn admits(&self, path: &str) -> bool {
        lock(&self.throttle).admit(path, self.since.elapsed())
    }

    /// Counts a fault that happened.
    pub(super) fn count(&self, name: &str) {
        *lock(&self.injected).entry(name.to_owned()).or_default() += 1;
    }

    /// What happened so far, by name.
    pub(crate) fn injected(&self) -> BTreeMap<String, u64> {
        lock(&self.injected).clone()
    }

    /// The object at `bucket/key` is another one from now on.
    pub(super) fn replace(&self, path: &str) {
        if lock(&self.replaced).insert(path.to_owned()) {
            self.count(&Fault::Replaced {}.name());
        }
    }

    pub(super) fn is_replaced(&self, path: &str) -> bool {
        lock(&self.replaced).contains(path)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;

    use super::super::rule::Operation;
    use super::*;

    fn asked(path: &str, range: Option<&str>) -> Asked {
        Asked {
            operation: Operation::Get,
            path: path.to_owned(),
            range: range.map(str::to_owned),
            page: None,
            headers: HeaderMap::new(),
        }
    }

    fn injector(seed: u64, rules: Vec<Rule>) -> Injector {
        Injector::new(&Faults { seed, rules, ..Faults::default() }).unwrap()
    }

    fn reset() -> Fault {
        Fault::Reset { at: None }
    }

    #[test]
    fn the_order_of_other_requests_does_not_change_what_a_request_meets() {
        let half = || vec![Rule { share: 0.5, ..Rule::new(reset()) }];
        let keys: Vec<String> = (0..200).map(|number| format!("b/{number}")).collect();
        let met = |injector: &Injector, keys: &mut dyn Iterator<Item = &String>| {
            let met = keys.map(|key| (key.clone(), injector.decide(&asked(key, None)).is_some()));
            met.collect::<BTreeMap<_, _>>()
        };
        let (one, other) = (injector(3, half()), injector(3, half()));
        for _ in 0..2 {
            let forward = met(&one, &mut keys.iter());
            assert_eq!(forward, met(&other, &mut keys.iter().rev()));
            let hit = forward.values().filter(|hit| **hit).count();
            assert!((70..130).contains(&hit), "{hit} of 200");
        }
        let first = met(&injector(3, half()), &mut keys.iter());
        assert_ne!(first, met(&one, &mut keys.iter()), "a repeated request draws anew");
        assert_ne!(
            first,
            met(&injector(4, half()), &mut keys.iter()),
            "another seed, another draw"
        );
    }

    #[test]
    fn a_share_is_hit_as_often_as_it_says_and_rules_draw_on_their_own() {
        let rules = vec![
            Rule { share: 0.05, ..Rule::new(reset()) },
            Rule { share: 0.05, ..Rule::new(Fault::ErrorBody {}) },
        ];
        let injector = injector(1, rules);
        let met = (0..20_000).map(|number| injector.decide(&asked(&format!("b/{number}"), None)));
        let (mut resets, mut bodies) = (0, 0);
        for fault in met.flatten() {
            if fault == reset() { resets += 1 } else { bodies += 1 }
        }
        assert!((900..1100).contains(&resets), "{resets} of 20000");
        // Of those that the first has left.
        assert!((850..1050).contains(&bodies), "{bodies} of 20000");
    }

    #[test]
    fn a_rule_hits_what_it_says() {
        let rule = || Rule::new(reset());
        let hits = |rule: Rule, asked: &Asked| injector(0, vec![rule]).decide(asked).is_some();
        let image = asked("b/images/1.jpg", None);
        let keys = |keys: &str| Rule { keys: Some(keys.to_owned()), ..rule() };
        assert!(hits(keys("*/images/*"), &image) && hits(keys("b/*.jpg"), &image));
        assert!(!hits(keys("images/*"), &image) && !hits(keys("b/?.jpg"), &image));

        let part = asked("b/k", Some("100-199"));
        let bytes = |first, last| Rule { bytes: Some((first, last)), ..rule() };
        assert!(hits(bytes(100, 100), &part) && hits(bytes(0, 0), &image));
        assert!(!hits(bytes(0, 99), &part) && !hits(bytes(101, 200), &part));

        let header = |value: &str| Rule { header: Some(("X-Test".into(), value.into())), ..rule() };
        let mut marked = asked("b/k", None);
        marked.headers.insert("x-test", "1".parse().unwrap());
        assert!(hits(header("1"), &marked) && !hits(header("2"), &marked));
        assert!(!hits(header("1"), &part));

        let of = |operation| Rule { operations: vec![operation], ..rule() };
        assert!(hits(of(Operation::Get), &image) && !hits(of(Operation::Head), &image));
        assert!(!hits(Rule { later_pages: true, ..rule() }, &image));
        // It would change nothing of a whole object.
        assert!(hits(Rule::new(Fault::WrongRange {}), &part));
        assert!(!hits(Rule::new(Fault::WrongRange {}), &image));

        let second = injector(0, vec![Rule { requests: Some((2, 2)), ..rule() }]);
        let met = [&image, &part, &image, &image, &part].map(|it| second.decide(it).is_some());
        assert_eq!(met, [false, false, true, false, true]);
    }
}
