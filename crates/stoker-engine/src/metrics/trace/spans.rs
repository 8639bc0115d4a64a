//! What threads do: spans that are recorded when they end, each on the track of its thread.

use std::cell::Cell;
use std::time::Instant;

use super::chrome::{self, batch};
use super::{Argument, Arguments, Tracer, Track};

/// Something that a thread does; recorded when it is dropped.
#[derive(Debug)]
pub struct Span<'a> {
    tracer: &'a Tracer,
    name: &'static str,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    begin: Instant,
    told: Arguments,
    /// The batch of the span around it.
    around: Option<u64>,
}

thread_local! {
    /// The batch that this thread works for, of whichever loader. Guards end in the reverse of the order
    /// in which they begin, on the thread that they began on.
    static BATCH: Cell<Option<u64>> = const { Cell::new(None) };
}

impl<'a> Span<'a> {
    pub(super) fn begin(
        tracer: &'a Tracer,
        name: &'static str,
        told: impl FnOnce() -> Arguments,
    ) -> Self {
        let open = tracer.is_on().then(|| {
            let (begin, mut told) = (Instant::now(), told());
            let around = BATCH.get();
            match (batch(&told), around) {
                (Some(own), _) => BATCH.set(Some(own)),
                (None, Some(around)) => told.push((chrome::BATCH, around.into())),
                (None, None) => {}
            }
            Open { begin, told, around }
        });
        Self { tracer, name, open }
    }

    /// Tells more of it.
    pub fn tell(&mut self, name: &'static str, value: impl FnOnce() -> Argument) {
        if let Some(open) = &mut self.open {
            open.told.push((name, value()));
        }
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some(Open { begin, told, around }) = self.open.take() {
            BATCH.set(around);
            self.tracer.put(this_thread(), self.name, begin..Instant::now(), told);
        }
    }
}

/// The track of this thread: by the number that the system gives it, as profilers have it.
pub(super) fn this_thread() -> Track {
    thread_local!(static NUMBER: u32 = number_of_thread());
    Track::Thread(NUMBER.with(|number| *number))
}

fn number_of_thread() -> u32 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let told = std::fs::read_link("/proc/thread-self").ok();
    let told = told.and_then(|path| path.file_name()?.to_str()?.parse().ok());
    told.unwrap_or_else(|| {
        let mut hash = DefaultHasher::new();
        std::thread::current().id().hash(&mut hash);
        hash.finish() as u32 % chrome::FIRST_MADE_UP
    })
}

pub(super) fn this_name() -> String {
    std::thread::current().name().unwrap_or("thread").to_owned()
}
