//! The promises of the `stoker` command that need data: each test serves a small data set with
//! `stoker s3` and reads it from there, with the model folder that `make setup` assembles.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod foresight;
mod verify;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use stoker_engine::testing::ChatDataset;
use tempfile::TempDir;

const SAMPLES: usize = 24;

/// A store with a data set in it, and a recipe for it.
struct Store {
    folder: TempDir,
    server: Child,
    recipe: PathBuf,
}

impl Store {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (key, bytes) in ChatDataset::new(5, SAMPLES, 4_000..=40_000).objects() {
            let path = folder.path().join("buckets/data").join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let root = folder.path().join("buckets");
        let mut command = stoker();
        command.args(["s3", "--root"]).arg(root).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let mut endpoint = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut endpoint).unwrap();
        let recipe = folder.path().join("recipe.toml");
        let text = format!(
            "model = '{}'\n[dataset]\nsource = 's3://data/train.jsonl'\nindex-dir = 'index'\n\
             [plan]\nlanes = 4\n[fetch]\nendpoint = '{}'\nattempts = 2\n\
             [vision]\nmin-pixels = 4096\nmax-pixels = 65536\n\
             [pack]\nbatch-size = 4\n[engine]\nmemory = '256MiB'\n",
            model().display(),
            endpoint.trim()
        );
        fs::write(&recipe, text).unwrap();
        Self { folder, server, recipe }
    }

    fn command(&self, command: &str, more: &[&str]) -> Command {
        let mut process = stoker();
        process.arg(command).arg(&self.recipe).args(more);
        process
    }

    /// Runs a command that is expected to do its work quietly; gives its stdout.
    fn output(&self, command: &str, more: &[&str]) -> String {
        let (code, stdout, stderr) = texts(self.command(command, more).output().unwrap());
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
        stdout
    }

    /// Runs a command that is expected to fail with nothing on stdout; gives its stderr.
    fn failure(&self, command: &str, more: &[&str], code: i32) -> String {
        let (found, stdout, stderr) = texts(self.command(command, more).output().unwrap());
        assert_eq!((found, stdout.as_str()), (Some(code), ""), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.server.kill().unwrap_or_default();
        self.server.wait().map(drop).unwrap_or_default();
    }
}

fn stoker() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    command.env("AWS_ACCESS_KEY_ID", "stoker").env("AWS_SECRET_ACCESS_KEY", "stoker-secret");
    command.env_remove("AWS_SESSION_TOKEN").stdin(Stdio::null());
    command
}

fn model() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.setup/models/qwen3-vl");
    folder.canonicalize().expect("the model folder is missing: run `make setup` first")
}

fn texts(output: Output) -> (Option<i32>, String, String) {
    let stdout = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), stdout, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn run_drains_an_endless_recipe_once_and_reports() {
    let store = Store::start();
    let whole: Value = serde_json::from_str(&store.output("run", &["--json"])).unwrap();
    assert_eq!(whole["report"]["samples"], SAMPLES as u64);
    assert_eq!(whole["batches"], (SAMPLES / 4) as u64);
    assert_eq!(whole["interrupted"], false);
    assert!(whole["tokens_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(whole["settings"]["recipe"]["plan"]["epochs"], 1);
    assert_eq!(whole["settings"]["recipe"]["engine"]["memory"], "256MiB");

    let table = store.output("run", &["--batches", "2", "--rank", "1", "--world-size", "2"]);
    assert!(table.starts_with("2 batches in "), "{table}");
    for words in [" samples/s, ", "the trainer waited ", "\nroom ", "\nfetch ", "\nvision "] {
        assert!(table.contains(words), "{words:?} is not in\n{table}");
    }
}

#[test]
fn run_writes_a_page_and_a_trace() {
    let store = Store::start();
    let path = |name: &str| store.folder.path().join(name).to_str().unwrap().to_owned();
    let (page, trace) = (path("run.html"), path("run.json"));
    store.output("run", &["--html", &page, "--trace", &trace, "--trace-steps", "3"]);
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("recipe.toml"), "{page}");
    let trace: Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    assert_eq!(trace["stoker"]["steps"], 3);

    // Before a run that may be long.
    let nowhere = path("none/run");
    let unwritten = store.failure("run", &["--html", &nowhere], 1);
    assert!(unwritten.contains("the page can't be written: No such file"), "{unwritten}");
    let unwritten = store.failure("run", &["--trace", &nowhere], 1);
    assert!(unwritten.contains("the trace can't be written: No such file"), "{unwritten}");
    let alone = store.failure("run", &["--trace-steps", "3"], 2);
    assert!(alone.contains("--trace <FILE>"), "{alone}");
}

/// Whether a process has a handler for SIGINT: it has while it drains, not while it opens things.
fn hears_ctrl_c(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(caught, 16).unwrap() & 0b10 != 0
}

#[test]
fn ctrl_c_ends_a_run_in_order_and_still_reports() {
    let store = Store::start();
    let batches_after = |seconds| {
        // More batches than a test waits for.
        let mut command = store.command("run", &["--json", "--batches", "1000000000"]);
        let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !hears_ctrl_c(run.id()) {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_secs(seconds));
        let kill = Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let (code, stdout, stderr) = texts(run.wait_with_output().unwrap());
        assert_eq!(code, Some(130), "{stderr}");
        let whole: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(whole["interrupted"], true);
        whole["batches"].as_u64().unwrap()
    };
    // A machine that is busy with other things takes a while to the first batch.
    assert!([1, 4, 16].into_iter().any(|seconds| batches_after(seconds) > 0));
}

#[test]
fn index_says_what_it_holds_and_where() {
    let store = Store::start();
    let first = store.output("index", &[]);
    let field = |name: &str| {
        let line = first.lines().find(|line| line.starts_with(name)).expect("the field is there");
        line[name.len()..].trim().to_owned()
    };
    assert_eq!(field("rows"), SAMPLES.to_string());
    assert!(Path::new(&field("path")).exists());
    assert!(Path::new(&field("path")).starts_with(store.folder.path()));
    assert_eq!(field("fingerprint").len(), 16);
    assert_eq!(store.output("index", &[]), first);
}

#[test]
fn index_measures_if_asked_and_plan_tells_the_tokens_from_then_on() {
    let store = Store::start();
    assert!(!store.output("plan", &[]).contains("tokens"));
    let measured = store.output("index", &["--sizes"]);
    let line = measured.lines().find(|line| line.starts_with("measured ")).unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    let [_, samples, tokens, "tokens;", "0", "can't", "be", "used"] = words[..] else {
        panic!("{line}");
    };
    assert_eq!(samples, format!("{SAMPLES},"));
    let path = measured.lines().find_map(|line| line.strip_prefix("sizes ")).unwrap().trim();
    assert!(Path::new(path).starts_with(store.folder.path()) && Path::new(path).exists());

    let plan: Value = serde_json::from_str(&store.output("plan", &["--json"])).unwrap();
    assert_eq!(plan["datasets"][0]["tokens"], tokens.parse::<u64>().unwrap());
    let table = store.output("plan", &[]);
    assert!(table.lines().next().unwrap().ends_with("tokens"), "{table}");
    assert!(table.lines().nth(1).unwrap().ends_with(tokens), "{table}");
    // For other sizes of images other tokens.
    let other = store.output("plan", &["--set", "vision.max-pixels=16384"]);
    assert!(!other.contains("tokens"), "{other}");
}

/// A recipe with the data set three times, without a model.
fn mixture(store: &Store, shares: [&str; 3]) -> PathBuf {
    let path = store.folder.path().join("mixture.toml");
    let text = fs::read_to_string(&store.recipe).unwrap();
    let (_, rest) = text.split_once("[plan]").unwrap();
    let dataset = |(name, share): (&str, &str)| {
        let source = "source = 's3://data/train.jsonl'\nindex-dir = 'index'";
        format!("[[datasets]]\nname = '{name}'\n{source}\n{share}\n")
    };
    let datasets = ["a", "b", "c"].into_iter().zip(shares).map(dataset).collect::<String>();
    fs::write(&path, format!("{datasets}[plan]{rest}")).unwrap();
    path
}

#[test]
fn plan_shows_what_will_be_seen_and_warns_of_too_little_and_too_much() {
    let store = Store::start();
    let recipe = mixture(&store, ["weight = 2", "weight = 0.05", "weight = 6"]);
    let output = |more: &[&str]| {
        let (code, stdout, stderr) =
            texts(stoker().arg("plan").arg(&recipe).args(more).output().unwrap());
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
        stdout
    };
    assert_eq!(
        output(&["--batches", "20", "--world-size", "2"]),
        "dataset  asked        rows  samples    share  epochs\n\
         a        weight 2       24       40  25.00 %    1.67\n\
         b        weight 0.05    24        1   0.62 %    0.04\n\
         c        weight 6       24      119  74.38 %    4.96\n\
         \n160 samples, 20 batches on each of 2 ranks\n\
         \n! b is not seen whole: 23 of its rows are left out\n\
         ! c is seen 5.0 times, and more than 4 times is seldom worth it\n"
    );
    let whole: Value = serde_json::from_str(&output(&["--json"])).unwrap();
    assert_eq!((&whole["samples"], &whole["endless"]), (&72.into(), &true.into()));
    assert_eq!(whole["datasets"][2]["samples"], 54);
    assert_eq!(whole["datasets"][2]["warning"], Value::Null);

    let recipe = mixture(&store, ["epochs = 1", "epochs = 0.5", "epochs = 3"]);
    let output = texts(stoker().arg("plan").arg(&recipe).output().unwrap()).1;
    assert!(
        output.contains("\n108 samples, 27 batches: one epoch of an endless recipe\n"),
        "{output}"
    );
    let index = texts(stoker().arg("index").arg(&recipe).output().unwrap()).1;
    let names: Vec<_> = index.lines().filter(|line| line.starts_with("dataset ")).collect();
    assert_eq!(names, ["dataset      a", "dataset      b", "dataset      c"]);
}

#[test]
fn peek_shows_a_sample_and_writes_its_images_as_the_model_sees_them() {
    let store = Store::start();
    let pictures = store.folder.path().join("pictures");
    let png = ["--png", pictures.to_str().unwrap()];
    // Most samples have an image.
    let shown: Vec<_> = (0..4)
        .map(|position: u64| {
            store.output("peek", &[&png[..], &["--sample", &position.to_string()]].concat())
        })
        .collect();
    let with_image = shown.iter().find(|text| text.contains("image_grid_thw 1 ")).unwrap();
    assert!(with_image.contains("<|vision_start|><|image_pad|>×"), "{with_image}");
    for text in &shown {
        let learned = text.split("[[").nth(2).expect("something is learned");
        let learned = learned.split("]]").next().unwrap();
        assert!(learned.ends_with("<|im_end|>\n"), "{learned:?} in\n{text}");
        assert!(!text.contains('\x1b'), "colours are for terminals");
    }
    let grid = with_image.split("image_grid_thw 1 ").nth(1).unwrap().lines().next().unwrap();
    let sides: Vec<u32> = grid.split(' ').map(|side| side.parse().unwrap()).collect();
    let path = with_image.split("written: ").nth(1).unwrap().lines().next().unwrap();
    let file = BufReader::new(fs::File::open(path).unwrap());
    let reader = png::Decoder::new(file).read_info().unwrap();
    let info = reader.info();
    // Qwen3-VL's patches are 16 pixels wide.
    assert_eq!((info.height, info.width), (sides[0] * 16, sides[1] * 16));
}

#[test]
fn failures_end_with_the_code_of_whose_turn_it_is() {
    let store = Store::start();
    let absent = store.failure("run", &["--set", "dataset.source=s3://data/nothing.jsonl"], 5);
    assert!(absent.contains("s3://data/nothing.jsonl"), "{absent}");
    let (code, stdout, stderr) =
        texts(store.command("run", &[]).env("AWS_SECRET_ACCESS_KEY", "wrong").output().unwrap());
    assert_eq!((code, stdout.as_str()), (Some(4), ""), "{stderr}");
    assert!(!stderr.contains("wrong"), "{stderr}");
    fs::write(store.folder.path().join("buckets/data/bad.jsonl"), "{\"messages\": [\n").unwrap();
    let bad = ["--set", "dataset.source=s3://data/bad.jsonl"];
    let stopped = [&bad[..], &["--set", "engine.on-bad-sample=stop"]].concat();
    assert!(store.failure("run", &stopped, 3).contains("bad.jsonl"));
    assert!(store.failure("peek", &bad, 3).contains("bad.jsonl"));
    let uneven = store.failure("run", &["--world-size", "3"], 2);
    assert!(uneven.contains("lanes"), "{uneven}");
    let no_folder = format!("dataset.index-dir={}", store.recipe.display());
    let unwritable = store.failure("index", &["--set", &no_folder], 1);
    assert!(unwritable.contains("the index can't be written"), "{unwritable}");
}

#[test]
fn plan_says_what_becomes_of_the_end_of_a_run() {
    let store = Store::start();
    for (remainder, ranks, lines) in [
        (
            "fill",
            "4",
            ["24 samples, 2 batches on each of 4 ranks", "is filled up with 8 of the epoch after"],
        ),
        (
            "pad",
            "4",
            ["24 samples, 2 batches on each of 4 ranks", "8 places of the last round are padding"],
        ),
        (
            "drop",
            "4",
            ["16 samples, 1 batches on each of 4 ranks", "8 at the end make no whole round"],
        ),
        (
            "pad",
            "2",
            ["24 samples, 3 batches on each of 2 ranks: all that the recipe asks for\n", ""],
        ),
    ] {
        let set = format!("plan.remainder={remainder}");
        let more = ["--world-size", ranks, "--set", "plan.epochs=1", "--set", &set];
        let shown = store.output("plan", &more);
        assert!(lines.iter().all(|line| shown.contains(line)), "{remainder}: {shown}");
        let count = if ranks == "4" { 8 } else { 0 };
        let json = store.output("plan", &[&more[..], &["--json"]].concat());
        let whole: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&whole["remainder"], &whole["remainder_samples"]),
            (&remainder.into(), &count.into())
        );
    }
}
