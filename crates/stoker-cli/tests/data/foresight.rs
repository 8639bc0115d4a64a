//! What is said before a run: `stoker doctor` and `stoker size`.

use super::*;

#[test]
fn the_doctor_goes_through_all_of_a_recipe_and_fails_with_what_fails() {
    let store = Store::start();
    let command = |more: &[&str], secret: &str| {
        let mut command = store.command("doctor", more);
        command.env("AWS_SECRET_ACCESS_KEY", secret).env("AWS_EC2_METADATA_DISABLED", "true");
        texts(command.output().unwrap())
    };
    let (code, stdout, stderr) = command(&[], "stoker-secret");
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    let said = |check: &str| {
        let line = stdout.lines().find(|line| line.starts_with(check));
        line.unwrap_or_else(|| panic!("{check} in\n{stdout}")).to_owned()
    };
    assert!(said("credentials").contains("of the environment"));
    assert!(said("samples").contains("8 went all the way through"));
    assert!(said("throughput").contains("/s to 64"));
    assert!(stdout.ends_with(" failures\n") && !stdout.contains('\x1b'), "{stdout}");
    assert!(!stdout.contains("stoker-secret"));

    let (code, stdout, stderr) = command(&["--json"], "planted-secret");
    assert_eq!((code, stderr.as_str()), (Some(4), ""), "{stdout}");
    assert!(!stdout.contains("planted"), "{stdout}");
    let whole: Value = serde_json::from_str(&stdout).unwrap();
    let checks = whole["checks"].as_array().unwrap();
    let level = |check: &str| &checks.iter().find(|it| it["check"] == check).unwrap()["level"];
    assert_eq!([level("index"), level("model")], ["failure", "ok"]);
    assert_eq!(whole["failures"], 1);
}

#[test]
fn a_size_is_measured_and_what_follows_from_it_is_told() {
    let store = Store::start();
    let quick = ["--gpus", "2", "--measure", "0.2", "--gpus-per-node", "2", "--batch", "2"];
    let json = store.output("size", &[&quick[..], &["--step-time", "100s", "--json"]].concat());
    let whole: Value = serde_json::from_str(&json).unwrap();
    let cost = &whole["measured"]["cost"];
    assert_eq!(cost["samples"], 2.0);
    let number = |name: &str| cost[name].as_f64().unwrap();
    for name in
        ["worker_seconds", "fetched_bytes", "shipped_bytes", "request_seconds", "alone_seconds"]
    {
        assert!(number(name) > 0.0, "{name} in {cost}");
    }
    // A line for each sample, which come together where both are wanted at once, and mostly an image.
    assert!((1.0..=4.0).contains(&number("requests")), "{cost}");
    assert_eq!(
        (&whole["forecast"]["limit"], &whole["forecast"]["wait"]),
        (&"trainer".into(), &0.0.into())
    );
    let scale = whole["scale"].as_array().unwrap();
    let told = |name: &str| scale.iter().map(|it| it[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!([told("gpus"), told("nodes")], [vec![2, 4, 8, 16], vec![1, 2, 4, 8]]);

    let narrow = ["--step-time", "1ms", "--network", "0.000001"];
    let text = store.output("size", &[&quick[..], &narrow].concat());
    for words in
        ["measured in ", "2 GPUs on 1 node", "the network is the limit: ", "\nGPUs  nodes "]
    {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
}
