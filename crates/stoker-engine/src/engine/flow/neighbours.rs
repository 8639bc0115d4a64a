//! Rows and images that lie side by side in one object, brought by one request.
//!
//! Which do is known before anything is read, from the index. Whoever of them comes first has the
//! joint bytes read, under one permit for all that is read, gaps included; the permit stays for as
//! long as any of them has bytes of it. A joint read that fails, or is refused by the budget, is as
//! if there were none: each then reads its own and fails by itself, or not.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::future::ready;
use tokio::sync::OnceCell;

use super::{Line, Permit};
use crate::engine::budget::Claim;
use crate::engine::measure::Reach;
use crate::error::{Error, Flaw, Result};
use crate::fetch::Joint;
use crate::sample::{Extent, ImageRef, SampleId};

/// Rows that are looked at together where all rows are: at 100 kB a row, a few requests.
const TOGETHER: usize = 32;

/// Bytes, and the right to hold them, which others may have a share in.
pub(super) type Held = (Bytes, Arc<Permit>);

/// Extents, some of which are read together.
pub(super) struct Neighbours {
    claim: Claim,
    /// For each extent, in which joint it is.
    joint_of: Vec<Option<usize>>,
    joints: Vec<Together>,
}

struct Together {
    joint: Joint,
    /// Members that have not come yet.
    left: AtomicUsize,
    /// Nothing where the joint read failed.
    read: OnceCell<Option<Taken>>,
}

/// What was read, until the last member has come.
type Taken = Mutex<Option<Held>>;

/// One of some extents.
#[derive(Clone, Copy)]
pub(super) struct Neighbour<'a> {
    all: &'a Neighbours,
    number: usize,
}

impl Neighbours {
    /// One of them, by its number.
    pub(super) fn get(&self, number: usize) -> Neighbour<'_> {
        Neighbour { all: self, number }
    }
}

/// Rows that are to be read, and where they lie.
pub(super) struct Rows {
    located: Vec<(SampleId, Option<Result<Extent, Flaw>>)>,
    near: Neighbours,
}

/// One of some rows, for a task of its own.
#[derive(Clone)]
pub(super) struct RowInTurn {
    rows: Arc<Rows>,
    number: usize,
}

impl RowInTurn {
    pub(super) fn row(&self) -> RowOf<'_> {
        self.rows.get(self.number)
    }
}

/// One of some rows.
#[derive(Clone, Copy)]
pub(super) struct RowOf<'a> {
    rows: &'a Rows,
    number: usize,
}

impl Rows {
    pub(super) fn get(&self, number: usize) -> RowOf<'_> {
        RowOf { rows: self, number }
    }
}

impl<'a> RowOf<'a> {
    pub(super) fn id(self) -> SampleId {
        self.rows.located[self.number].0
    }

    /// Where it lies, if that was looked for.
    pub(super) fn extent(self) -> Option<Result<Extent, Flaw>> {
        self.rows.located[self.number].1.clone()
    }

    pub(super) fn neighbour(self) -> Neighbour<'a> {
        self.rows.near.get(self.number)
    }
}

impl Line {
    /// Looks where rows lie that are read at the same time. Of those that are `known` nothing is read.
    pub(super) fn side_by_side(
        &self,
        claim: Claim,
        rows: impl Iterator<Item = SampleId>,
        known: impl Fn(SampleId) -> bool,
    ) -> Rows {
        let locate = |id| (id, (!known(id)).then(|| self.rooms.catalog.locate(id)));
        let located: Vec<_> = rows.map(locate).collect();
        let extents = located.iter().map(|(_, extent)| extent.as_ref()?.as_ref().ok().cloned());
        let near = self.neighbours(claim, &extents.collect::<Vec<_>>());
        Rows { located, near }
    }

    /// Rows that take their turns one after the other, each with the number of its turn; some at a
    /// time are looked at together, in the name of the first of them.
    pub(super) fn in_turns<R: Iterator<Item = SampleId>>(
        self: &Arc<Self>,
        mut rows: R,
        claim: impl Fn(u64) -> Claim,
        known: impl Fn(&Self, SampleId) -> bool,
    ) -> impl Iterator<Item = (u64, RowInTurn)> {
        let (line, mut turn) = (Arc::clone(self), 0);
        let some = std::iter::from_fn(move || {
            let ids: Vec<SampleId> = rows.by_ref().take(TOGETHER).collect();
            let (first, count) = (turn, ids.len());
            turn += count as u64;
            let near = line.side_by_side(claim(first), ids.into_iter(), |id| known(&line, id));
            let rows = Arc::new(near);
            let row = move |number| RowInTurn { rows: Arc::clone(&rows), number };
            (count > 0).then(|| (first..).zip((0..count).map(row)))
        });
        some.flatten()
    }

    /// The images of a sample that lie in one object.
    pub(super) fn images_side_by_side(
        &self,
        claim: Claim,
        images: &[ImageRef],
        reach: Reach,
    ) -> Neighbours {
        let extents = images.iter().map(|image| {
            let ImageRef::Stored(extent) = image else { return None };
            let range = extent.range.as_ref().filter(|_| reach == Reach::Whole)?;
            // One that is refused by its size is not read.
            self.rooms.admissible(extent, range.end - range.start).ok().map(|()| extent.clone())
        });
        self.neighbours(claim, &extents.collect::<Vec<_>>())
    }

    fn neighbours(&self, claim: Claim, extents: &[Option<Extent>]) -> Neighbours {
        // What is thrown away must not be what is lacking elsewhere.
        let most = self.budget.limit() / 4;
        let mut joint_of = vec![None; extents.len()];
        let joints = self.rooms.fetcher.joints(extents, most).into_iter().enumerate();
        let joints = joints.map(|(number, joint)| {
            joint.members.iter().for_each(|member| joint_of[*member] = Some(number));
            let left = AtomicUsize::new(joint.members.len());
            Together { joint, left, read: OnceCell::new() }
        });
        let joints = joints.collect();
        Neighbours { claim, joint_of, joints }
    }

    /// The bytes of one of some extents, if it is read together with others and that succeeds.
    pub(super) async fn bring_with_neighbours(
        &self,
        extent: &Extent,
        neighbour: Option<Neighbour<'_>>,
    ) -> Result<Option<Held>> {
        let Some(Neighbour { all, number }) = neighbour else { return Ok(None) };
        let Some(joint) = all.joint_of[number] else { return Ok(None) };
        let together = &all.joints[joint];
        let read = together.read.get_or_try_init(|| self.bring_joint(all.claim, &together.joint));
        let Some(taken) = read.await? else { return Ok(None) };
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = together.left.fetch_sub(1, Ordering::Relaxed) == 1;
        let held = if is_last { taken.take() } else { taken.clone() };
        Ok(held.and_then(|(bytes, permit)| {
            Some((bytes.slice(within(extent, &together.joint.extent)?), permit))
        }))
    }

    async fn bring_joint(&self, claim: Claim, joint: &Joint) -> Result<Option<Taken>> {
        let mut permit = self.budget.take(claim, joint.bytes()).await?;
        if permit.need(joint.wanted, || "rows side by side".to_owned()).is_err() {
            return Ok(None);
        }
        match self.rooms.fetcher.at(claim).read(&joint.extent, |_| ready(Ok(()))).await {
            Ok(bytes) => {
                let meter = &self.rooms.metrics.fetch;
                meter.joint_reads.add(1);
                meter.joined.add(joint.members.len() as u64);
                meter.thrown_away.add(joint.bytes() - joint.wanted);
                Ok(Some(Mutex::new(Some((bytes, Arc::new(permit))))))
            }
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(_) => Ok(None),
        }
    }
}

/// Where an extent lies in one that holds it.
fn within(extent: &Extent, all: &Extent) -> Option<Range<usize>> {
    let (range, all) = (extent.range.as_ref()?, all.range.as_ref()?);
    let start = range.start.checked_sub(all.start)?;
    Some(start as usize..(range.end - all.start) as usize)
}
