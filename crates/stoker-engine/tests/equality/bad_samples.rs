//! What becomes of samples that can not be used.

use stoker_engine::error::{DatasetError, DatasetErrorKind, Error, Outcome};
use stoker_engine::metrics::Room;
use stoker_engine::testing::{IN_DECODING, IN_MEASURING, IN_PARSING};

use super::*;

#[test]
fn bad_samples_are_replaced_or_neutralised_and_listed() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "plan": {"shuffle": "none", "epochs": 1}, "pack": {"batch-size": 4},
        }),
    );
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let seen = drain(&loader, usize::MAX);
    let bad: Vec<String> = seen.iter().flat_map(|batch| batch.bad.clone()).collect();
    for (row, code) in common::BAD {
        let line = format!("train.jsonl:{}", row + 1);
        let listed = bad.iter().any(|bad| bad.contains(code) && bad.ends_with(&line));
        assert!(listed, "row {row} should be listed with {code} and {line}: {bad:#?}");
        let rows: Vec<u64> =
            seen.iter().flat_map(|batch| &batch.samples).map(|sample| sample.1).collect();
        let neutralised = code == "corrupt";
        assert_eq!(rows[row] == row as u64, neutralised, "row {row} ({code})");
    }
    let report = loader.report();
    assert_eq!((report.neutralised, report.replaced), (1, bad.len() as u64 - 1));
    assert_eq!(report.bad_samples, bad);
    let of = |code: &str| report.flaws.iter().find(|flaw| flaw.code == code).unwrap();
    assert_eq!(report.flaws.iter().map(|flaw| flaw.samples).sum::<u64>(), bad.len() as u64);
    assert_eq!((of("corrupt").samples, of("corrupt").outcome), (1, Outcome::Neutralised));
    assert_eq!(of("missing").outcome, Outcome::Replaced);
    assert!(report.to_string().contains("  1 neutralised as image/corrupt\n"), "{report}");

    let batch = &seen[35 / 4];
    let labels = &batch.tensors.iter().find(|t| t.0 == "labels").unwrap().2;
    let row = labels.len() / 4;
    let learned =
        labels[3 * row..].as_chunks::<8>().0.iter().any(|label| i64::from_ne_bytes(*label) != -100);
    assert!(!learned, "a neutralised sample teaches nothing");
}

/// Whatever of a sample's data makes a room panic, wherever that is: one bad sample, by name.
#[test]
fn a_panic_over_one_sample_is_a_bad_sample_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let lines = std::fs::read_to_string(&source).unwrap();
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    let photo = std::fs::read(folder.path().join("images/000000.jpg")).unwrap();
    let photo = [photo, IN_DECODING.as_bytes().to_vec()].concat();
    std::fs::write(folder.path().join("panic.jpg"), photo).unwrap();
    let chat = common::chat("images/000000.jpg", "assistant");
    lines[5] = format!("{},{IN_PARSING}", chat.strip_suffix('}').unwrap());
    lines[13] = chat.replace("Hard to say.", IN_MEASURING);
    lines[21] = common::chat("panic.jpg", "assistant");
    std::fs::write(&source, lines.join("\n")).unwrap();
    let more = json!({
        "plan": {"shuffle": "none", "epochs": 1}, "pack": {"batch-size": 4},
    });
    let loader = Loader::open(made(&source, more.clone()), rank(0, 1)).unwrap();
    let seen = drain(&loader, usize::MAX);
    assert_eq!(seen, reference(made(&source, more), 0..seen.len() as u64));
    let report = loader.report();
    let panics = report.flaws.iter().filter(|flaw| flaw.code == "panic");
    let panics: Vec<_> = panics.map(|flaw| (flaw.room, flaw.outcome)).collect();
    let expected = [
        (Room::Dataset, Outcome::Replaced),
        (Room::Image, Outcome::Neutralised),
        (Room::Text, Outcome::Replaced),
    ];
    assert_eq!(panics, expected);
    for (row, said) in [(6, "in parsing"), (14, "in measuring"), (22, "in decoding")] {
        let line = format!("train.jsonl:{row}");
        let told = |bad: &String| bad.contains(said) && bad.ends_with(&line);
        assert!(report.bad_samples.iter().any(told), "{line}: {:#?}", report.bad_samples);
    }
}

#[test]
fn the_policy_to_stop_names_the_first_bad_sample() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "plan": {"shuffle": "none"}, "pack": {"batch-size": 4}, "engine": {"on-bad-sample": "stop"},
        }),
    );
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    for _ in 0..2 {
        let error = loader.next(PATIENCE).unwrap_err().to_string();
        assert!(
            error.contains("sample 0/3 can't be used") && error.ends_with("train.jsonl:4"),
            "{error}"
        );
    }
}

#[test]
fn too_many_bad_samples_stop_the_run_with_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({
            "plan": {"shuffle": "none"}, "pack": {"batch-size": 4}, "engine": {"bad-sample-limit": 0.03},
        }),
    );
    let loader = Loader::open(recipe, rank(0, 1)).unwrap();
    let error = loop {
        match loader.next(PATIENCE) {
            Ok(next) => assert!(matches!(next, Next::Batch(_))),
            Err(error) => break error,
        }
    };
    let Error::Dataset(DatasetError { kind: DatasetErrorKind::BadSamples(listed), .. }) = &error
    else {
        panic!("{error}")
    };
    let error = error.to_string();
    assert!(error.starts_with(&format!("{} bad samples among ", listed.len())), "{error}");
    assert!(listed[..10].iter().all(|bad| error.contains(&bad.to_string())), "{error}");
    assert!(error.contains("more than engine.bad-sample-limit = 0.03 allows"), "{error}");
    assert!(error.contains("missing") && error.contains("aspect-ratio"), "{error}");
}

/// What could not be handed over was not delivered.
#[test]
fn the_state_after_too_many_bad_samples_is_that_of_the_last_batch_that_was_had() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = |limit: f64| {
        let more = json!({"pack": {"batch-size": 4}, "engine": {"bad-sample-limit": limit}});
        made(&source, more)
    };
    let loader = Loader::open(recipe(0.03), rank(0, 1)).unwrap();
    let mut had = 0;
    while loader.next(PATIENCE).is_ok() {
        had += 1;
    }
    assert_eq!(loader.state().batches(), had);
    let resumed = Loader::open(recipe(0.5), rank(0, 1)).unwrap();
    resumed.load_state(&loader.state()).unwrap();
    assert_eq!(drain(&resumed, 2), reference(recipe(0.5), had..had + 2));
}

/// The bad samples of one rank are a share of that rank's samples, also after resuming.
#[test]
fn resuming_on_many_ranks_does_not_forgive_bad_samples() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let recipe = made(
        &source,
        json!({"pack": {"batch-size": 4}, "engine": {"bad-sample-limit": 0.05, "workers": 1}}),
    );
    let most = 600;
    let steps_until_error = |loader: &Loader| (0..most).find(|_| loader.next(PATIENCE).is_err());
    let straight = Loader::open(recipe.clone(), rank(0, 8)).unwrap();
    let cursors: Vec<_> =
        std::iter::from_fn(|| straight.next(PATIENCE).is_ok().then(|| straight.state()))
            .take(most)
            .collect();
    assert!(cursors.len() < most, "the limit is met");
    let resumed = Loader::open(recipe, rank(0, 8)).unwrap();
    resumed.load_state(&cursors[cursors.len() - 1]).unwrap();
    assert_eq!(steps_until_error(&resumed), Some(0));
}

/// A store that does not tell sizes: one answer for each connection, which ends with it.
fn serve_without_sizes(store: &std::net::TcpListener, folder: &Path) {
    use std::io::{BufRead, BufReader, Write};
    for connection in store.incoming() {
        let mut connection = connection.unwrap();
        let lines = BufReader::new(connection.try_clone().unwrap()).lines();
        let head: Vec<_> =
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
        let Some(key) = head.first().and_then(|line| line.split(' ').nth(1)) else { continue };
        let key = key.trim_start_matches("/bucket/");
        let (status, body) = match std::fs::read(folder.join(key)) {
            Ok(body) => ("200 OK", body),
            Err(_) => ("404 Not Found", Vec::new()),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
            body.len()
        );
        let end = if body.is_empty() { "\r\n" } else { "\r\n0\r\n\r\n" };
        let answer = [head.as_bytes(), &body, end.as_bytes()].concat();
        // Who gave up on the answer does not read it.
        let _sent = connection.write_all(&answer);
    }
}

/// 16 MiB is what an image of untold size may have, not what it has.
#[test]
fn images_of_untold_size_are_judged_by_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let store = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let recipe = made(
        &source,
        json!({
            "dataset": {"media-root": "s3://bucket/"},
            "fetch": {
                "endpoint": format!("http://{}", store.local_addr().unwrap()),
                "anonymous": true,
            },
            "image": {"max-bytes": "50kB"}, "vision": {"pixels": "u8"},
            "engine": {"memory": "16MiB", "workers": 1},
        }),
    );
    let served = folder.path().to_owned();
    let thread = std::thread::Builder::new().name("store".into());
    thread.spawn(move || serve_without_sizes(&store, &served)).unwrap();
    let loader = Loader::open(recipe.clone(), rank(0, 1)).unwrap();
    assert_eq!(drain(&loader, 3), reference(recipe, 0..3));
}

/// Hosts on the web come and go, and no operator can mend one.
#[test]
fn a_web_server_that_is_gone_costs_the_samples_that_name_it_and_not_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let source = common::dataset(folder.path());
    let lines = std::fs::read_to_string(&source).unwrap();
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    // Names that end so are never given to anybody (RFC 6761).
    lines[5] = common::chat("https://gone.invalid/a.jpg?key=secret", "assistant");
    std::fs::write(&source, lines.join("\n")).unwrap();
    let more = json!({
        "dataset": {"allow-http": true},
        "plan": {"shuffle": "none", "epochs": 1}, "pack": {"batch-size": 4},
        "fetch": {"attempts": 2, "deadline": "3s"},
    });
    let loader = Loader::open(made(&source, more.clone()), rank(0, 1)).unwrap();
    let seen = drain(&loader, usize::MAX);
    let bad = seen.iter().flat_map(|batch| &batch.bad).find(|bad| bad.ends_with("train.jsonl:6"));
    let bad = bad.unwrap();
    assert!(bad.contains("[fetch/unreachable]") && bad.contains("https://gone.invalid"), "{bad}");
    assert!(!bad.contains("secret"), "{bad}");
    // A store that fails is another matter, and the reference says the same of both.
    assert_eq!(reference(made(&source, more), 0..seen.len() as u64), seen);
}
