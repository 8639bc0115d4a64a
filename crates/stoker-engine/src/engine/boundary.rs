//! The boundary of a sample: a panic over its data is its flaw, and not the end of the run.
//!
//! No data is known to make a room panic, and fuzzing looks for some. But a run has weeks to go, its
//! data are nobody's promise, and the parsers and decoders among them are not all ours. So whatever
//! works on the data of one sample is called through [`contained`], and what it was doing is dropped:
//! it leaves nothing behind but scratch memory, which whoever calls it begins anew.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::workers::message;
use crate::error::Flaw;
use crate::metrics::Room;

/// The code of a sample that made a room panic.
pub(super) const PANIC: &str = "panic";

/// What `work` gives, or the flaw that it panicked.
pub(super) fn contained<T>(room: Room, work: impl FnOnce() -> Result<T, Flaw>) -> Result<T, Flaw> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let reason = format!("a bug in stoker, met by its data: {}", message(panic.as_ref()));
        Err(Flaw::new(room, PANIC, reason).hint("please report it with the sample"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_flaw_that_tells_what_it_said() {
        let flaw = contained::<()>(Room::Text, || panic!("index {} of {}", 3, 2)).unwrap_err();
        assert_eq!((flaw.room, flaw.code), (Room::Text, PANIC));
        assert!(flaw.reason.ends_with("index 3 of 2"), "{flaw}");
        assert_eq!(contained(Room::Text, || Ok(7)), Ok(7));
    }
}
