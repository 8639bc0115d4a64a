use stoker_engine::metrics::{Ahead, FlatOut, Job};

use super::*;

fn measured() -> Measured {
    Measured {
        cost: Cost {
            samples: 8.0,
            worker_seconds: 0.19,
            delayed_seconds: 0.0,
            other_seconds: 0.0,
            fetched_bytes: 2e6,
            shipped_bytes: 8e6,
            requests: 16.0,
            request_seconds: 0.03,
            alone_seconds: 0.25,
            flat_out: FlatOut { seconds: 0.1, limit: Limit::Cores, workers: 2.0, busy: 0.95 },
        },
        shares: [0.6, 0.3, 0.1],
        batches: 40,
        seconds: 9.9,
    }
}

fn machine() -> Machine {
    Machine {
        ranks: 8,
        cores: 8.0,
        workers: None,
        network: None,
        requests: 64.0,
        ahead: Ahead { batches: 32.0, lead: None, filled: 4.0 },
        memory: 4e9,
    }
}

/// What is said of a job.
fn said(machine: &Machine, gpus: u64, step_seconds: f64) -> String {
    said_of(&measured(), machine, gpus, step_seconds)
}

fn said_of(measured: &Measured, machine: &Machine, gpus: u64, step_seconds: f64) -> String {
    let of =
        |times| Forecast::of(&measured.cost, machine, Job { gpus: gpus * times, step_seconds });
    let forecasts = [1, 2, 4, 8].map(of);
    let mut out = Vec::new();
    Sizing { measured, machine, forecasts: &forecasts }.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[track_caller]
fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in\n{said}");
    }
}

#[test]
fn what_was_measured_is_told_for_a_sample() {
    let words = [
        "measured in 9.9 s, 40 batches of 8.0 samples:",
        "23.8 ms of a worker: 60 % decoding, 30 % resizing and patches, 10 % text and lines",
        "244.1 KiB fetched by 2.00 requests of 30 ms, 976.6 KiB shipped (4.0 times as many)",
        "7.6 MiB of memory; 250 ms by itself, one in 100 ms flat out, limited by cores",
    ];
    says(&said(&machine(), 1, 0.5), &words);
}

#[test]
fn what_others_had_of_the_cores_is_told_where_it_is_left_out() {
    let mut measured = measured();
    assert!(!said_of(&measured, &machine(), 1, 0.5).contains("others"));
    measured.cost.delayed_seconds = 0.57;
    let words = ["! while this was measured, others had the workers' cores for 75 % of the time"];
    says(&said_of(&measured, &machine(), 1, 0.5), &words);
}

#[test]
fn each_limit_is_named_with_the_number_that_ends_it() {
    let of = |machine: Machine, step| said(&machine, 8, step);
    let slow = "8 GPUs on 1 node with 8 cores: the trainer will wait 0.0 %; it is the limit itself; the \
                first limit met by a faster one is cores, at 200 ms a step";
    says(&of(machine(), 0.5), &[slow]);
    let words =
        ["will wait 50.0 %; cores are the limit: 16 cores", "(2 workers for each rank), or 1 node"];
    says(&of(machine(), 0.1), &words);
    let narrow = Machine { network: Some(1e9), cores: 64.0, ..machine() };
    says(&of(narrow, 0.1), &["64 cores and 1 Gbit/s", "the network is the limit: 1.4 Gbit/s"]);
    let few = Machine { requests: 2.0, cores: 64.0, ..machine() };
    says(&of(few, 0.1), &["requests in flight are the limit: fetch.concurrency = 5 ends it"]);
    let ahead = Ahead { batches: 0.0, ..machine().ahead };
    let late = Machine { ahead, cores: 64.0, ..machine() };
    says(&of(late, 0.1), &["the store's slow answers are the limit: engine.prefetch = 3 ends it"]);
    let small = Machine { memory: 9e6, cores: 64.0, ..machine() };
    says(&of(small, 0.1), &["memory is the limit: engine.memory = \"64MiB\""]);
}

#[test]
fn floats_do_not_pass_a_card_and_that_is_said() {
    let card = Machine { network: Some(1e9), ..machine() };
    says(
        &said(&card, 8, 0.1),
        &["nodes that only load can't: 4.0 times as many bytes are shipped"],
    );
}

#[test]
fn the_table_goes_up_to_eight_times_as_many_and_store_limits_are_noted() {
    let said = said(&machine(), 8, 0.1);
    let rows: Vec<_> =
        said.lines().rev().take(4).map(|line| line.split_whitespace().next()).collect();
    assert_eq!(rows, [Some("64"), Some("32"), Some("16"), Some("8")], "{said}");
    says(&said, &["! 64 GPUs ask the store 10240 times a second; S3 takes 5500 for each prefix"]);
}
