//! What is said of a bottleneck: what it is, by which numbers, and what to change by how much.

use super::{Evidence, Limit};
use crate::error::Bytes;

/// Of so many times as much it is only said that it is more.
const PLENTY: f64 = 10.0;

/// Share of the rooms' time from which on it is worth to do less of it here.
const WORTH: f64 = 0.25;

/// Cores that other threads of the process have, from which on it is told.
const OTHER_THREADS: f64 = 0.2;

/// As many whole ones as there have to be; a quotient that is a hair over one is that one.
fn whole(number: f64) -> f64 {
    (number - 1e-6).ceil()
}

/// A number of things.
fn some(count: f64, thing: &str) -> String {
    format!("{count:.0} {thing}{}", if count > 1.0 { "s" } else { "" })
}

impl Evidence {
    /// A limit, and what would help, with numbers.
    pub(super) fn words(&self, limit: Limit) -> String {
        let wait = format!("the trainer waits {:.1} %", self.wait() * 100.0);
        let (workers, busy) = (self.workers, self.busy() * 100.0);
        let request = self.each_request() * 1e3;
        match limit {
            Limit::Trainer => format!(
                "{wait}: it is the limit itself; the workers ({workers}) are busy {busy:.0} % of the time"
            ),
            Limit::HandOver => self.hand_over(&wait),
            Limit::Network => format!(
                "{wait}: the network card of this node is the limit, batches are finished elsewhere and on \
                 their way; use vision.pixels = \"u8\", or more workers on this node (placement = \"local\")"
            ),
            Limit::Cores => self.cores(&wait),
            Limit::BusyMachine => self.busy_machine(&wait),
            Limit::LargeImage => format!(
                "{wait}: batches wait for single large images while other workers are idle (busy \
                 {busy:.0} % of {workers}); lower vision.max-pixels or image.max-pixels, or put more \
                 samples into a batch"
            ),
            Limit::Memory => format!(
                "{wait}: memory is the limit, {} for batches and {} for compressed samples; raise \
                 engine.memory, or let go of batches sooner",
                Bytes(self.batch_limit_bytes as u64),
                Bytes(self.compressed_limit_bytes as u64)
            ),
            Limit::Throttling => format!(
                "{wait}: the store refuses {:.0} of {:.0} requests for now; spread the objects over more \
                 prefixes, pack them into larger shards, or ask for a higher limit",
                self.throttled, self.requests
            ),
            Limit::Requests => {
                let enough = self.pace_needed().map_or_else(String::new, |times| {
                    format!(" to {:.0} or more", whole(times * self.most_requests))
                });
                let most = self.most_requests;
                let what = if self.requests > 0.0 {
                    format!(
                        "all {most:.0} requests that may be in flight are, and one takes {request:.0} ms"
                    )
                } else {
                    format!("all {most:.0} reads that may go on at once do")
                };
                format!(
                    "{wait}: {what}; raise fetch.concurrency{enough}, or pack samples into larger shards"
                )
            }
            Limit::Bandwidth => {
                let rate = |rate: f64| Bytes(rate as u64);
                let needed = self.pace_needed().map_or_else(String::new, |times| {
                    format!(" where {} are needed", rate(times * self.rate()))
                });
                format!(
                    "{wait}: the network is the limit, {} come in a second{needed}; use smaller images, a \
                     local cache (fetch.cache), or data workers on other machines (stoker.ray)",
                    rate(self.rate())
                )
            }
            Limit::Latency => self.latency(&wait, request),
        }
    }

    fn hand_over(&self, wait: &str) -> String {
        let each = self.hand_over_blocked_seconds / self.batches * 1e3;
        format!(
            "{wait}: the hand-over is the limit, batches are finished and take {each:.1} ms to the trainer's \
             thread; other threads of its process keep it (or the GIL) from running: move their work into \
             another process, lower sys.setswitchinterval, or put more samples into a batch"
        )
    }

    fn latency(&self, wait: &str, request: f64) -> String {
        // By Little's law: so many batches are on their way in the time that one takes.
        let step = (self.wall_seconds - self.blocked_seconds) / self.batches;
        let ahead = self.bringing_seconds / self.batches / step;
        let enough = match self.pace_needed() {
            Some(_) if ahead.is_finite() => format!(" to {:.0} or more", whole(ahead) + 1.0),
            _ => String::new(),
        };
        let helps = if self.data_workers > 0.0 {
            "have more data workers, or raise prefetch_bytes, so that more is on its way".to_owned()
        } else {
            format!("raise engine.prefetch{enough}, and engine.memory with it")
        };
        let (at_once, what) = (self.in_flight(), "the store's slow answers come late");
        if self.requests > 0.0 {
            format!(
                "{wait}: {what} ({request:.0} ms in the mean, {at_once:.1} requests in flight); {helps}"
            )
        } else {
            format!("{wait}: {what} ({at_once:.1} reads at a time); {helps}")
        }
    }

    fn busy_machine(&self, wait: &str) -> String {
        let (had, wanted) = (self.cores_had(), self.cpu_seconds / self.wall_seconds);
        let process = self.process_seconds / self.wall_seconds - had;
        let own = if process >= OTHER_THREADS {
            format!("; other threads of its process have {process:.1}")
        } else {
            String::new()
        };
        let enough = self
            .pace_needed()
            .map_or_else(String::new, |pace| format!(", {:.1} would end the wait", pace * had));
        let helps = if self.data_workers > 0.0 {
            "end what else runs where the data workers are, or have more of these elsewhere"
        } else {
            "end what else runs on this machine, or give this job more cores (a container's limit counts \
             too)"
        };
        format!(
            "{wait}: others have the cores, the loader has work for {wanted:.1} and gets \
             {had:.1}{enough}{own}; {helps}"
        )
    }

    fn cores(&self, wait: &str) -> String {
        let (image, vision, other) = (self.image_seconds, self.vision_seconds, self.other_seconds);
        let all = (image + vision + other).max(f64::MIN_POSITIVE);
        let (room, part) =
            [("decoding", image), ("resizing and patches", vision), ("text and lines", other)]
                .into_iter()
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .expect("there are three");
        let workers = self.workers;
        // More workers than cores do as much as these allow.
        let at_once = if self.usable_cores > 0.0 { self.usable_cores } else { workers };
        let each = at_once / self.engines();
        let needed = self.pace_needed().map(|pace| (pace, whole(at_once * (pace - 1.0))));
        let helps = match needed {
            Some((_, more)) => {
                let cores = some(more, "more core");
                let others = some(whole(more / each), "data worker");
                let size = some(each.round(), "core");
                if self.data_workers > 0.0 {
                    format!("{cores} end it: {others} of {size}")
                } else {
                    format!("{cores} here end it, or {others} of {size} (stoker.ray)")
                }
            }
            None if self.data_workers > 0.0 => "more data workers make it faster".to_owned(),
            None => "more cores, here or as data workers (stoker.ray), make it faster".to_owned(),
        };
        let u8 = if self.u8_workers < workers && vision > WORTH * all {
            "; vision.pixels = \"u8\" leaves the last step to the device"
        } else {
            ""
        };
        format!(
            "{wait}: cores are the limit, {workers} of {workers} workers are busy, {:.0} % of it with \
             {room}{}; {helps}{u8}",
            100.0 * part / all,
            self.store(needed.map(|(pace, _)| pace))
        )
    }

    /// What the store could give.
    fn store(&self, needed: Option<f64>) -> String {
        let Some(times) = self.store_could_give() else { return String::new() };
        let short = needed.is_some_and(|needed| times < needed);
        let next = if short { ", less than is needed: the next limit" } else { "" };
        if times >= PLENTY {
            format!(", the store could give more than {PLENTY} times as much")
        } else {
            format!(", the store could give {times:.1} times as much{next}")
        }
    }
}
