//! The stage table: what each part of a loader did over the latest batches, and what it waited for.
//!
//! A loader has three parts that work by themselves, with a queue between each two. *Fetch* has a number of
//! requests that may be in flight, and what it brings waits to be filled. *Workers* are threads that do
//! all that needs a processor, and what they finish waits for the trainer. *Deliver* hands that over. Each
//! is busy, waits for what it is to work on, or waits since what comes after it is full: then it is not
//! what limits. Where a part has its means from a gauge at hand-overs or from times that are added up at
//! their end, so do the figures; what works, waits and idles is exact ([`super::occupancy`]).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::waits::{Span, Waits};
use super::{Metrics, Room};
use crate::error::Bytes;

/// Share of the workers' time without a core from which on people are told of it.
const SHOWN: f64 = 0.05;

/// The stages over the window of the latest batches (1024 at most). Shares are of its time, means are over
/// its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stages {
    /// Batches of the window.
    pub batches: u64,
    /// Its length.
    pub seconds: f64,
    /// Requests.
    pub fetch: FetchStage,
    /// Threads.
    pub workers: WorkersStage,
    /// The way to the trainer.
    pub deliver: DeliverStage,
}

/// What requests did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchStage {
    /// Requests that may be in flight now.
    pub limit_requests: u64,
    /// Requests in flight.
    pub in_flight_requests: f64,
    /// Requests that wait to be sent.
    pub queued_requests: f64,
    /// Share of those that may be in flight which are.
    pub busy_share: f64,
    /// Reads that wait for memory for their bytes.
    pub held_back_reads: f64,
    /// Share of the time in which some did.
    pub held_back_share: f64,
    /// Share of the time in which all batches that are begun had their samples, so that there was nothing
    /// to fetch.
    pub full_share: f64,
    /// Batches whose samples wait to be filled.
    pub brought_batches: f64,
    /// Share of the time in which there were none.
    pub brought_empty_share: f64,
    /// Requests sent, retries among them.
    pub requests_per_second: f64,
    /// Bytes that came.
    pub bytes_per_second: f64,
    /// How long a request takes.
    pub request_seconds: Option<f64>,
    /// Of it, until the headers of a good answer.
    pub first_byte_seconds: Option<f64>,
    /// How long it takes to bring in the samples of a batch.
    pub batch_seconds: f64,
}

/// What worker threads did; shares are of the time of all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkersStage {
    /// Threads.
    pub threads: u64,
    /// They worked.
    pub busy_share: f64,
    /// They had work and no core. It counts when a task is done, and is mostly in the share that they worked.
    #[serde(default)]
    pub delayed_share: f64,
    /// They waited for samples.
    pub input_share: f64,
    /// They waited for memory to fill.
    pub memory_share: f64,
    /// They waited while others had all that there was to fill: in one large image, or the last of a batch.
    pub others_share: f64,
    /// They waited since all that may be made was finished: for the trainer.
    pub trainer_share: f64,
    /// Tasks that wait for a worker.
    pub queued_tasks: f64,
    /// Images decoded.
    pub images_per_second: f64,
    /// Bytes of patches written.
    pub bytes_per_second: f64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeliverStage {
    /// Batches that are finished; the one that the trainer waits for may not be among them.
    pub ready_batches: f64,
    /// Share of the time in which there was none.
    pub empty_share: f64,
    /// Share of the time in which finished batches were on their way to a trainer that waited.
    pub busy_share: f64,
    /// Share of the time in which the trainer waited for a batch in the making.
    pub input_share: f64,
    /// Share of the time that was the trainer's own.
    pub trainer_share: f64,
    /// Batches handed over.
    pub batches_per_second: f64,
    /// Samples of them.
    pub samples_per_second: f64,
    /// Bytes of them.
    pub bytes_per_second: f64,
}

impl Stages {
    /// Of a loader that makes its batches itself, from the second batch on.
    pub(super) fn of(metrics: &Metrics, waits: &Waits) -> Option<Self> {
        let workers = metrics.limits.get()?.workers;
        let span = waits.span().filter(|span| !span.wall.is_zero())?;
        Some(Self::over(&span, workers, metrics.fetch.limit.get()))
    }

    pub(super) fn over(span: &Span, threads: u64, limit_requests: u64) -> Self {
        let Span { batches, blocked, wall, blame, work, .. } = span;
        let seconds = wall.as_secs_f64();
        let mean = |time: Duration| time.as_secs_f64() / seconds;
        let share = |time: Duration| mean(time).min(1.0);
        let of_workers = |time: Duration| (mean(time) / threads.max(1) as f64).min(1.0);
        let rate = |count: u64| count as f64 / seconds;
        let each =
            |time: Duration, count: u64| (count > 0).then(|| time.as_secs_f64() / count as f64);
        let spent = &work.spent;
        let (image, vision) = (work.room(Room::Image), work.room(Room::Vision));
        Self {
            batches: *batches,
            seconds,
            fetch: FetchStage {
                limit_requests,
                in_flight_requests: mean(work.in_flight()),
                queued_requests: mean(work.queued_requests),
                busy_share: (mean(work.in_flight()) / limit_requests.max(1) as f64).min(1.0),
                held_back_reads: mean(spent.held_back),
                held_back_share: share(spent.some_held_back),
                full_share: share(spent.all_brought),
                brought_batches: mean(spent.brought),
                brought_empty_share: share(spent.none_brought),
                requests_per_second: rate(work.requests),
                bytes_per_second: rate(work.bytes()),
                request_seconds: each(work.in_flight(), work.requests),
                first_byte_seconds: each(work.first_bytes, work.answers),
                batch_seconds: spent.bringing.as_secs_f64() / (*batches).max(1) as f64,
            },
            workers: WorkersStage {
                threads,
                busy_share: of_workers(spent.working),
                delayed_share: of_workers(work.delayed),
                input_share: of_workers(spent.idle_input),
                memory_share: of_workers(spent.idle_memory),
                others_share: of_workers(spent.idle_others),
                trainer_share: of_workers(spent.idle_trainer),
                queued_tasks: mean(work.queued_tasks),
                images_per_second: rate(image.items),
                bytes_per_second: rate(vision.bytes),
            },
            deliver: DeliverStage {
                ready_batches: mean(spent.ready),
                empty_share: share(spent.none_ready),
                busy_share: share(blame.hand_over),
                input_share: share(blocked.saturating_sub(blame.hand_over)),
                trainer_share: share(wall.saturating_sub(*blocked)),
                batches_per_second: rate(*batches),
                samples_per_second: rate(work.samples),
                bytes_per_second: rate(work.batch_bytes),
            },
        }
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fetch, workers, deliver, .. } = self;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let none = || "-".to_owned();
        let per_second = |bytes: f64| format!("{}/s", Bytes(bytes as u64));
        writeln!(f, "the last {} steps, {:.2} s:", self.batches, self.seconds)?;
        let mut row = |cells: [String; 7], rate: String| {
            let [stage, busy, input, memory, others, trainer, queue] = cells;
            writeln!(
                f,
                "{stage:<8} {busy:>7} {input:>9} {memory:>10} {others:>10} {trainer:>11}  {queue:<30} \
                 {rate}"
            )
        };
        let head =
            ["stage", "busy", "for input", "for memory", "for others", "for trainer", "then waits"];
        row(head.map(str::to_owned), "rate".to_owned())?;
        row(
            [
                "fetch".to_owned(),
                percent(fetch.busy_share),
                none(),
                percent(fetch.held_back_share),
                none(),
                percent(fetch.full_share),
                format!(
                    "{:.1} batches (none {})",
                    fetch.brought_batches,
                    percent(fetch.brought_empty_share)
                ),
            ],
            format!(
                "{:.1} requests/s, {}, {:.1} of {} in flight",
                fetch.requests_per_second,
                per_second(fetch.bytes_per_second),
                fetch.in_flight_requests,
                fetch.limit_requests
            ),
        )?;
        row(
            [
                "workers".to_owned(),
                percent(workers.busy_share),
                percent(workers.input_share),
                percent(workers.memory_share),
                percent(workers.others_share),
                percent(workers.trainer_share),
                format!(
                    "{:.1} batches (none {})",
                    deliver.ready_batches,
                    percent(deliver.empty_share)
                ),
            ],
            format!(
                "{:.1} images/s, {}, {:.1} tasks queued for {}",
                workers.images_per_second,
                per_second(workers.bytes_per_second),
                workers.queued_tasks,
                workers.threads
            ),
        )?;
        row(
            [
                "deliver".to_owned(),
                percent(deliver.busy_share),
                percent(deliver.input_share),
                none(),
                none(),
                percent(deliver.trainer_share),
                none(),
            ],
            format!(
                "{:.1} batches/s, {:.1} samples/s, {}",
                deliver.batches_per_second,
                deliver.samples_per_second,
                per_second(deliver.bytes_per_second)
            ),
        )?;
        if workers.delayed_share >= SHOWN {
            let share = percent(workers.delayed_share);
            writeln!(f, "workers had work and no core for {share} of their time")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::blame::Blame;
    use super::super::occupancy::Spent;
    use super::super::work::{RoomWork, Work};
    use super::*;

    #[test]
    fn shares_are_of_time_and_rates_of_seconds() {
        let seconds = Duration::from_secs;
        let mut work = Work {
            queued_tasks: seconds(20),
            first_bytes: seconds(40),
            answers: 100,
            requests: 110,
            samples: 80,
            batch_bytes: 10 << 20,
            spent: Spent {
                brought: seconds(50),
                ready: seconds(15),
                held_back: seconds(25),
                working: seconds(30),
                idle_input: seconds(4),
                idle_memory: seconds(3),
                idle_others: seconds(2),
                idle_trainer: seconds(1),
                none_brought: seconds(1),
                none_ready: seconds(2),
                some_held_back: seconds(5),
                all_brought: seconds(3),
                bringing: seconds(30),
            },
            delayed: seconds(4),
            ..Work::default()
        };
        work.rooms[Room::Fetch as usize] =
            RoomWork { busy: seconds(80), items: 100, bytes: 20 << 20 };
        work.rooms[Room::Image as usize].items = 160;
        work.rooms[Room::Vision as usize].bytes = 30 << 20;
        let blame = Blame { hand_over: seconds(1), ..Blame::default() };
        let span = Span {
            batches: 10,
            blocked: seconds(3),
            wall: seconds(10),
            blame,
            work,
            ..Span::default()
        };
        let stages = Stages::over(&span, 4, 16);
        assert_eq!(
            stages.fetch,
            FetchStage {
                limit_requests: 16,
                in_flight_requests: 8.0,
                queued_requests: 0.0,
                busy_share: 0.5,
                held_back_reads: 2.5,
                held_back_share: 0.5,
                full_share: 0.3,
                brought_batches: 5.0,
                brought_empty_share: 0.1,
                requests_per_second: 11.0,
                bytes_per_second: f64::from(2 << 20),
                request_seconds: Some(80.0 / 110.0),
                first_byte_seconds: Some(0.4),
                batch_seconds: 3.0,
            }
        );
        assert_eq!(
            stages.workers,
            WorkersStage {
                threads: 4,
                busy_share: 0.75,
                delayed_share: 0.1,
                input_share: 0.1,
                memory_share: 0.075,
                others_share: 0.05,
                trainer_share: 0.025,
                queued_tasks: 2.0,
                images_per_second: 16.0,
                bytes_per_second: f64::from(3 << 20),
            }
        );
        assert_eq!(
            stages.deliver,
            DeliverStage {
                ready_batches: 1.5,
                empty_share: 0.2,
                busy_share: 0.1,
                input_share: 0.2,
                trainer_share: 0.7,
                batches_per_second: 1.0,
                samples_per_second: 8.0,
                bytes_per_second: f64::from(1 << 20),
            }
        );
        let words = stages.to_string();
        assert!(words.contains("8.0 of 16 in flight"), "{words}");
        assert!(words.contains("no core for 10 %"), "{words}");
        work.delayed = Duration::ZERO;
        let undisturbed = Stages::over(&Span { work, ..span }, 4, 16).to_string();
        assert!(!undisturbed.contains("no core"), "{undisturbed}");
        assert!(words.lines().all(|line| line.len() < 150), "{words}");
    }
}
