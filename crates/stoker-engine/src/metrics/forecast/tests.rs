//! Held by sums done by hand, and by a simulation that knows of no floors: samples that queue for slots,
//! for the line and for workers, one after the other, and a trainer that asks.

use std::collections::BTreeMap;

use super::*;

fn cost() -> Cost {
    Cost {
        samples: 8.0,
        worker_seconds: 0.19,
        delayed_seconds: 0.0,
        other_seconds: 0.01,
        fetched_bytes: 2e6,
        shipped_bytes: 8e6,
        requests: 16.0,
        request_seconds: 0.03,
        alone_seconds: 0.25,
        flat_out: FlatOut { seconds: 0.1, limit: Limit::Cores, workers: 2.0, busy: 0.95 },
    }
}

fn machine() -> Machine {
    Machine {
        ranks: 4,
        cores: 64.0,
        workers: None,
        network: None,
        requests: 64.0,
        ahead: Ahead { batches: 32.0, lead: Some(Duration::from_millis(500)), filled: 4.0 },
        memory: 4e9,
    }
}

fn job(gpus: u64, step_seconds: f64) -> Job {
    Job { gpus, step_seconds }
}

#[track_caller]
fn check(cost: &Cost, machine: &Machine, job: Job, limit: Limit, seconds: f64) -> Forecast {
    let forecast = Forecast::of(cost, machine, job);
    assert_eq!(forecast.limit, limit, "{forecast:?}");
    assert!((forecast.seconds - seconds).abs() < 1e-9, "{forecast:?}");
    let wait = 1.0 - job.step_seconds / seconds;
    assert!((forecast.wait - wait).abs() < 1e-9, "{forecast:?}");
    forecast
}

#[test]
fn a_trainer_that_is_slower_than_all_else_does_not_wait() {
    let forecast = check(&cost(), &machine(), job(4, 0.5), Limit::Trainer, 0.5);
    // 4 ranks x (0.19 / 0.95 + 0.01) / 0.5
    assert_eq!([forecast.needs.cores, forecast.needs.workers].map(|it| it as u64), [2, 1]);
    assert_eq!(forecast.needs.data_nodes, Some(0));
}

#[test]
fn cores_are_shared_by_the_ranks_of_a_node() {
    let two = Machine { cores: 2.0, ..machine() };
    // One worker for each of two ranks, which can work 95 % of its time: 0.19 / 0.95.
    let forecast = check(&cost(), &two, job(2, 0.1), Limit::Cores, 0.2);
    assert_eq!([forecast.needs.cores, forecast.needs.workers].map(|it| it as u64), [5, 2]);
    // A rank by itself has both; four have half a core each, whatever their number of workers.
    check(&cost(), &two, job(1, 0.05), Limit::Cores, 0.1);
    check(&cost(), &two, job(4, 0.1), Limit::Cores, 4.0 * 0.2 / 2.0);
    // More nodes like it make no rank wait longer.
    check(&cost(), &two, job(400, 0.1), Limit::Cores, 0.4);
}

#[test]
fn a_card_is_shared_by_the_ranks_of_a_node_and_by_no_other() {
    let narrow = Machine { network: Some(80e6 / PAYLOAD), ..machine() };
    // 2 MB at 10 MB/s, for each rank.
    for (gpus, ranks) in [(1, 1.0), (3, 3.0), (4, 4.0), (64, 4.0)] {
        let forecast = check(&cost(), &narrow, job(gpus, 0.1), Limit::Bandwidth, 0.2 * ranks);
        assert!((forecast.needs.network * PAYLOAD - ranks * 160e6).abs() < 1.0);
        assert!((forecast.needs.store_bytes - gpus as f64 * 20e6).abs() < 1.0);
        assert!((forecast.needs.store_requests - gpus as f64 * 160.0).abs() < 1e-6);
    }
}

#[test]
fn requests_are_limited_for_each_rank() {
    let few = Machine { requests: 2.0, ..machine() };
    let forecast = check(&cost(), &few, job(4, 0.06), Limit::Requests, 16.0 * 0.03 / 2.0);
    assert_eq!(forecast.needs.requests as u64, 8);
}

#[test]
fn a_loader_that_is_one_batch_ahead_waits_for_what_does_not_fit_into_two_steps() {
    let ahead =
        |batches, lead| Machine { ahead: Ahead { batches, lead, ..machine().ahead }, ..machine() };
    let short = job(1, 0.1);
    let forecast =
        check(&cost(), &ahead(1.0, None), short, Limit::Latency, f64::midpoint(0.25, 0.1));
    assert_eq!(forecast.needs.ahead as u64, 3);
    check(&cost(), &ahead(0.0, None), short, Limit::Latency, 0.25 + 0.1);
    check(&cost(), &ahead(3.0, None), short, Limit::Trainer, 0.1);
    // One that chooses brings in half a second's batches, however few it would begin with.
    check(&cost(), &ahead(1.0, machine().ahead.lead), short, Limit::Trainer, 0.1);
    let slow = Cost { alone_seconds: 0.9, ..cost() };
    check(&slow, &ahead(0.0, machine().ahead.lead), short, Limit::Latency, 0.9 + 0.1 - 0.5);
}

#[test]
fn memory_for_two_batches_in_flight_is_like_one_batch_ahead() {
    let small = Machine { memory: 4.0 * 2.0 * 2e6, ..machine() };
    let forecast = check(&cost(), &small, job(1, 0.1), Limit::Memory, f64::midpoint(0.25, 0.1));
    // Room for 3 batches and the one that is asked for; or for six finished ones, which is more.
    assert!((forecast.needs.memory - 6.0 * 8e6 * 4.0 / 3.0).abs() < 1.0);
}

#[test]
fn what_was_seen_without_a_trainer_holds_with_one() {
    let seen =
        |limit| Cost { flat_out: FlatOut { limit, seconds: 0.4, ..cost().flat_out }, ..cost() };
    check(&seen(Limit::LargeImage), &machine(), job(4, 0.1), Limit::LargeImage, 0.4);
    check(&seen(Limit::Throttling), &machine(), job(8, 0.1), Limit::Throttling, 8.0 * 0.4);
    check(&seen(Limit::Bandwidth), &machine(), job(8, 0.1), Limit::Bandwidth, 4.0 * 0.4);
    let wide = Machine { network: Some(100e9), ..machine() };
    check(&seen(Limit::Bandwidth), &wide, job(8, 0.1), Limit::Trainer, 0.1);
    // Requests in flight are counted by themselves: more may be allowed than where it was measured.
    check(&seen(Limit::Requests), &machine(), job(8, 0.1), Limit::Trainer, 0.1);
}

#[test]
fn nodes_that_only_load_help_where_cores_are_short_and_the_card_has_room() {
    let of =
        |cost: &Cost, machine: &Machine, job| Forecast::of(cost, machine, job).needs.data_nodes;
    // Ten batches a second, and a node makes 2 * 0.95 / 0.2 = 9.5 of them.
    let two = Machine { cores: 2.0, ranks: 1, ..machine() };
    assert_eq!(of(&cost(), &two, job(1, 0.1)), Some(1));
    assert_eq!(of(&cost(), &two, job(1, 0.025)), Some(4), "30.5 of 40 come from elsewhere");
    // What is shipped has to cross the card: 9.5 x 2 MB + 0.5 x 8 MB = 23 MB.
    let card = |bytes: f64| Machine { network: Some(bytes * 8.0 / PAYLOAD), ..two.clone() };
    assert_eq!(of(&cost(), &card(23.1e6), job(1, 0.1)), Some(1));
    assert_eq!(of(&cost(), &card(22.9e6), job(1, 0.1)), None, "floats over the wire");
    // With a ratio of a half, other cards bring in twice of what one does, and no more.
    let u8 = Cost { worker_seconds: 1e-3, other_seconds: 0.0, shipped_bytes: 1e6, ..cost() };
    assert_eq!(of(&u8, &card(20e6), job(1, 1.0 / 15.0)), Some(1), "5 here, 10 there");
    assert_eq!(of(&u8, &card(20e6), job(1, 0.05)), Some(2), "all there: the card is full");
    assert_eq!(of(&u8, &card(20e6), job(1, 0.049)), None);
}

/// Numbers that are the same everywhere (splitmix64).
struct Random(u64);

impl Random {
    /// Uniform, from 0 to 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// As often small as large.
    fn log(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.share())
    }
}

/// A loader and its trainer, sample by sample.
struct Simulation {
    samples: usize,
    /// Of one sample: seconds until its first byte, bytes, seconds of a worker.
    latency: f64,
    bytes: f64,
    work: f64,
    /// By how much these vary, as a share of them.
    jitter: f64,
    slots: usize,
    bandwidth: f64,
    workers: usize,
    ahead: usize,
}

impl Simulation {
    /// What a trainer with that step sees of so many batches.
    fn run(&self, step: f64, batches: usize, seed: u64) -> Seen {
        let mut random = Random(seed);
        let mut varied = |mean: f64| mean * (1.0 + self.jitter * (2.0 * random.share() - 1.0));
        let (mut slots, mut workers) = (vec![0.0; self.slots], vec![0.0; self.workers]);
        let (mut line, mut asked, mut ask) = (0.0_f64, Vec::new(), 0.0_f64);
        let (mut waited, mut held, mut from) = (0.0, 0.0, 0.0);
        // What begins with a full store of batches is left out.
        let warm = 3 * (self.ahead + 1);
        for batch in 0..batches + warm {
            if batch == warm {
                from = ask;
            }
            asked.push(ask);
            // It is known only now who asked for the batch with which this one is begun, so a batch is
            // gone through when it is asked for; what came later does not overtake it.
            let begun = batch.checked_sub(self.ahead).map_or(0.0, |first| asked[first]);
            let mut ready = begun;
            for _ in 0..self.samples {
                let slot = least(&mut slots);
                let sent = slot.max(begun);
                line = line.max(sent + varied(self.latency)) + varied(self.bytes) / self.bandwidth;
                *slot = line;
                held += line - sent;
                let worker = least(&mut workers);
                *worker = worker.max(line) + varied(self.work);
                ready = ready.max(*worker);
            }
            let wait = (ready - ask).max(0.0);
            if batch >= warm {
                waited += wait;
            }
            ask += wait + step;
        }
        let requests = (batches + warm) * self.samples;
        Seen {
            pace: (ask - from) / batches as f64,
            wait: waited / (ask - from),
            request_seconds: held / requests as f64,
        }
    }

    /// What would be measured of it where the network is no limit.
    fn cost(&self) -> Cost {
        let wide = Self { bandwidth: 1e12, ..*self };
        let alone = Self { ahead: 0, ..wide }.run(0.0, 200, 7);
        let flat_out = wide.run(0.0, 200, 8);
        let worker_seconds = self.work * self.samples as f64;
        let busy = worker_seconds / (flat_out.pace * self.workers as f64);
        let limit = if busy >= BUSY { Limit::Cores } else { Limit::Requests };
        Cost {
            samples: self.samples as f64,
            worker_seconds,
            delayed_seconds: 0.0,
            other_seconds: 0.0,
            fetched_bytes: self.bytes * self.samples as f64,
            shipped_bytes: 0.0,
            requests: self.samples as f64,
            request_seconds: alone.request_seconds,
            alone_seconds: alone.pace,
            flat_out: FlatOut { seconds: flat_out.pace, limit, workers: self.workers as f64, busy },
        }
    }

    fn machine(&self) -> Machine {
        Machine {
            ranks: 1,
            cores: self.workers as f64,
            workers: None,
            network: Some(self.bandwidth * 8.0 / PAYLOAD),
            requests: self.slots as f64,
            ahead: Ahead { batches: self.ahead as f64, lead: None, filled: 4.0 },
            memory: 1e12,
        }
    }
}

/// What a trainer saw.
struct Seen {
    /// Seconds a batch.
    pace: f64,
    /// Share of the time.
    wait: f64,
    /// From sending to the last byte.
    request_seconds: f64,
}

fn least(times: &mut [f64]) -> &mut f64 {
    times.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there is one")
}

#[test]
fn forecasts_agree_with_a_simulation_that_knows_of_no_floors() {
    let (mut named, mut off) = (BTreeMap::<&str, u32>::new(), Vec::new());
    for seed in 0..300 {
        let mut random = Random(1000 + seed);
        let mut log = |from, to| random.log(from, to);
        let simulation = Simulation {
            samples: log(4.0, 32.0) as usize,
            latency: log(0.005, 0.2),
            bytes: log(1e4, 1e6),
            work: log(0.001, 0.03),
            jitter: 0.3,
            slots: log(2.0, 64.0) as usize,
            bandwidth: log(2e6, 1e9),
            workers: log(1.0, 16.0) as usize,
            ahead: log(1.0, 32.0) as usize,
        };
        let step = simulation.run(0.0, 400, seed).pace * log(0.3, 1.5);
        let Seen { wait, .. } = simulation.run(step, 400, seed);
        let forecast = Forecast::of(&simulation.cost(), &simulation.machine(), job(1, step));
        *named.entry(forecast.limit.word()).or_default() += 1;
        off.push((forecast.wait - wait).abs());
        let allowed = (0.15 * wait).max(0.07);
        assert!(off[off.len() - 1] <= allowed, "seed {seed}: {wait:.3}, {forecast:?}");
    }
    let mean = off.iter().sum::<f64>() / off.len() as f64;
    assert!(mean < 0.01, "{mean}");
    for limit in ["trainer", "cores", "bandwidth", "requests", "latency"] {
        assert!(named.get(limit).is_some_and(|count| *count >= 5), "{named:?}");
    }
}
