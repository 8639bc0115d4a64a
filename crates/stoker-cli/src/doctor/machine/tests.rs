use super::super::finding::Level;
use super::*;

const GIB: u64 = 1 << 30;

/// A machine on which nothing is wrong.
fn sound() -> Facts {
    Facts {
        cores: 16,
        all_cores: 64,
        quota: None,
        memory: Some(256 * GIB),
        free_memory: Some(200 * GIB),
        memory_limit: Some(64 * GIB),
        shared_memory: Some(8 * GIB),
        files: Some(1024),
        most_files: Some(4096),
        threads: Some(1000),
        now: 0,
    }
}

fn recipe(more: &str) -> Recipe {
    let text = format!("[dataset]\nsource = '/data.jsonl'\n[engine]\nmemory = '4GiB'\n{more}");
    Recipe::from_toml(&text).unwrap()
}

/// What one check says.
#[track_caller]
fn says(facts: &Facts, more: &str, check: &str, level: Level, words: &[&str]) {
    let findings = checks(facts, &recipe(more));
    let finding = findings.iter().find(|finding| finding.check == check).unwrap();
    assert_eq!(finding.level, level, "{}", finding.words);
    for word in words {
        assert!(finding.words.contains(word), "{word:?} is not in {:?}", finding.words);
    }
    let others = findings.iter().filter(|finding| finding.check != check);
    let worst = others.map(|finding| finding.level).max();
    assert_eq!(worst, Some(Level::Ok), "the others are sound: {findings:?}");
}

#[test]
fn a_sound_machine_is_said_to_be_so() {
    says(&sound(), "", "cores", Level::Ok, &["16 of the machine's 64, for 16 workers"]);
    says(&sound(), "", "memory", Level::Ok, &["4.0 GiB", "the control group may have 64.0 GiB"]);
    says(&sound(), "", "/dev/shm", Level::Ok, &["8.0 GiB"]);
    says(&sound(), "", "open files", Level::Ok, &["1024, for 64 requests"]);
    says(&sound(), "", "threads", Level::Ok, &["1000 more may be begun; 40 are needed"]);
}

#[test]
fn cores_are_short_where_workers_are_more_or_the_group_gives_less() {
    let more = "workers = 4\nlocal-world-size = 8";
    let words = ["4 workers for each of 8 ranks, and 16 cores", "engine.workers = 2"];
    says(&sound(), more, "cores", Level::Warning, &words);
    let quota = Facts { quota: Some(0.5), cores: 1, ..sound() };
    says(&quota, "", "cores", Level::Warning, &["0.50 cores' worth", "--cpus"]);
    let whole = Facts { quota: Some(16.0), ..sound() };
    says(&whole, "", "cores", Level::Ok, &[]);
}

#[test]
fn memory_of_all_ranks_has_to_fit_beside_a_trainer() {
    let ranks = |count| format!("local-world-size = {count}");
    says(&sound(), &ranks(8), "memory", Level::Ok, &["for each of 8 ranks"]);
    let words = ["little is left", "set engine.memory to 2730MiB or less"];
    says(&sound(), &ranks(12), "memory", Level::Warning, &words);
    says(&sound(), &ranks(16), "memory", Level::Failure, &["killed", "engine.memory to 2048MiB"]);
    let tiny = Facts { memory_limit: Some(GIB), ..sound() };
    says(&tiny, "", "memory", Level::Failure, &["the control group may have 1.0 GiB"]);
    let full = Facts { free_memory: Some(GIB), memory_limit: None, ..sound() };
    says(&full, "", "memory", Level::Warning, &["only 1.0 GiB of it are free"]);
    let unlimited = Facts { memory_limit: None, ..sound() };
    says(&unlimited, "", "memory", Level::Ok, &["the machine has 256.0 GiB"]);
}

#[test]
fn little_shared_memory_is_no_matter_to_a_loader_and_said_all_the_same() {
    let docker = Facts { shared_memory: Some(64 << 20), ..sound() };
    let words = ["64.0 MiB is little", "--shm-size", "a stoker.Loader needs none"];
    says(&docker, "", "/dev/shm", Level::Warning, &words);
    says(&Facts { shared_memory: Some(0), ..sound() }, "", "/dev/shm", Level::Warning, &["none"]);
}

#[test]
fn few_open_files_are_few_requests_and_very_few_are_none() {
    let low = Facts { files: Some(192), ..sound() };
    let words = ["of fetch.concurrency = 64 only about 32", "ulimit -n 256 before the run"];
    says(&low, "", "open files", Level::Warning, &words);
    let fixed = Facts { files: Some(64), most_files: Some(64), ..sound() };
    says(&fixed, "", "open files", Level::Failure, &["hard limit raised to 256 (it is 64)"]);
}

#[test]
fn threads_that_may_not_be_begun_are_missed() {
    let few = Facts { threads: Some(20), ..sound() };
    says(&few, "", "threads", Level::Failure, &["may begin 20 more", "need 40", "--pids-limit"]);
}

/// A system in a folder.
fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn the_narrowest_of_the_groups_that_a_process_is_in_counts() {
    let system = system(&[
        ("proc/self/cgroup", "0::/jobs/mine\n"),
        ("proc/cpuinfo", "processor : 0\nx\nprocessor : 1\n"),
        ("proc/meminfo", "MemTotal:  8388608 kB\nMemAvailable:  1048576 kB\n"),
        ("proc/self/mounts", "tmpfs / tmpfs rw 0 0\nshm /dev/shm tmpfs rw,size=65536k 0 0\n"),
        (
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024      unlimited  files\n",
        ),
        ("sys/fs/cgroup/memory.max", "max\n"),
        ("sys/fs/cgroup/jobs/memory.max", "2147483648\n"),
        ("sys/fs/cgroup/jobs/mine/memory.max", "max\n"),
        ("sys/fs/cgroup/jobs/mine/cpu.max", "150000 100000\n"),
        ("sys/fs/cgroup/jobs/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/jobs/mine/pids.max", "100\n"),
        ("sys/fs/cgroup/jobs/mine/pids.current", "60\n"),
        // Of more there are fewer left.
        ("sys/fs/cgroup/jobs/pids.max", "200\n"),
        ("sys/fs/cgroup/jobs/pids.current", "180\n"),
    ]);
    let found = Facts::below(system.path());
    let expected = Facts {
        cores: 2,
        all_cores: 2,
        quota: Some(1.5),
        memory: Some(8 * GIB),
        free_memory: Some(GIB),
        memory_limit: Some(2 * GIB),
        shared_memory: Some(64 << 20),
        files: Some(1024),
        most_files: None,
        threads: Some(20),
        now: 0,
    };
    assert_eq!(found, expected);
}

#[test]
fn what_a_system_does_not_tell_is_not_known() {
    let system = system(&[("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n")]);
    let found = Facts::below(system.path());
    assert_eq!((found.memory, found.files, found.threads), (None, None, None));
    assert_eq!(found.memory_limit, Some(GIB), "of the first version of control groups");
    let here = Facts::here();
    assert!(here.cores >= 1 && here.now > 1_600_000_000, "{here:?}");
}
