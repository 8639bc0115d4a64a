//! What the machine refuses to a process: threads, open files, memory. The system's own words
//! ("Resource temporarily unavailable") name neither the limit nor who can raise it; these do.

use std::io;

use super::Error;

/// Too many files are open: in this process, and on this machine. The standard library has no kinds
/// for these; the numbers are the same on all systems that we run on.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// A thing that the machine does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    /// What could not be done.
    pub what: String,
    /// What the system said.
    pub reason: String,
    /// Which limit it was, and what to do.
    pub hint: String,
}

impl Error {
    /// The machine refused what `what` needs.
    pub fn machine(what: impl Into<String>, error: &io::Error) -> Self {
        let hint = too_many_files(error).unwrap_or_else(|| match error.kind() {
            io::ErrorKind::WouldBlock => "raise the limit on threads, of the user (ulimit -u) or \
                of the container, or on memory (ulimit -v); or lower engine.workers"
                .to_owned(),
            io::ErrorKind::OutOfMemory => "raise the limit on memory, of the process (ulimit -v) \
                or of the container; or lower engine.memory"
                .to_owned(),
            _ => "look at the limits of the process (ulimit -a) and of its container".to_owned(),
        });
        Self::Machine(MachineError { what: what.into(), reason: error.to_string(), hint })
    }

    /// The machine refused a thread of that name.
    pub fn no_thread(name: &str, error: &io::Error) -> Self {
        Self::machine(format!("the thread {name} can't be started"), error)
    }
}

/// What to do where it is too many files that are open; `None` for another error.
pub fn too_many_files(error: &io::Error) -> Option<String> {
    match error.raw_os_error()? {
        EMFILE => {
            let limit = files_allowed().map_or("no more".to_owned(), |limit| limit.to_string());
            Some(format!(
                "this process may have {limit} files and connections open: raise that \
                 (ulimit -n), or lower fetch.concurrency"
            ))
        }
        ENFILE => Some(
            "all programs together have as many files open as this machine allows: raise \
             fs.file-max, or end what holds them"
                .to_owned(),
        ),
        _ => None,
    }
}

/// How many files this process may have open; `None` is as many as it likes.
#[cfg(target_os = "linux")]
pub fn files_allowed() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// How many files this process may have open: not known.
#[cfg(not(target_os = "linux"))]
pub fn files_allowed() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(number: i32) -> String {
        Error::no_thread("stoker-cpu-0", &io::Error::from_raw_os_error(number)).to_string()
    }

    #[test]
    fn each_refusal_says_which_limit_it_was() {
        let head = "the thread stoker-cpu-0 can't be started: ";
        let cases = [
            (11, "Resource temporarily unavailable (os error 11); raise the limit on threads"),
            (12, "Cannot allocate memory (os error 12); raise the limit on memory"),
            (23, "(os error 23); all programs together have as many files open"),
            (24, "Too many open files (os error 24); this process may have "),
            (1, "(os error 1); look at the limits of the process (ulimit -a)"),
        ];
        for (number, expected) in cases {
            let words = words(number);
            assert!(words.starts_with(head) && words.contains(expected), "{words}");
        }
    }

    #[test]
    fn only_too_many_files_are_too_many_files() {
        assert_eq!(too_many_files(&io::Error::other("full")), None);
        assert_eq!(too_many_files(&io::Error::from_raw_os_error(28)), None);
    }
}
