//! Which version of an object is read: one, for as long as the fetcher lives.
//!
//! An index says where rows lie in one version of a shard, and bytes of another would be taken for
//! rows that they are not. So the first answer about an object of which parts are read says which
//! version all later parts must be of; where the store tells no versions, the size has to stay.
//!
//! What is read whole needs no pin: it is of one version by itself, and nothing else depends on
//! which. So the objects that have one are shards, of which the index holds more bytes each, and never
//! the millions of images that lie by themselves. Local files have none: what stoker copies beside an
//! index is a local file, and another run may put the same bytes there again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::xxh3_64;

use crate::sample::{Extent, Location, Scheme};

use super::ObjectInfo;
use super::attempt::changed;
use super::failure::Failure;
use super::opened::Opened;

/// What is known of the objects of which parts are read.
#[derive(Debug, Default)]
pub(super) struct Pins(Mutex<HashMap<Arc<Location>, Pin>>);

#[derive(Debug, Default)]
struct Pin {
    version: Option<String>,
    size: Option<u64>,
    /// Whether it was asked for as such, before anything was read.
    told: bool,
}

impl Pins {
    /// The version that a part of an object must be of, if it is known.
    pub(super) fn version(&self, extent: &Extent) -> Option<String> {
        extent.range.as_ref()?;
        self.lock().get(&extent.object)?.version.clone()
    }

    /// The version that an object had when the data were opened, if that was asked for: what an answer
    /// told later another run does not know, when it asks for nothing.
    pub(super) fn of(&self, object: &Location) -> Option<String> {
        self.lock().get(object).filter(|pin| pin.told)?.version.clone()
    }

    /// What some data mean at the versions that are known, as a number.
    pub(super) fn scope(&self, data: u64) -> u64 {
        let pair = |(object, pin): (&Arc<Location>, &Pin)| {
            let version = pin.version.as_deref().unwrap_or_default();
            xxh3_64(format!("{object}\n{version}").as_bytes())
        };
        self.lock().iter().map(pair).fold(data, |all, one| all ^ one)
    }

    /// Takes note of what the store was asked about an object as such: whoever asks begins anew.
    pub(super) fn set(&self, object: &Arc<Location>, info: &ObjectInfo) {
        if object.scheme != Scheme::File {
            let pin = Pin { version: info.version.clone(), size: Some(info.size), told: true };
            self.lock().insert(Arc::clone(object), pin);
        }
    }

    /// Holds an answer with a part of an object against those before it, or takes note of it.
    pub(super) fn meet(&self, object: &Arc<Location>, opened: &Opened) -> Result<(), Failure> {
        if object.scheme == Scheme::File {
            return Ok(());
        }
        self.meet_told(object, opened.version.as_deref(), opened.whole)
    }

    fn meet_told(
        &self,
        object: &Arc<Location>,
        version: Option<&str>,
        size: Option<u64>,
    ) -> Result<(), Failure> {
        let mut pins = self.lock();
        let pin = pins.entry(Arc::clone(object)).or_default();
        if let (Some(before), Some(now)) = (&pin.version, version)
            && before != now
        {
            return Err(replaced(before, Some(now)));
        }
        if let (Some(before), Some(now)) = (pin.size, size)
            && before != now
        {
            return Err(resized(before, now));
        }
        if pin.version.is_none() {
            pin.version = version.map(str::to_owned);
        }
        pin.size = pin.size.or(size);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<Location>, Pin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Another version than before.
pub(super) fn replaced(before: &str, now: Option<&str>) -> Failure {
    let now = now.map(|now| format!(", and is {now} now")).unwrap_or_default();
    changed(format!("the object was replaced: it was version {before} when it was first read{now}"))
}

/// Another size than before.
pub(super) fn resized(before: u64, now: u64) -> Failure {
    changed(format!("the object has {now} bytes now, and had {before} when it was first read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(scheme: Scheme, key: &str) -> Arc<Location> {
        Arc::new(Location { scheme, authority: "bucket".into(), key: key.into() })
    }

    #[test]
    fn the_first_answer_says_what_all_later_ones_must_be() {
        let (pins, a, b) = (Pins::default(), object(Scheme::S3, "a"), object(Scheme::S3, "b"));
        let part = Extent { object: Arc::clone(&a), range: Some(0..1) };
        assert_eq!(pins.version(&part), None);
        pins.meet_told(&a, Some("\"1\""), Some(10)).unwrap();
        pins.meet_told(&b, None, Some(7)).unwrap();
        assert_eq!(pins.version(&part).as_deref(), Some("\"1\""));
        assert_eq!(pins.version(&Extent { range: None, ..part }), None, "whole objects have none");
        pins.meet_told(&a, Some("\"1\""), None).unwrap();
        pins.meet_told(&a, None, Some(10)).unwrap();
        let failure = pins.meet_told(&a, Some("\"2\""), Some(10)).unwrap_err();
        assert!(failure.reason.contains("it was version \"1\" when"), "{}", failure.reason);
        assert!(failure.reason.contains("is \"2\" now"), "{}", failure.reason);
        assert!(failure.hint.is_some());
        let failure = pins.meet_told(&b, None, Some(8)).unwrap_err();
        assert!(failure.reason.contains("has 8 bytes now, and had 7"), "{}", failure.reason);
        pins.meet_told(&b, Some("\"x\""), Some(7)).unwrap();
        pins.meet_told(&b, Some("\"y\""), Some(7)).unwrap_err();
    }

    #[test]
    fn whoever_asks_for_size_and_version_begins_anew_and_files_have_no_pins() {
        let (pins, a, file) = (Pins::default(), object(Scheme::S3, "a"), object(Scheme::File, "f"));
        pins.meet_told(&a, Some("\"1\""), Some(10)).unwrap();
        let info = ObjectInfo { size: 20, version: Some("\"2\"".into()) };
        pins.set(&a, &info);
        pins.set(&file, &info);
        pins.meet_told(&a, Some("\"2\""), Some(20)).unwrap();
        pins.meet_told(&a, Some("\"1\""), Some(10)).unwrap_err();
        assert_eq!(pins.version(&Extent { object: file, range: Some(0..1) }), None);
    }
}
