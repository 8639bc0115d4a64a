//! Reads that look into the cache first.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use super::entry::{Name, Version};
use super::{Cache, Wanted};
use crate::error::Result;
use crate::fetch::store::Store;
use crate::fetch::{Fetcher, Room};
use crate::sample::{Extent, Scheme};

/// Reads an extent from the cache, and what is not there from the store.
pub(in crate::fetch) async fn read<F, W>(
    fetcher: &Fetcher,
    cache: &Arc<Cache>,
    extent: &Extent,
    admit: F,
) -> Result<Bytes>
where
    F: Fn(u64) -> W,
    W: Future<Output = Result<()>>,
{
    let room = &fetcher.room;
    let Some(wanted) = wanted(room, extent) else {
        return fetcher.read_store(extent, admit).await.map(|(bytes, _)| bytes);
    };
    let mut granted = None;
    if let Some(spot) = cache.known.find(wanted.name) {
        admit(spot.length).await?;
        granted = Some(spot.length);
        if let Some(bytes) = cache.take(room, wanted, spot, spot.length).await? {
            return Ok(bytes);
        }
    }
    cache.meter().misses.add(1);
    cache.look_soon(room);
    let more = async |size| if granted == Some(size) { Ok(()) } else { admit(size).await };
    let (bytes, version) = fetcher.read_store(extent, more).await?;
    cache.offer(room, wanted, Version::of(version.as_deref()), &bytes);
    Ok(bytes)
}

/// The first bytes of an extent, `most` of them at most, and the size of all of it, if the cache has
/// it. The beginning of an extent is never an entry by itself.
pub(in crate::fetch) async fn beginning(
    room: &Room,
    cache: &Arc<Cache>,
    extent: &Extent,
    most: u64,
) -> Result<Option<(Bytes, u64)>> {
    let Some(wanted) = wanted(room, extent) else { return Ok(None) };
    let spot = cache.known.find(wanted.name);
    if let Some(spot) = spot
        && let Some(bytes) = cache.take(room, wanted, spot, most).await?
    {
        return Ok(Some((bytes, spot.length)));
    }
    cache.meter().misses.add(1);
    Ok(None)
}

/// What an extent is called; `None` for what is not cached: local files, and nothing.
fn wanted(room: &Room, extent: &Extent) -> Option<Wanted> {
    let object = &extent.object;
    if object.scheme == Scheme::File || extent.range.as_ref().is_some_and(std::ops::Range::is_empty)
    {
        return None;
    }
    // What is wrong with a store is told by whoever reads from it.
    let store = room.store(object).ok()?;
    let Store::Remote(remote) = &*store else { return None };
    let version = room.pins.of(object).map(|version| Version::of(Some(&version)));
    let name = match remote.origin() {
        Some(base) => Name::new(base, extent, version),
        None => Name::new(
            &format!("{}://{}", object.scheme.as_str(), object.authority),
            extent,
            version,
        ),
    };
    Some(Wanted { name, version })
}
