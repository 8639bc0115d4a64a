//! How `stoker top` finds a loader: a socket in Linux' abstract namespace, whose name is
//! `@stoker/PROCESS/NUMBER`. It is no file, so nothing is left of it however the process ends.
//!
//! Whoever connects is given a [`Glance`] as JSON and need not say a word, if it is the same user or
//! root; the kernel says who it is.

use std::fmt;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::{Ending, Glance, PATIENCE, PAUSE, Watched};

/// Loaders of one process that are seen, those that forked children inherited among them.
const MOST: u32 = 1000;

/// Connections that are served at once; others wait.
const AT_ONCE: usize = 8;

/// What is said to other users, in place of JSON.
const REFUSAL: &str = "refused: only the user that runs it, and root, may look at a loader";

/// More than any answer has.
const LONGEST: u64 = 16 << 20;

/// A running loader of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pid: u32,
    number: u32,
}

impl Name {
    /// A loader of a process: how many others it had then is the number, from 0.
    pub fn new(pid: u32, number: u32) -> Self {
        Self { pid, number }
    }

    /// The process that it is in.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn address(self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("stoker/{}/{}", self.pid, self.number))
    }

    /// Reads a line of `/proc/net/unix`, at whose end names are.
    fn read(line: &str) -> Option<Self> {
        let (pid, number) = line.rsplit(' ').next()?.strip_prefix("@stoker/")?.split_once('/')?;
        Some(Self { pid: pid.parse().ok()?, number: number.parse().ok()? })
    }

    /// What it is doing; an error if it does not answer in time, or not to us.
    pub fn ask(&self, patience: Duration) -> io::Result<Glance> {
        let begun = Instant::now();
        let mut stream = UnixStream::connect_addr(&self.address()?)?;
        let (mut answer, mut part) = (Vec::new(), [0; 8 << 10]);
        loop {
            let left = patience.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
            stream.set_read_timeout(Some(left.ok_or(io::ErrorKind::TimedOut)?))?;
            match stream.read(&mut part) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if answer.len() as u64 > LONGEST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
        if answer == REFUSAL.as_bytes() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, REFUSAL));
        }
        Ok(serde_json::from_slice(&answer)?)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pid, self.number)
    }
}

/// The loaders that run on this machine, as far as its network namespace goes, in order.
pub fn running() -> io::Result<Vec<Name>> {
    let sockets = std::fs::read("/proc/net/unix")?;
    let mut names: Vec<_> =
        String::from_utf8_lossy(&sockets).lines().filter_map(Name::read).collect();
    names.sort_unstable();
    // One that is being talked to is there as often as that.
    names.dedup();
    Ok(names)
}

/// The first free name of this process, unless the machine has no sockets for it.
pub(super) fn listen() -> Option<UnixListener> {
    for number in 0..MOST {
        let address = Name { pid: std::process::id(), number }.address().ok()?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(_) => return None,
        }
    }
    None
}

/// Answers whoever asks, until it is dropped.
pub(super) async fn serve(listener: UnixListener, watched: Arc<Watched>) {
    let listener =
        listener.set_nonblocking(true).and_then(|()| tokio::net::UnixListener::from_std(listener));
    let Ok(listener) = listener.map(Ending) else { return };
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
        let Ok((stream, _)) = listener.0.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let watched = Arc::clone(&watched);
        tokio::spawn(async move {
            let _slot = slot;
            // Whoever is too slow, or goes away, is not told.
            drop(timeout(PATIENCE, answer(stream, &watched)).await);
        });
    }
}

async fn answer(mut stream: tokio::net::UnixStream, watched: &Watched) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    if !may_look(stream.peer_cred()?.uid(), own) {
        return stream.write_all(REFUSAL.as_bytes()).await;
    }
    stream.write_all(&serde_json::to_vec(&watched.glance())?).await
}

fn may_look(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_user_and_root_may_look_and_nobody_else() {
        assert!(may_look(1000, 1000) && may_look(0, 1000) && may_look(0, 0));
        assert!(!may_look(1001, 1000) && !may_look(1000, 0));
    }

    #[test]
    fn names_are_read_from_the_kernels_list() {
        let line = |name: &str| format!("0000: 00000002 00000000 00010000 0001 01 24 {name}");
        let name = Name { pid: 12, number: 3 };
        assert_eq!(Name::read(&line("@stoker/12/3")), Some(name));
        assert_eq!(name.to_string(), "12/3");
        for other in ["@stoker/12", "@stoker/x/3", "/tmp/@stoker/12/3", "@other/12/3", ""] {
            assert_eq!(Name::read(&line(other)), None, "{other}");
        }
    }

    fn name_of(listener: &UnixListener) -> Name {
        let address = listener.local_addr().unwrap();
        let name = String::from_utf8_lossy(address.as_abstract_name().unwrap());
        Name::read(&format!(" @{name}")).unwrap()
    }

    #[test]
    fn a_name_is_taken_once_and_free_again() {
        let listeners = [listen().unwrap(), listen().unwrap()];
        let names = listeners.each_ref().map(name_of);
        assert!(names[0] != names[1] && names.iter().all(|name| running().unwrap().contains(name)));
        drop(listeners);
        assert!(!names.iter().any(|name| running().unwrap().contains(name)));
    }

    #[test]
    fn one_that_is_silent_or_talks_nonsense_is_an_error_in_time() {
        let listener = listen().unwrap();
        let name = name_of(&listener);
        let silent = name.ask(Duration::from_millis(50)).unwrap_err();
        let timeouts = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
        assert!(timeouts.contains(&silent.kind()), "{silent}");
        let asked = std::thread::scope(|scope| {
            let asked = scope.spawn(|| name.ask(Duration::from_secs(30)));
            drop(listener.accept().unwrap());
            let (mut stream, _) = listener.accept().unwrap();
            io::Write::write_all(&mut stream, REFUSAL.as_bytes()).unwrap();
            drop(stream);
            asked.join().unwrap()
        });
        assert_eq!(asked.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
