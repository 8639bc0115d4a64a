//! A large read, as several parts at once: one connection gives 60 to 95 MB/s, many give as much as
//! the network card does.
//!
//! The first part is asked for alone, and as soon as its answer begins, the others are asked for
//! under the version that it tells; so all are of one version, or an error. Where the size is known
//! only from the answer to a request for the whole object, that answer is read as far as the first
//! part goes. Each part is tried again by itself, and is written to its place in one buffer.
//!
//! Memory is admitted once, for the whole. Local files are read in one go, and so is what lies at
//! plain web addresses, since few of those servers promise ranges.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::try_join;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};

use crate::error::Result;
use crate::sample::{Extent, Scheme};

use super::opened::Opened;
use super::read::Reading;

/// Larger reads are split.
const LARGE: u64 = 16 << 20;
/// Bytes of a part, at least: S3's advice is 8 to 16 MiB.
const PART: u64 = 8 << 20;
/// Parts of one read that are asked for at once: together more than a gigabyte a second.
const AT_ONCE: usize = 16;
/// The place for a larger read is not made on a server's word.
const LARGEST: u64 = 4 << 30;

/// Whether an object's store promises to give parts of it.
pub(super) fn promises_ranges(extent: &Extent) -> bool {
    matches!(extent.object.scheme, Scheme::S3 | Scheme::Gs | Scheme::Az)
}

/// Whether a read of that size is split.
pub(super) fn is_large(extent: &Extent, size: u64) -> bool {
    promises_ranges(extent) && (LARGE + 1..=LARGEST).contains(&size)
}

/// Where the parts of so many bytes lie: in order, as equal as can be, none of them empty.
fn parts(size: u64) -> impl Iterator<Item = Range<u64>> {
    let count = (size / PART).max(1);
    let start = move |part: u64| part * (size / count) + part.min(size % count);
    (0..count).map(move |part| start(part)..start(part + 1))
}

/// Reads all of an extent of that size, for which memory was had. `opened` is an answer that holds
/// all of it, if there is one.
pub(super) async fn read(whole: &Reading<'_>, size: u64, opened: Option<Opened>) -> Result<Bytes> {
    let begin = whole.extent.range.as_ref().map_or(0, |range| range.start);
    let extents = parts(size).map(|Range { start, end }| Extent {
        object: Arc::clone(&whole.extent.object),
        range: Some(begin + start..begin + end),
    });
    let extents: Vec<Extent> = extents.collect();
    whole.room.metrics.fetch.split_parts.add(extents.len() as u64);
    let mut places = BytesMut::with_capacity(size as usize);
    let mut readings = Vec::with_capacity(extents.len());
    for (part, extent) in parts(size).zip(&extents) {
        let length = part.end - part.start;
        let behind = places.split_off(length as usize);
        let place = std::mem::replace(&mut places, behind);
        readings.push(whole.part(extent, length, place));
    }
    let mut readings = readings.into_iter();
    let mut first = readings.next().expect("there is a first part");
    let opened = match opened {
        Some(opened) => opened.first(parts(size).next().map_or(0, |part| part.end)),
        None => first.open_granted().await?,
    };
    let others = readings.map(|mut part| {
        part.follow(&first);
        part.finish(None)
    });
    let others = stream::iter(others.collect::<Vec<_>>()).buffered(AT_ONCE - 1);
    let read = try_join(first.finish(Some(opened)), others.try_collect::<Vec<_>>());
    let (mut all, others) = Box::pin(read).await?;
    for part in others {
        // No copy: they lie side by side in one buffer.
        all.unsplit(part);
    }
    Ok(all.freeze())
}

/// The first bytes of a body.
pub(super) fn first<E: Send + 'static>(
    body: BoxStream<'static, Result<Bytes, E>>,
    length: u64,
) -> BoxStream<'static, Result<Bytes, E>> {
    let next = |(mut body, left): (BoxStream<'static, Result<Bytes, E>>, u64)| async move {
        if left == 0 {
            return None;
        }
        let chunk = body.next().await?.map(|mut chunk| {
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            chunk
        });
        let got = chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        Some((chunk, (body, left - got)))
    };
    stream::unfold((body, length), next).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_all_of_it_in_order_and_of_the_advised_size(size in LARGE + 1..LARGEST) {
            let all: Vec<_> = parts(size).collect();
            prop_assert_eq!((all[0].start, all[all.len() - 1].end), (0, size));
            prop_assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert!(all.iter().all(|it| (PART..2 * PART).contains(&(it.end - it.start))));
        }

        #[test]
        fn the_first_bytes_are_those_of_any_chunks(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            length in 0_usize..40,
        ) {
            let all = chunks.concat();
            let body = chunks.into_iter().map(|chunk| Ok::<_, ()>(Bytes::from(chunk)));
            let first = first(stream::iter(body.collect::<Vec<_>>()).boxed(), length as u64);
            let got: Vec<Bytes> = block_on(first.try_collect()).unwrap();
            prop_assert_eq!(got.concat(), &all[..length.min(all.len())]);
        }
    }

    #[test]
    fn only_large_reads_of_stores_with_ranges_are_split() {
        let of = |scheme| {
            let object = crate::sample::Location { scheme, authority: "a".into(), key: "k".into() };
            Extent { object: Arc::new(object), range: None }
        };
        for (scheme, size, expected) in [
            (Scheme::S3, LARGE, false),
            (Scheme::S3, LARGE + 1, true),
            (Scheme::Gs, LARGEST, true),
            (Scheme::Az, LARGEST + 1, false),
            (Scheme::File, LARGE + 1, false),
            (Scheme::Https, LARGE + 1, false),
        ] {
            assert_eq!(is_large(&of(scheme), size), expected, "{scheme:?} {size}");
        }
    }
}
