//! The promises of the `stoker` command that need no data: what goes where, and how it ends.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use stoker_engine::recipe::Recipe;

fn stoker() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stoker"));
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    command.stdin(Stdio::null());
    command
}

fn output(arguments: &[&str]) -> Output {
    stoker().args(arguments).output().unwrap()
}

/// Runs a command that is expected to fail, with nothing on stdout; gives its stderr.
fn failure(arguments: &[&str], code: i32) -> String {
    let output = output(arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?} wrote to stdout");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

fn written(folder: &Path, recipe: &str) -> PathBuf {
    let path = folder.join("recipe.toml");
    fs::write(&path, recipe).unwrap();
    path
}

#[test]
fn help_is_data_and_lists_the_exit_codes() {
    let output = output(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
    for code in ["0  ", "1  ", "2  ", "3  ", "4  ", "5  ", "130"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "{code} in\n{help}");
    }
    let documented = include_str!("../../../docs/reference/command.md");
    let codes = help.split("Exit codes:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    assert!(documented.contains(codes), "docs/reference/command.md differs from\n{codes}");
    let commands =
        ["run", "peek", "index", "plan", "verify", "top", "doctor", "size", "recipe", "s3", "demo"];
    for command in commands {
        let line = format!("  {command} ");
        assert!(help.lines().any(|have| have.starts_with(&line)), "{command} in\n{help}");
    }
}

#[test]
fn usage_errors_end_with_2_and_say_what_is_possible() {
    assert!(failure(&[], 2).contains("Usage: stoker"));
    assert!(failure(&["rum", "x.toml"], 2).contains("'run'"));
    assert!(failure(&["run"], 2).contains("<RECIPE>"));
    assert!(failure(&["run", "x.toml", "--batches", "many"], 2).contains("--batches"));
    assert!(failure(&["run", "x.toml", "--world-size", "0"], 2).contains("--world-size"));
    assert!(failure(&["run", "x.toml", "--batches", "-1"], 2).contains("'--batches <BATCHES>'"));
    assert!(failure(&["peek", "x.toml", "--sample", "-1"], 2).contains("'--sample <POSITION>'"));
    assert!(failure(&["s3", "--root", ".", "--profile", "slow"], 2).contains("standard"));
    assert!(failure(&["s3", "--root", ".", "--bandwidth", "0"], 2).contains("above 0"));
    assert!(failure(&["size", "x.toml"], 2).contains("--step-time <TIME>"));
    let step = failure(&["size", "x.toml", "--step-time", "soon"], 2);
    assert!(step.contains("write it as 0.35, 0.35s or 350ms"), "{step}");
    assert_eq!(
        failure(&["run", "x.toml", "--rank", "2", "--world-size", "2"], 2),
        "stoker: --rank 2 is not below --world-size 2; ranks count from 0\n"
    );
}

#[test]
fn the_doctor_looks_at_the_machine_where_a_recipe_can_not_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "[pack]\nbatch-sise = 8\n");
    for (path, code) in [(path.to_str().unwrap(), 2), ("/no/such.toml", 2)] {
        let output = output(&["doctor", path]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(code), true), "{text}");
        assert!(text.lines().next().unwrap().starts_with("recipe       failure  "), "{text}");
        for check in ["cores ", "memory ", "/dev/shm ", "open files ", "threads "] {
            assert!(text.lines().any(|line| line.starts_with(check)), "{check} in\n{text}");
        }
    }
}

#[test]
fn the_demo_is_said_to_be_elsewhere() {
    let stderr = failure(&["demo", "--seconds", "3"], 2);
    assert!(stderr.contains("install the wheel and run `stoker demo` there"), "{stderr}");
}

#[test]
fn all_problems_of_a_recipe_are_listed_by_every_command_that_reads_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "[plan]\nlanes = 0\n[pack]\nbatch-sise = 8\n");
    let path = path.to_str().unwrap();
    for command in ["run", "peek", "index", "plan", "size", "recipe"] {
        let step: &[_] = if command == "size" { &["--step-time", "1"] } else { &[] };
        let set = [command, path, "--set", "fetch.attempts=0"];
        let stderr = failure(&[&set[..], step].concat(), 2);
        let expected = "stoker: the recipe has 4 problems:\n  dataset.source: is missing; give the \
                        URI or path of the samples, such as s3://bucket/train.jsonl or \
                        s3://bucket/train-{000..127}.tar\n  plan.lanes: 0 is out of range; allowed: 1 to 65536\n  fetch.attempts: 0 is \
                        out of range; allowed: 1 to 100\n  pack.batch-sise: unknown key; did you \
                        mean `batch-size`?\n";
        assert_eq!(stderr, expected);
    }
    let absent = failure(&["run", "/no/such/recipe.toml"], 2);
    assert!(absent.contains("/no/such/recipe.toml: can't be read: "), "{absent}");
}

#[test]
fn a_recipe_is_shown_with_its_defaults_and_overrides_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "[dataset]\nsource = 'train.jsonl'\n");
    let shown = output(&["recipe", path.to_str().unwrap(), "--set", "pack.batch-size=3"]);
    assert_eq!(shown.status.code(), Some(0));
    assert!(shown.stderr.is_empty());
    let text = String::from_utf8(shown.stdout).unwrap();
    let recipe = Recipe::from_toml(&text).unwrap();
    let mut expected = Recipe::from_file(&path).unwrap();
    expected.pack.batch_size = Some(3);
    assert_eq!(recipe, expected);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "[dataset]\nsource = 'train.jsonl'\n");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = stoker().arg("recipe").arg(&path).stdout(writer).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn top_without_a_loader_says_where_it_looked() {
    // No process has the number 0.
    for arguments in [&["top", "0"][..], &["top", "0", "--once"], &["top", "0", "--json"]] {
        let stderr = failure(arguments, 5);
        assert!(stderr.contains("no loader runs in process 0; "), "{stderr}");
        assert!(stderr.contains("network namespace"), "{stderr}");
    }
}

#[test]
fn a_folder_is_served_over_s3_until_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let faults = folder.path().join("faults.toml");
    let text = "rules = [{ fault = { kind = 'status', status = 503 }, requests = [2, 2] }]";
    fs::write(&faults, text).unwrap();
    let mut server = stoker()
        .args(["s3", "--profile", "hot", "--root"])
        .arg(folder.path())
        .arg("--faults")
        .arg(&faults)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut endpoint = String::new();
    stdout.read_line(&mut endpoint).unwrap();
    let address = endpoint.trim().strip_prefix("http://").expect("an endpoint");
    for status in ["HTTP/1.1 403", "HTTP/1.1 503"] {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(status), "unsigned requests are refused: {answer}");
    }
    let kill = Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = server.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("served 2 requests"), "{stderr}");
    assert!(stderr.contains("faults: status-503 1\n"), "{stderr}");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_server_that_cant_start_says_why() {
    let stderr = failure(&["s3", "--root", "/no/such/folder"], 5);
    assert_eq!(stderr, "stoker: there is no folder to serve: /no/such/folder\n");
    let half =
        stoker().args(["s3", "--root", "."]).env("AWS_ACCESS_KEY_ID", "me").output().unwrap();
    assert_eq!(half.status.code(), Some(2));
    assert!(String::from_utf8(half.stderr).unwrap().contains("only one of AWS_ACCESS_KEY_ID"));
    let folder = tempfile::tempdir().unwrap();
    let faults = |name: &str, text: &str, code| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        failure(&["s3", "--root", ".", "--faults", path.to_str().unwrap()], code)
    };
    let wrong = "rules = [{ fault = { kind = 'resett' } }]";
    let stderr = faults("wrong.toml", wrong, 2);
    assert!(stderr.contains("wrong.toml: the faults can't be used: "), "{stderr}");
    assert!(stderr.contains("unknown variant `resett`, expected one of `refuse`"), "{stderr}");
    assert!(faults("wrong.json", "{\"share\": 1}", 2).contains("unknown field `share`"));
    assert!(faults("wrong.yaml", "", 2).contains("faults are a .toml or a .json file"));
    assert!(
        failure(&["s3", "--root", ".", "--faults", "/no/such.toml"], 5).contains("/no/such.toml")
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let stderr = failure(&["s3", "--root", ".", "--address", &address], 1);
    assert!(stderr.contains("can't listen on"), "{stderr}");
}
