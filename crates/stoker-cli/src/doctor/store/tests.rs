use stoker_engine::error::FetchError;

use super::super::finding::Level;
use super::*;

#[track_caller]
fn says(finding: &Finding, level: Level, words: &[&str]) {
    assert_eq!(finding.level, level, "{}", finding.words);
    for word in words {
        assert!(finding.words.contains(word), "{word:?} is not in {:?}", finding.words);
    }
}

#[test]
fn hosts_and_ports_are_found_in_addresses() {
    let of = |address: &str| host_and_port(address).map(|(host, port)| format!("{host} {port}"));
    assert_eq!(
        of("https://bucket.s3.eu-west-1.amazonaws.com").unwrap(),
        "bucket.s3.eu-west-1.amazonaws.com 443"
    );
    assert_eq!(of("http://127.0.0.1:9000/bucket").unwrap(), "127.0.0.1 9000");
    assert_eq!(of("http://[::1]:9000/bucket").unwrap(), "::1 9000");
    assert_eq!(of("http://[::1]/bucket").unwrap(), "::1 80");
    assert_eq!(of("nonsense"), None);
}

#[test]
fn a_name_that_only_a_proxy_knows_is_enough_where_the_store_answers() {
    let address = "https://no-such-host.invalid/bucket".to_owned();
    let door = Door { address, region: None, unsigned: true };
    let words = ["no-such-host.invalid is not known to the name server"];
    says(&name(&door, false), Level::Failure, &words);
    says(&name(&door, true), Level::Ok, &[words[0], "that of the proxy"]);
}

#[test]
fn clocks_are_compared() {
    let at = |ahead: i64| {
        let greeting = Greeting { time: Some(1_000_000), took: Duration::ZERO };
        clock(&greeting, 1_000_000 + ahead)
    };
    says(&at(3), Level::Ok, &["3 s ahead of"]);
    says(&at(-299), Level::Ok, &["4 minutes behind"]);
    says(&at(-300), Level::Warning, &["5 minutes behind", "chrony"]);
    says(&at(900), Level::Failure, &["15 minutes ahead", "refused"]);
    let silent = Greeting { time: None, took: Duration::ZERO };
    says(&clock(&silent, 0), Level::Ok, &["does not tell"]);
}

#[test]
fn credentials_that_end_in_mid_run_are_warned_of() {
    let of = |life: Option<u64>, temporary, renews| {
        let life = life.map(|minutes| Duration::from_secs(60 * minutes));
        let source = "profile \"dev\"".to_owned();
        credentials(&Ok(Some(Credentials { source, life, temporary, renews })), false)
    };
    says(&of(None, false, false), Level::Ok, &["of profile \"dev\""]);
    says(&of(Some(40), true, true), Level::Ok, &["end in 40 minutes, and are had anew"]);
    says(&of(Some(40), true, false), Level::Warning, &["can't be had anew", "use a role"]);
    says(&of(Some(24 * 60), true, false), Level::Ok, &["24 hours"]);
    says(&of(None, true, false), Level::Warning, &["session token", "nobody says when"]);
    says(&credentials(&Ok(None), true), Level::Ok, &["unsigned"]);
}

#[test]
fn a_bucket_in_another_region_is_told_with_the_key_to_set() {
    let store = Location::parse("s3://photos/train.jsonl").unwrap();
    let met = Met { store, region: Some("us-east-1".to_owned()) };
    let now = |region: &str| region_of(&met, region);
    says(&now("us-east-1"), Level::Ok, &["photos is asked in us-east-1"]);
    let words =
        ["photos is in eu-west-1, and was asked in us-east-1", "fetch.region = \"eu-west-1\""];
    says(&now("eu-west-1"), Level::Warning, &words);
}

fn region_of(met: &Met, region: &str) -> Finding {
    super::region(met, Some(region.to_owned())).unwrap()
}

fn pace(at_once: usize, first_byte: f64) -> Pace {
    Pace {
        at_once,
        reads: 100,
        bytes: (10 << 20) * at_once as u64,
        took: Duration::from_secs(1),
        first_byte_p50: Some(first_byte),
        first_byte_p95: Some(3.0 * first_byte),
        throttled: 0,
        failed: 0,
        error: None,
    }
}

#[test]
fn paces_are_told_and_slow_ones_warned_of() {
    let words = ["first byte after 20 ms (p95 60 ms)", "10.0 MiB/s to 1, 40.0 MiB/s to 4"];
    says(&judged(&[pace(1, 0.02), pace(4, 0.02)]), Level::Ok, &words);
    says(&judged(&[pace(1, 0.25)]), Level::Warning, &["far away", "train where the data is"]);
    let busy = Pace { throttled: 3, ..pace(4, 0.02) };
    says(&judged(&[pace(1, 0.02), busy]), Level::Warning, &["patience 3 times", "prefixes"]);
    let error = Error::Fetch(Box::new(FetchError {
        kind: FetchErrorKind::Transient,
        range: None,
        attempts: 2,
        status: Some(503),
        reason: "the store failed".to_owned(),
        hint: None,
        request_id: None,
        uri: "s3://photos/a.jpg".to_owned(),
    }));
    let some = Pace { failed: 2, error: Some(error.clone()), ..pace(1, 0.02) };
    says(&judged(&[some]), Level::Warning, &["2 reads failed", "the store failed"]);
    let none = Pace { first_byte_p50: None, error: Some(error), ..pace(1, 0.02) };
    says(&judged(&[none]), Level::Failure, &["the store failed"]);
    let silent = Pace { first_byte_p50: None, ..pace(1, 0.02) };
    says(&judged(&[silent]), Level::Failure, &["nothing came"]);
}
