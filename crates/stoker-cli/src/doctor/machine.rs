//! What a process may use of its machine, and whether that is enough for a recipe.
//!
//! [`Facts`] is all that is looked up, as a value: what follows from it is a function, so that small
//! machines and wrong clocks are tested without having one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use stoker_engine::error::Bytes;
use stoker_engine::loader;
use stoker_engine::recipe::Recipe;

use super::finding::Finding;
use crate::outcome::USAGE;

/// Shared memory that Ray and the workers of a `DataLoader` can do with.
const SHARED: u64 = 1 << 30;

/// Files that a process has open besides its connections: libraries, data, the trainer's own.
const OTHER_FILES: u64 = 128;

/// Threads of a loader besides its workers.
const OTHER_THREADS: u64 = 24;

/// What was looked up. `None` is: not known, or as much as one likes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    /// Cores that the process may run on, its control group's quota taken into account.
    pub(super) cores: u64,
    /// Cores of the machine.
    pub(super) all_cores: u64,
    /// Cores' worth of time that its control group gives.
    pub(super) quota: Option<f64>,
    /// Bytes of the machine's memory, and what is free of it.
    pub(super) memory: Option<u64>,
    pub(super) free_memory: Option<u64>,
    /// Bytes that its control group may have.
    pub(super) memory_limit: Option<u64>,
    /// Bytes of `/dev/shm`; 0 where there is none.
    pub(super) shared_memory: Option<u64>,
    /// Files that the process may have open, and to what it may raise that itself.
    pub(super) files: Option<u64>,
    pub(super) most_files: Option<u64>,
    /// Threads that its control group may still begin.
    pub(super) threads: Option<u64>,
    /// The time of its clock, in seconds since 1970.
    pub(super) now: i64,
}

impl Facts {
    /// Those of this process.
    pub(super) fn here() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the clock is what is looked at")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
        Self { now: now.as_secs() as i64, cores, ..Self::below(Path::new("/")) }
    }

    /// What the files of a system say that is mounted there.
    fn below(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let limits = text("proc/self/limits");
        let cpus =
            text("proc/cpuinfo").lines().filter(|line| line.starts_with("processor")).count();
        let groups = Groups::find(root, &text("proc/self/cgroup"));
        Self {
            cores: cpus.max(1) as u64,
            all_cores: cpus.max(1) as u64,
            quota: groups.quota(),
            memory: kib(&text("proc/meminfo"), "MemTotal:"),
            free_memory: kib(&text("proc/meminfo"), "MemAvailable:"),
            memory_limit: groups.least("memory.max").or(groups.least("memory.limit_in_bytes")),
            shared_memory: shared_memory(&text("proc/self/mounts"), &text("proc/meminfo")),
            files: limit(&limits, "Max open files", 0),
            most_files: limit(&limits, "Max open files", 1),
            threads: groups.threads(),
            now: 0,
        }
    }

    /// Bytes of memory that the process may use.
    fn usable_memory(&self) -> Option<u64> {
        [self.memory, self.memory_limit].into_iter().flatten().min()
    }
}

/// The folders of the control groups that a process is in, from its own up.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// Of version 2; of version 1 those that count for memory. In a container the folder at the top is its own.
    fn find(root: &Path, told: &str) -> Self {
        let top = root.join("sys/fs/cgroup");
        let path = told.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let own = top.join(path);
        let mut folders: Vec<_> =
            own.ancestors().take_while(|it| it.starts_with(&top)).map(Path::to_owned).collect();
        folders.push(top.join("memory"));
        Self(folders)
    }

    fn least(&self, file: &str) -> Option<u64> {
        self.0.iter().filter_map(|folder| number(folder, file)).min()
    }

    /// Threads that may be begun besides those that there are, in each of the groups.
    fn threads(&self) -> Option<u64> {
        let left = |folder: &PathBuf| {
            let most = number(folder, "pids.max")?;
            Some(most.saturating_sub(number(folder, "pids.current").unwrap_or(0)))
        };
        self.0.iter().filter_map(left).min()
    }

    fn quota(&self) -> Option<f64> {
        let quotas = self.0.iter().filter_map(|folder| {
            let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
        });
        quotas.min_by(f64::total_cmp)
    }
}

/// A number in a file of a control group. No limit is `max`, and in version 1 a number that no machine has.
fn number(folder: &Path, file: &str) -> Option<u64> {
    let number = fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok()?;
    (number < 1 << 60).then_some(number)
}

fn kib(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(field))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// A column of a line of `/proc/self/limits`, behind its name.
fn limit(text: &str, name: &str, column: usize) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

/// What `/dev/shm` may hold: what it was mounted with, or half of all memory.
fn shared_memory(mounts: &str, meminfo: &str) -> Option<u64> {
    let mount = mounts.lines().find(|line| line.split(' ').nth(1) == Some("/dev/shm"));
    let Some(mount) = mount else { return (!mounts.is_empty()).then_some(0) };
    let options = mount.split(' ').nth(3).unwrap_or_default();
    let size = options.split(',').find_map(|option| option.strip_prefix("size="));
    match size {
        Some(size) => {
            let (number, unit) = size.split_at(size.trim_end_matches(char::is_alphabetic).len());
            let shift = match unit {
                "k" => 10,
                "m" => 20,
                "g" => 30,
                _ => 0,
            };
            Some(number.parse::<u64>().ok()? << shift)
        }
        None => kib(meminfo, "MemTotal:").map(|memory| memory / 2),
    }
}

/// Whether the machine is enough for a recipe.
pub(super) fn checks(facts: &Facts, recipe: &Recipe) -> Vec<Finding> {
    vec![
        cores(facts, recipe),
        memory(facts, recipe),
        shared(facts),
        files(facts, recipe),
        threads(facts, recipe),
    ]
}

fn ranks(recipe: &Recipe) -> u64 {
    recipe.engine.local_world_size.unwrap_or(1).max(1).into()
}

/// Whose that is.
fn of_each(ranks: u64) -> String {
    if ranks == 1 { String::new() } else { format!(" for each of {ranks} ranks") }
}

fn workers(facts: &Facts, recipe: &Recipe) -> u64 {
    recipe.engine.workers.map_or_else(|| (facts.cores / ranks(recipe)).max(1), u64::from)
}

fn cores(facts: &Facts, recipe: &Recipe) -> Finding {
    const CHECK: &str = "cores";
    let (Facts { cores, all_cores, quota, .. }, ranks) = (facts, ranks(recipe));
    let workers = workers(facts, recipe);
    let figures = json!({
        "cores": cores, "machine_cores": all_cores, "quota": quota, "workers": workers, "ranks": ranks
    });
    let finding = if let Some(quota) = quota.filter(|quota| *quota < *cores as f64) {
        Finding::warning(
            CHECK,
            format!(
                "the control group gives {quota:.2} cores' worth of time, and {workers} workers are begun \
                 on {cores}: they are stopped for a part of the time"
            ),
            "raise its limit (docker --cpus, resources.limits.cpu), or set engine.workers",
        )
    } else if ranks * workers > *cores {
        Finding::warning(
            CHECK,
            format!(
                "{workers} workers{}, and {cores} cores: they get in each other's way, and in the trainer's",
                of_each(ranks)
            ),
            &format!("set engine.workers = {}, or leave it out", (cores / ranks).max(1)),
        )
    } else {
        let of = if all_cores > cores {
            format!(" of the machine's {all_cores}")
        } else {
            String::new()
        };
        Finding::ok(CHECK, format!("{cores}{of}, for {workers} workers{}", of_each(ranks)))
    };
    finding.with(figures)
}

fn memory(facts: &Facts, recipe: &Recipe) -> Finding {
    const CHECK: &str = "memory";
    let Some(usable) = facts.usable_memory() else {
        return Finding::ok(CHECK, "how much there is can't be looked up here");
    };
    let ranks = ranks(recipe);
    let (_, each) = loader::ahead(recipe, 1);
    let (all, said) = (each.saturating_mul(ranks), recipe.engine.memory.is_some());
    let by = match facts.memory_limit {
        Some(limit) if limit == usable => "the control group may have",
        _ => "the machine has",
    };
    let what =
        format!("engine.memory is {}{}, and {by} {}", Bytes(each), of_each(ranks), Bytes(usable));
    let half = format!("set engine.memory to {}MiB or less", (usable / 2 / ranks) >> 20);
    let free = facts.free_memory.unwrap_or(usable).min(usable);
    let finding = if all >= usable {
        let what = format!("{what}: a run is killed when it gets there");
        Finding::failure(CHECK, USAGE, what, &half)
    } else if all > usable / 2 {
        Finding::warning(CHECK, format!("{what}: little is left for the trainer"), &half)
    } else if all > free {
        let what = format!("{what}, but only {} of it are free now", Bytes(free));
        Finding::warning(CHECK, what, "end what holds the rest, or lower engine.memory")
    } else {
        let chosen = if said { "" } else { " (chosen by itself)" };
        Finding::ok(CHECK, format!("{what}{chosen}"))
    };
    finding.with(json!({
        "engine_memory": each, "ranks": ranks, "machine": facts.memory, "free": facts.free_memory,
        "control_group": facts.memory_limit
    }))
}

fn shared(facts: &Facts) -> Finding {
    const CHECK: &str = "/dev/shm";
    let finding = match facts.shared_memory {
        None => Finding::ok(CHECK, "its size can't be looked up here"),
        Some(0) => Finding::warning(
            CHECK,
            "there is none: stoker.ray and the workers of a torch DataLoader hand batches over by it",
            "mount one (docker --shm-size), if either is used; a stoker.Loader needs none",
        ),
        Some(size) if size < SHARED => Finding::warning(
            CHECK,
            format!(
                "{} is little: stoker.ray and the workers of a torch DataLoader hand batches over by it",
                Bytes(size)
            ),
            "raise it (docker --shm-size, an emptyDir of medium Memory), if either is used; a \
             stoker.Loader needs none",
        ),
        Some(size) => Finding::ok(CHECK, Bytes(size).to_string()),
    };
    finding.with(json!({"bytes": facts.shared_memory}))
}

fn files(facts: &Facts, recipe: &Recipe) -> Finding {
    const CHECK: &str = "open files";
    let wanted = u64::from(recipe.fetch.concurrency);
    let Some(files) = facts.files else { return Finding::ok(CHECK, "as many as are wanted") };
    // A loader takes half of what is left.
    let requests = files.saturating_sub(OTHER_FILES) / 2;
    let enough = 2 * wanted + OTHER_FILES;
    let hint = match facts.most_files {
        Some(most) if most < enough => {
            format!(
                "have the hard limit raised to {enough} (it is {most}), or lower fetch.concurrency"
            )
        }
        _ => format!("ulimit -n {enough} before the run"),
    };
    let finding = if files <= OTHER_FILES {
        let what =
            format!("{files} files and connections may be open: a trainer alone may need more");
        Finding::failure(CHECK, crate::outcome::FAILED, what, &hint)
    } else if requests < wanted {
        let what = format!(
            "{files} files and connections may be open: of fetch.concurrency = {wanted} only about \
             {requests} are used"
        );
        Finding::warning(CHECK, what, &hint)
    } else {
        Finding::ok(CHECK, format!("{files}, for {wanted} requests at once"))
    };
    finding.with(json!({"files": files, "hard": facts.most_files, "concurrency": wanted}))
}

fn threads(facts: &Facts, recipe: &Recipe) -> Finding {
    const CHECK: &str = "threads";
    let needed = ranks(recipe) * (workers(facts, recipe) + OTHER_THREADS);
    let finding = match facts.threads {
        Some(left) if left < needed => Finding::failure(
            CHECK,
            crate::outcome::FAILED,
            format!("the control group may begin {left} more, and the loaders need {needed}"),
            "raise its limit (docker --pids-limit), or lower engine.workers",
        ),
        Some(left) => Finding::ok(CHECK, format!("{left} more may be begun; {needed} are needed")),
        None => Finding::ok(CHECK, format!("not limited; {needed} are needed")),
    };
    finding.with(json!({"left": facts.threads, "needed": needed}))
}

#[cfg(test)]
mod tests;
