use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use stoker_engine::testing::{CHAT_KEY, ChatDataset};
use stoker_s3::{Backend, Config, Server};

use super::*;
use crate::outcome::USAGE;

/// A store with a data set in it, and a recipe for it.
struct Given {
    server: Server,
    folder: tempfile::TempDir,
    recipe: Value,
    /// How long the store is read from.
    probe: Duration,
}

/// A store that takes unsigned requests, or none but those.
fn given(unsigned: bool) -> Given {
    let server =
        Server::start(&Config { unsigned, ..Config::default() }, Backend::memory()).unwrap();
    for (key, bytes) in ChatDataset::new(5, 24, 4_000..=8_000).objects() {
        server.put("bucket", &key, bytes).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.setup/models/qwen3-vl");
    let recipe = json!({
        "model": model.canonicalize().expect("run `make setup` first"),
        "dataset": {"source": format!("s3://bucket/{CHAT_KEY}"), "index-dir": folder.path()},
        "fetch": {"endpoint": server.endpoint(), "anonymous": unsigned, "concurrency": 4},
        "pack": {"batch-size": 4},
        "engine": {"memory": "256MiB"},
    });
    Given { server, folder, recipe, probe: Duration::from_millis(50) }
}

impl Given {
    fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        self.recipe[section][key] = value.into();
    }

    fn examine(&self) -> Vec<Finding> {
        self.examine_with(&facts(), &[])
    }

    fn examine_with(&self, facts: &Facts, environment: &[(&str, &str)]) -> Vec<Finding> {
        let home = self.folder.path().to_str().unwrap();
        let usual = [("AWS_EC2_METADATA_DISABLED", "true"), ("HOME", home)];
        let environment: Environment = usual.iter().chain(environment).copied().collect();
        let recipe = Recipe::from_value(self.recipe.clone()).unwrap();
        let mut findings = Vec::new();
        let mut tell = |finding| -> io::Result<()> {
            findings.push(finding);
            Ok(())
        };
        examine(recipe, facts, environment, self.probe, &mut tell).unwrap();
        findings
    }
}

/// A machine on which nothing is wrong.
fn facts() -> Facts {
    #[expect(clippy::disallowed_methods, reason = "the store's clock is this machine's")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let files = Some(4096);
    Facts { files, threads: None, quota: None, shared_memory: Some(1 << 33), now, ..Facts::here() }
}

#[track_caller]
fn of<'a>(findings: &'a [Finding], check: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("nothing is said of {check}: {findings:#?}"))
}

/// One check says that, and no other says anything bad, but for those that are named.
#[track_caller]
fn says(findings: &[Finding], check: &str, level: Level, code: u8, words: &[&str], but: &[&str]) {
    let finding = of(findings, check);
    assert_eq!((finding.level, finding.code), (level, code), "{}", finding.words);
    for word in words {
        assert!(finding.words.contains(word), "{word:?} is not in {:?}", finding.words);
    }
    for other in findings.iter().filter(|it| it.check != check && !but.contains(&it.check)) {
        assert_eq!(other.level, Level::Ok, "{other:?}");
    }
}

#[test]
fn where_nothing_is_wrong_everything_is_looked_at() {
    let findings = given(true).examine();
    let checks: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    let expected = [
        "recipe",
        "cores",
        "memory",
        "/dev/shm",
        "open files",
        "threads",
        "names",
        "store",
        "clock",
        "credentials",
        "model",
        "index",
        "region",
        "throughput",
        "samples",
        "batch",
    ];
    assert_eq!(checks, expected);
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:#?}");
    assert!(of(&findings, "index").words.contains("24 rows in 1 file"));
    assert!(of(&findings, "samples").words.contains("8 went all the way through"));
    let levels = of(&findings, "throughput").figures.as_array().unwrap().clone();
    assert_eq!(levels.iter().map(|it| it["at_once"].clone()).collect::<Vec<_>>(), [1, 4]);
    assert!(levels.iter().all(|it| it["bytes_per_second"].as_f64().unwrap() > 0.0));
}

#[test]
fn a_clock_that_is_wrong_is_said_to_be_so_and_all_else_goes_on() {
    let given = given(true);
    let off = |seconds: i64| {
        let facts = Facts { now: facts().now + seconds, ..facts() };
        given.examine_with(&facts, &[])
    };
    // The store looks at its clock a little later: that may not come to another minute.
    let words = ["clock is 20 minutes ahead of the store's", "refused", "chrony"];
    says(&off(20 * 60 + 30), "clock", Level::Failure, outcome::FAILED, &words, &[]);
    says(&off(-7 * 60), "clock", Level::Warning, outcome::OK, &["7 minutes behind"], &[]);
}

#[test]
fn without_credentials_each_source_is_named_and_the_rest_is_looked_at() {
    let findings = given(false).examine();
    let words =
        ["no credentials for AWS", "the environment (AWS_ACCESS_KEY_ID is not set)", "AWS_PROFILE"];
    says(&findings, "credentials", Level::Failure, outcome::DENIED, &words, &["index"]);
    assert_eq!(of(&findings, "index").code, outcome::DENIED);
    assert_eq!(of(&findings, "model").level, Level::Ok);
}

#[test]
fn credentials_are_told_by_their_source_and_a_wrong_one_is_not_shown() {
    let given = given(false);
    let with = |secret| {
        let keys = [("AWS_ACCESS_KEY_ID", "stoker"), ("AWS_SECRET_ACCESS_KEY", secret)];
        given.examine_with(&facts(), &keys)
    };
    // Samples are opened as a run opens them: with this process's own environment.
    let right = with("stoker-secret");
    says(&right, "credentials", Level::Ok, outcome::OK, &["of the environment"], &["samples"]);
    assert_eq!(of(&right, "throughput").level, Level::Ok);
    let wrong = with("planted-secret");
    says(&wrong, "index", Level::Failure, outcome::DENIED, &["SignatureDoesNotMatch"], &[]);
    assert!(!format!("{wrong:?}").contains("planted"), "{wrong:?}");
}

#[test]
fn a_store_that_is_not_there_is_no_end() {
    let mut given = given(true);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    given.set("fetch", "endpoint", format!("http://{free}"));
    let findings = given.examine();
    let words = ["can't connect", "refused", "check the endpoint and the network"];
    says(&findings, "store", Level::Failure, outcome::FAILED, &words, &["index"]);
    assert_eq!(of(&findings, "index").level, Level::Failure);
    given.set("fetch", "endpoint", "http://no-such-host.invalid:9000");
    let findings = given.examine();
    let words = ["no-such-host.invalid is not known to the name server", "fetch.endpoint"];
    says(&findings, "names", Level::Failure, outcome::FAILED, &words, &["store", "index"]);
}

#[test]
fn a_bucket_that_is_not_there_is_told_by_the_index() {
    let mut given = given(true);
    given.set("dataset", "source", "s3://nothing/train.jsonl");
    let findings = given.examine();
    says(&findings, "index", Level::Failure, outcome::NOT_FOUND, &["no such object"], &[]);
}

#[test]
fn a_broken_model_does_not_keep_the_store_from_being_looked_at() {
    let mut given = given(true);
    let template = given.folder.path().join("chat.jinja");
    fs::write(&template, "{% for message in messages %}").unwrap();
    given.set("text", "chat-template", template.to_str().unwrap());
    let findings = given.examine();
    says(
        &findings,
        "template",
        Level::Failure,
        USAGE,
        &["text.chat-template", "chat.jinja"],
        &["samples"],
    );
    assert!(of(&findings, "samples").words.contains("without a model"));
    assert_eq!(of(&findings, "throughput").level, Level::Ok);
    let empty = given.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    given.recipe["model"] = empty.to_str().unwrap().into();
    let findings = given.examine();
    let others = ["images", "template", "samples"];
    says(&findings, "tokenizer", Level::Failure, USAGE, &["there is no such file"], &others);
    assert_eq!(of(&findings, "images").level, Level::Failure);
    assert_eq!(of(&findings, "throughput").level, Level::Ok);
}

#[test]
fn samples_that_can_not_be_used_are_told_with_the_first_reason() {
    let given = given(true);
    let chat = |image: &str| {
        let user = json!([{"type": "image", "image": image}, {"type": "text", "text": "What?"}]);
        json!({"messages": [{"role": "user", "content": user}, {"role": "assistant", "content": "That."}]})
            .to_string()
    };
    let lines = |images: [&str; 2]| format!("{}\n{}\n", chat(images[0]), chat(images[1]));
    given.server.put("bucket", CHAT_KEY, lines(["images/000000.jpg", "nowhere.jpg"])).unwrap();
    let words = ["1 of 2 can't be used", "nowhere.jpg", "`stoker verify`"];
    says(&given.examine(), "samples", Level::Warning, outcome::OK, &words, &["throughput"]);
    given.server.put("bucket", CHAT_KEY, lines(["here.jpg", "there.jpg"])).unwrap();
    let words = ["none of 2 can be used"];
    let findings = given.examine();
    says(&findings, "samples", Level::Failure, outcome::DATA, &words, &["throughput"]);
    assert_eq!(of(&findings, "throughput").level, Level::Failure, "{findings:?}");
}

#[test]
fn batches_that_do_not_fit_are_told_with_the_memory_that_they_need() {
    let mut given = given(true);
    given.set("pack", "batch-size", 256);
    given.set("engine", "memory", "64MiB");
    let words = ["for 256 samples", "has room for", "set engine.memory to"];
    let findings = given.examine();
    assert_ne!(of(&findings, "batch").level, Level::Ok);
    for word in words {
        assert!(of(&findings, "batch").words.contains(word), "{findings:?}");
    }
    given.set("pack", "batch-size", 2048);
    let words = ["has room for 0", "a run ends"];
    says(&given.examine(), "batch", Level::Failure, USAGE, &words, &[]);
}

#[test]
fn a_store_that_throttles_is_told_to_do_so() {
    let mut given = given(true);
    // As many requests as it takes, on a slow machine too.
    given.probe = Duration::from_millis(400);
    let faults = stoker_s3::Faults::from_toml("throttle = { rate = 60 }").unwrap();
    // With an index there is little to ask before the store is read from in earnest.
    given.examine();
    given.server.set_faults(&faults).unwrap();
    let findings = given.examine();
    let throughput = of(&findings, "throughput");
    assert_eq!(throughput.level, Level::Warning, "{throughput:?}");
    let throttled = |level: &Value| level["throttled"].as_u64().unwrap() > 0;
    assert!(throughput.figures.as_array().unwrap().iter().any(throttled), "{throughput:?}");
}

#[test]
fn local_files_need_no_store() {
    let mut given = given(true);
    for (key, bytes) in ChatDataset::new(5, 8, 4_000..=8_000).objects() {
        let path = given.folder.path().join(key);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let source = given.folder.path().join(CHAT_KEY);
    given.set("dataset", "source", source.to_str().unwrap());
    let findings = given.examine();
    assert!(of(&findings, "store").words.contains("local files"));
    assert!(findings.iter().all(|finding| finding.check != "credentials"));
    assert_eq!(of(&findings, "samples").level, Level::Ok);
}
