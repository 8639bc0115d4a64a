//! `stoker verify`: what it finds, what it says of it, and how it ends.

use std::fs;

use serde_json::Value;

use super::{Store, texts};

/// Puts a data set with two bad samples beside the good one; gives the arguments that choose it.
fn with_bad_samples(store: &Store) -> [String; 2] {
    let data = store.folder.path().join("buckets/data");
    let text = fs::read_to_string(data.join("train.jsonl")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let missing = r#"{"messages": [{"role": "user", "content": [{"type": "image", "image":
        "no\u0007where.jpg"}]}, {"role": "assistant", "content": "A."}]}"#;
    let missing = missing.replace('\n', " ");
    lines[5] = "{\"messages\": [";
    lines[9] = &missing;
    fs::write(data.join("bad.jsonl"), lines.join("\n")).unwrap();
    ["--set".to_owned(), "dataset.source=s3://data/bad.jsonl".to_owned()]
}

#[test]
fn verify_says_nothing_against_good_data() {
    let store = Store::start();
    assert_eq!(store.output("verify", &[]), "0 bad among 24 samples (0.00 %)\n");
    let summary: Value = serde_json::from_str(&store.output("verify", &["--json"])).unwrap();
    assert_eq!((&summary["bad"], &summary["complete"]), (&0.into(), &true.into()));
}

#[test]
fn verify_lists_bad_samples_with_their_place_and_ends_with_3() {
    let store = Store::start();
    let bad = with_bad_samples(&store);
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    let (code, stdout, stderr) = texts(store.command("verify", &bad).output().unwrap());
    assert_eq!((code, stderr.as_str()), (Some(3), ""), "{stdout}");
    let lines: Vec<&str> = stdout.lines().collect();
    assert!(lines[0].starts_with("dataset 5  replaced  the line is not JSON: "), "{stdout}");
    assert!(lines[0].ends_with(": s3://data/bad.jsonl:6"), "{stdout}");
    assert!(lines[1].starts_with("dataset 9  replaced  ") && lines[1].contains("[fetch/missing]"));
    assert!(!stdout.contains('\x07'), "data does not drive the terminal");
    let summary = "\n\
        dataset  reason            in a run  samples\n\
        dataset  dataset/not-json  replaced        1\n\
        dataset  fetch/missing     replaced        1\n\
        \n2 bad among 24 samples (8.33 %)\n";
    assert!(stdout.ends_with(summary), "{stdout}");
    let strict = [&bad[..], &["--set", "engine.bad-sample-limit=0.001"]].concat();
    let (_, stdout, _) = texts(store.command("verify", &strict).output().unwrap());
    assert!(stdout.ends_with("! a run would end: engine.bad-sample-limit is 0.001\n"), "{stdout}");

    let json = [&bad[..], &["--json"]].concat();
    let (code, stdout, stderr) = texts(store.command("verify", &json).output().unwrap());
    assert_eq!((code, stderr.as_str()), (Some(3), ""), "{stdout}");
    let objects: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [first, second, summary] = objects.as_slice() else { panic!("{stdout}") };
    assert_eq!(first["kind"], "bad-sample");
    assert_eq!((&first["dataset"], &first["row"]), (&"dataset".into(), &5.into()));
    assert_eq!(first["origin"], "s3://data/bad.jsonl:6");
    assert_eq!((&second["room"], &second["code"]), (&"fetch".into(), &"missing".into()));
    assert_eq!(second["in_a_run"], "replaced");
    assert_eq!((&summary["kind"], &summary["bad"]), (&"summary".into(), &2.into()));
    assert_eq!(summary["reasons"][1]["reason"], "fetch/missing");
}

#[test]
fn a_verify_that_the_store_ends_keeps_what_it_found_and_says_where_it_was() {
    let store = Store::start();
    let bad = with_bad_samples(&store);
    let path = store.folder.path().join("buckets/data/bad.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    // A store that is not there.
    let away = lines[9].replace("no\\u0007where.jpg", "az://away/a.jpg");
    lines[7] = &away;
    fs::write(&path, lines.join("\n")).unwrap();
    let bad: Vec<&str> = bad.iter().map(String::as_str).collect();
    let (code, stdout, stderr) =
        texts(store.command("verify", &[&bad[..], &["--json"]].concat()).output().unwrap());
    assert_eq!(code, Some(4), "{stderr}");
    let objects: Vec<Value> =
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["bad-sample", "failure", "summary"]);
    assert_eq!((&objects[1]["row"], &objects[2]["complete"]), (&7.into(), &false.into()));
    assert_eq!((&objects[2]["samples"], &objects[2]["rows"]), (&7.into(), &24.into()));
    let place = "stoker: the check ended at dataset 7 (s3://data/bad.jsonl:8), and no sample is to \
                 blame: ";
    assert!(stderr.starts_with(place) && stderr.contains("az://away/a.jpg"), "{stderr}");
}
