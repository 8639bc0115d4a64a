use super::*;

/// Ten seconds with four workers, of which the trainer waited four.
fn evidence() -> Evidence {
    Evidence {
        batches: 100.0,
        wall_seconds: 10.0,
        blocked_seconds: 4.0,
        bytes_blocked_seconds: 2.0,
        memory_blocked_seconds: 1.0,
        pixels_blocked_seconds: 1.0,
        hand_over_blocked_seconds: 0.0,
        network_blocked_seconds: 0.0,
        cpu_seconds: 8.0,
        on_core_seconds: 7.5,
        delayed_seconds: 0.3,
        blocked_on_core_seconds: 3.0,
        blocked_delayed_seconds: 0.1,
        process_seconds: 9.0,
        image_seconds: 4.0,
        vision_seconds: 3.0,
        other_seconds: 0.5,
        request_seconds: 100.0,
        first_byte_seconds: 90.0,
        answers: 1000.0,
        requests: 1000.0,
        throttled: 0.0,
        fetched_bytes: f64::from(1 << 30),
        bringing_seconds: 30.0,
        held_back_seconds: 0.0,
        memory_idle_seconds: 1.0,
        others_idle_seconds: 2.0,
        data_workers: 0.0,
        workers: 4.0,
        usable_cores: 4.0,
        most_requests: 64.0,
        requests_now: 32.0,
        compressed_limit_bytes: f64::from(1 << 30),
        batch_limit_bytes: 3.0 * f64::from(1 << 30),
        u8_workers: 0.0,
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut Evidence), limit: Limit, words: &[&str]) {
    let mut evidence = evidence();
    change(&mut evidence);
    let advice = evidence.advice().expect("there are enough batches");
    assert_eq!(advice.limit, limit, "{}", advice.words);
    for word in words {
        assert!(advice.words.contains(word), "{word:?} is not in {:?}", advice.words);
    }
}

#[test]
fn few_batches_tell_nothing() {
    assert!(Evidence { batches: 7.0, ..evidence() }.advice().is_none());
    assert!(Evidence { wall_seconds: 0.0, ..evidence() }.advice().is_none());
}

#[test]
fn a_trainer_that_hardly_waits_is_the_limit() {
    check(|it| it.blocked_seconds = 0.1, Limit::Trainer, &["1.0 %", "busy 20 %"]);
}

#[test]
fn workers_whose_cores_others_have_are_told_from_busy_ones() {
    let crowded = |it: &mut Evidence| {
        (it.cpu_seconds, it.on_core_seconds, it.delayed_seconds) = (39.0, 12.0, 27.0);
        it.process_seconds = 14.0;
    };
    let words =
        ["others have the cores", "has work for 3.9 and gets 1.2, 2.0 would end the wait; end"];
    check(crowded, Limit::BusyMachine, &words);
    let by_threads = |it: &mut Evidence| {
        crowded(it);
        (it.process_seconds, it.blocked_seconds) = (31.0, 10.0);
    };
    check(by_threads, Limit::BusyMachine, &["other threads of its process have 1.9", "too)"]);
    // While one has the last of a batch to do, and no core, the others idle.
    let last = |it: &mut Evidence| {
        (it.pixels_blocked_seconds, it.on_core_seconds, it.delayed_seconds) = (3.0, 3.0, 5.0);
        (it.blocked_on_core_seconds, it.blocked_delayed_seconds) = (1.0, 2.0);
    };
    check(last, Limit::BusyMachine, &["has work for 0.8 and gets 0.3"]);
    // Nor can it be others who have the cores of workers that wait for memory for longer than for these.
    for (memory, limit) in [(6.0, Limit::Memory), (4.0, Limit::BusyMachine)] {
        let held_back = |it: &mut Evidence| {
            last(it);
            it.memory_idle_seconds = memory;
        };
        check(held_back, limit, &[]);
    }
    // What they lack while nobody waits is not what is waited for; data workers don't know when that is.
    for (data_workers, limit) in [(0.0, Limit::LargeImage), (1.0, Limit::BusyMachine)] {
        let in_time = |it: &mut Evidence| {
            last(it);
            (it.blocked_on_core_seconds, it.blocked_delayed_seconds) = (2.0, 1.0);
            it.data_workers = data_workers;
        };
        check(in_time, limit, &[]);
    }
    // Sixteen workers on four cores keep these from each other, also where some of them idle.
    let some_idle = |it: &mut Evidence| {
        last(it);
        it.workers = 16.0;
    };
    check(some_idle, Limit::LargeImage, &[]);
    let many = |it: &mut Evidence| {
        (it.workers, it.cpu_seconds, it.on_core_seconds) = (16.0, 158.0, 39.0);
        it.delayed_seconds = 119.0;
    };
    check(many, Limit::Cores, &["16 of 16 workers", "; 3 more cores here", "1 data worker of 4"]);
    // Where the system does not tell, nothing is said of it.
    let untold = |it: &mut Evidence| {
        (it.cpu_seconds, it.on_core_seconds, it.delayed_seconds) = (39.0, 0.0, 0.0);
    };
    check(untold, Limit::Cores, &["3 more cores"]);
}

#[test]
fn busy_workers_are_the_limit_whatever_the_batch_was_at() {
    let words = [
        "40.0 %",
        "4 of 4 workers",
        "53 % of it with decoding",
        "3.2 times as much",
        "3 more cores",
        "1 data worker of 4 cores",
        "u8",
    ];
    let busy = |it: &mut Evidence| it.cpu_seconds = 39.0;
    check(busy, Limit::Cores, &words);
    check(
        |it| {
            busy(it);
            it.blocked_seconds = 10.0;
            it.u8_workers = 4.0;
            it.requests_now = 128.0;
        },
        Limit::Cores,
        &["make it faster", "more than 10 times as much"],
    );
    // Nine tenths of the time: ten times the pace is needed.
    check(
        |it| {
            busy(it);
            it.blocked_seconds = 9.0;
        },
        Limit::Cores,
        &["36 more cores", "9 data workers", "less than is needed"],
    );
}

#[test]
fn data_workers_are_as_large_as_they_are_and_their_times_are_added_up() {
    let on_ray = |it: &mut Evidence| (it.data_workers, it.workers) = (2.0, 4.0);
    let busy = |it: &mut Evidence| {
        on_ray(it);
        it.cpu_seconds = 39.0;
    };
    check(busy, Limit::Cores, &["; 3 more cores end it: 2 data workers of 2 cores"]);
    let late = |it: &mut Evidence| {
        on_ray(it);
        it.memory_blocked_seconds = 0.0;
        it.held_back_seconds = 6.0;
    };
    check(late, Limit::Latency, &["have more data workers, or raise prefetch_bytes"]);
    check(
        |it| {
            late(it);
            it.data_workers = 1.0;
        },
        Limit::Memory,
        &["raise engine.memory"],
    );
}

#[test]
fn of_local_files_no_requests_are_told_of() {
    let local = Evidence { requests: 0.0, answers: 0.0, request_seconds: 50.0, ..evidence() };
    let advice = local.advice().expect("there are enough batches");
    assert_eq!(advice.limit, Limit::Latency);
    assert!(advice.words.contains("come late (5.0 reads at a time)"), "{}", advice.words);
    let many = Evidence { request_seconds: 640.0, ..local }.advice().expect("there are enough");
    assert_eq!(many.limit, Limit::Requests);
    assert!(many.words.contains("all 64 reads that may go on at once do;"), "{}", many.words);
}

#[test]
fn what_the_store_could_give_is_not_told_of_bodies_that_share_a_network() {
    let advice = Evidence { cpu_seconds: 39.0, first_byte_seconds: 20.0, ..evidence() }.advice();
    let advice = advice.expect("there are enough batches");
    assert_eq!((advice.limit, advice.store_could_give), (Limit::Cores, None));
    assert!(!advice.words.contains("store"), "{}", advice.words);
}

#[test]
fn what_the_batch_was_at_longest_is_named() {
    check(|it| it.memory_blocked_seconds = 3.0, Limit::Memory, &["raise engine.memory"]);
    let pixels = |it: &mut Evidence| it.pixels_blocked_seconds = 3.0;
    check(pixels, Limit::LargeImage, &["vision.max-pixels"]);
    check(
        |it| {
            pixels(it);
            it.memory_idle_seconds = 3.0;
        },
        Limit::Memory,
        &["raise engine.memory"],
    );
}

#[test]
fn finished_batches_that_come_late_are_no_matter_of_cores() {
    let late = |it: &mut Evidence| {
        it.cpu_seconds = 39.0;
        it.bytes_blocked_seconds = 0.5;
        it.memory_blocked_seconds = 0.0;
        it.pixels_blocked_seconds = 0.5;
    };
    check(
        |it| {
            late(it);
            it.hand_over_blocked_seconds = 3.0;
        },
        Limit::HandOver,
        &["30.0 ms", "GIL"],
    );
    check(
        |it| {
            late(it);
            it.network_blocked_seconds = 3.0;
        },
        Limit::Network,
        &["network card", "u8"],
    );
}

#[test]
fn requests_tell_why_bytes_are_slow() {
    // Batches of 300 ms, in steps of 60.
    let prefetch = "engine.prefetch to 6 or more";
    check(|_| {}, Limit::Latency, &["100 ms", "10.0 requests", prefetch]);
    check(|it| it.throttled = 30.0, Limit::Throttling, &["30 of 1000"]);
    let bodies = |it: &mut Evidence| it.first_byte_seconds = 20.0;
    check(bodies, Limit::Bandwidth, &["102.4 MiB", "170.7 MiB are needed"]);
    let many = |it: &mut Evidence| {
        it.request_seconds = 600.0;
        it.first_byte_seconds = 540.0;
        it.requests = 6000.0;
        it.answers = 6000.0;
    };
    check(many, Limit::Requests, &["all 64 requests", "fetch.concurrency to 107 or more"]);
    check(|it| it.held_back_seconds = 6.0, Limit::Memory, &["compressed"]);
}

#[test]
fn each_limit_has_a_word_of_its_own_which_reports_have_too() {
    let words: std::collections::BTreeSet<_> = Limit::ALL.map(Limit::word).into();
    assert_eq!(words.len(), Limit::ALL.len());
    for limit in Limit::ALL {
        assert_eq!(serde_json::to_value(limit).unwrap(), limit.word());
    }
}
