//! Faults: what requests meet in place of a good answer.
//!
//! [`Faults`] is the script: rules that say which requests meet which [`Fault`], and what is wrong
//! with the server as a whole (its connections, its rate, its pages). Whether a rule with a share
//! hits a request is a pure function of the seed, the rule, what is asked for and how often that
//! was asked for before, as everything is that requests meet here: the order in which others
//! arrive changes nothing.
//!
//! A fault is made where it belongs. What the store says (`answer`) is said in its place; what the
//! store does with the request (another version, no range, the same page again) is done in
//! `service`; what happens on the way (`damage`) happens to a good answer's head and body, and
//! what happens to the connection (`connection`) to the socket under hyper. Each is counted by its
//! name when it has happened, and not before: a rule that hits a read of a missing object hurts
//! nobody.

mod answer;
mod connection;
mod damage;
mod injector;
mod request;
mod rule;
mod script;
mod throttle;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

pub use rule::{Fault, Operation, Rule};
pub use throttle::Throttle;

pub(crate) use connection::connection;
pub(crate) use request::Meeting;
pub(crate) use script::Script;

/// Which requests go wrong, and how. The default is a store without faults.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct Faults {
    /// Chooses what the shares of the rules hit.
    pub seed: u64,
    /// Of those that hit a request, the first is what it meets.
    pub rules: Vec<Rule>,
    /// How much a store takes of requests before it answers 503.
    pub throttle: Option<Throttle>,
    /// How long a connection may be idle before the server closes it.
    #[serde(rename = "idle-seconds", deserialize_with = "seconds")]
    pub idle: Option<Duration>,
    /// After how many requests a connection is closed, with `Connection: close`.
    pub requests_per_connection: Option<u64>,
    /// Most entries of a page of a listing, in place of 1000.
    pub page_size: Option<usize>,
}

impl Faults {
    /// Faults as TOML says them.
    pub fn from_toml(text: &str) -> Result<Self, InvalidFaults> {
        toml::from_str(text)
            .map_err(|error| InvalidFaults(error.to_string()))
            .and_then(Self::checked)
    }

    /// Faults as JSON says them.
    pub fn from_json(text: &str) -> Result<Self, InvalidFaults> {
        let read = serde_json::from_str(text);
        read.map_err(|error| InvalidFaults(error.to_string())).and_then(Self::checked)
    }

    fn checked(self) -> Result<Self, InvalidFaults> {
        for (number, rule) in self.rules.iter().enumerate() {
            let wrong = |reason| InvalidFaults(format!("rule {}: {reason}", number + 1));
            rule.check().map_err(wrong)?;
        }
        let positive = |what: &str, number: f64| {
            let reason = || InvalidFaults(format!("{what} is {number}, and has to be above 0"));
            (number > 0.0).then_some(()).ok_or_else(reason)
        };
        if let Some(throttle) = &self.throttle {
            positive("throttle.rate", throttle.rate)?;
        }
        if let Some(requests) = self.requests_per_connection {
            positive("requests-per-connection", requests as f64)?;
        }
        if let Some(size) = self.page_size {
            positive("page-size", size as f64)?;
        }
        Ok(self)
    }
}

/// Faults that can't be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidFaults(String);

impl fmt::Display for InvalidFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the faults can't be used: {}", self.0.trim_end())
    }
}

impl std::error::Error for InvalidFaults {}

/// A duration as a number of seconds.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = Option::<f64>::deserialize(deserializer)?;
    let duration = |seconds| Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom);
    seconds.map(duration).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_all_there_is_in_toml_as_in_json() {
        let toml = r#"
            seed = 7
            idle-seconds = 0.5
            requests-per-connection = 100
            page-size = 10
            throttle = { rate = 5500, depth = 1, doubles-after-seconds = 60 }

            [[rules]]
            keys = "*/images/*"
            operations = ["get", "head"]
            requests = [1, 3]
            bytes = [0, 1023]
            header = ["x-test", "yes"]
            share = 0.05
            fault = { kind = "status", status = 503, retry-after = 2, as-date = true }

            [[rules]]
            later-pages = true
            fault = { kind = "stall", at = 1000 }
        "#;
        let json = r#"{
            "seed": 7, "idle-seconds": 0.5, "requests-per-connection": 100, "page-size": 10,
            "throttle": {"rate": 5500, "depth": 1, "doubles-after-seconds": 60},
            "rules": [
                {"keys": "*/images/*", "operations": ["get", "head"], "requests": [1, 3],
                 "bytes": [0, 1023], "header": ["x-test", "yes"], "share": 0.05,
                 "fault": {"kind": "status", "status": 503, "retry-after": 2, "as-date": true}},
                {"later-pages": true, "fault": {"kind": "stall", "at": 1000}}]}"#;
        let expected = Faults {
            seed: 7,
            rules: vec![
                Rule {
                    keys: Some("*/images/*".into()),
                    operations: vec![Operation::Get, Operation::Head],
                    requests: Some((1, 3)),
                    bytes: Some((0, 1023)),
                    header: Some(("x-test".into(), "yes".into())),
                    share: 0.05,
                    ..Rule::new(Fault::Status { status: 503, retry_after: Some(2), as_date: true })
                },
                Rule {
                    later_pages: true,
                    ..Rule::new(Fault::Stall { at: Some(1000), lasts: None })
                },
            ],
            throttle: Some(Throttle {
                rate: 5500.0,
                depth: 1,
                doubles_after: Some(Duration::from_mins(1)),
            }),
            idle: Some(Duration::from_millis(500)),
            requests_per_connection: Some(100),
            page_size: Some(10),
        };
        assert_eq!(Faults::from_toml(toml).unwrap(), expected);
        assert_eq!(Faults::from_json(json).unwrap(), expected);
        assert_eq!(Faults::from_toml("").unwrap(), Faults::default());
    }

    /// The guide tells all kinds and all keys, and its example is one.
    #[test]
    fn the_guide_is_right() {
        let guide = include_str!("../../../../docs/guides/faults.md");
        let example = guide.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        assert_eq!(Faults::from_toml(example).unwrap().rules.len(), 3);
        let listed = |start: &str| -> Vec<String> {
            let table = guide.split(start).nth(1).unwrap().split("\n\n").next().unwrap();
            let names = table.lines().skip(2).map(|line| line.split('`').nth(1).unwrap());
            names.map(|name| format!("`{name}`")).collect()
        };
        for (text, start) in [
            ("[[rules]]\nfault = { kind = \"?\" }", "| `kind` | "),
            ("[[rules]]\nfault = { kind = \"reset\" }\n\"?\" = 1", "that it says:\n\n| key | "),
            ("\"?\" = 1", "beside the rules:\n\n| key | "),
        ] {
            let error = Faults::from_toml(text).unwrap_err().to_string();
            let all: Vec<_> = error.split('`').skip(3).step_by(2).collect();
            let all: Vec<_> = all.iter().map(|name| format!("`{name}`")).collect();
            let known = |name: &&String| !["`fault`", "`seed`", "`rules`"].contains(&name.as_str());
            let all: Vec<_> = all.iter().filter(known).cloned().collect();
            let mut listed = listed(start);
            listed.sort();
            let mut all = all;
            all.sort();
            assert_eq!(listed, all, "{error}");
        }
    }

    #[test]
    fn what_is_wrong_in_a_document_is_said() {
        let rule = |text: &str| format!("[[rules]]\n{text}");
        for (text, says) in [
            ("rule = 1".to_owned(), "unknown field `rule`"),
            (
                rule("fault = { kind = \"resett\" }"),
                "unknown variant `resett`, expected one of `ref",
            ),
            (rule("fault = { kind = \"error-body\", at = 3 }"), "unknown field `at`"),
            (rule("fault = { kind = \"stall\", seconds = -1 }"), "negative"),
            (rule("share = 1.5\nfault = { kind = \"reset\" }"), "rule 1: the share is 1.5"),
            (rule("keys = \"a[\"\nfault = { kind = \"reset\" }"), "rule 1: the pattern a["),
            (rule("fault = { kind = \"status\", status = 200 }"), "rule 1: 200 is no status of an"),
            (
                rule("header = [\"a b\", \"c\"]\nfault = { kind = \"reset\" }"),
                "rule 1: \"a b\" is no",
            ),
            (rule("fault = { kind = \"drip\", rate = 0 }"), "rule 1: the rate is 0"),
            (
                rule("operations = [\"list\"]\nfault = { kind = \"flip\" }"),
                "rule 1: flip can't happen to list",
            ),
            ("throttle = { rate = 0 }".to_owned(), "throttle.rate is 0"),
            ("page-size = 0".to_owned(), "page-size is 0"),
        ] {
            let error = Faults::from_toml(&text).unwrap_err().to_string();
            assert!(
                error.contains(says) && error.starts_with("the faults can't"),
                "{text}: {error}"
            );
        }
        let error = Faults::from_json("{\"rules\": 3}").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
