//! One request for several extents of an object that lie near each other.
//!
//! A request costs the time to its first byte, in which its connection could have carried bytes: so
//! many bytes between two extents are read and thrown away rather than asked around. How many, is
//! measured of each store ([`Traffic::gap`](super::traffic::Traffic::gap)); and never more is thrown
//! away than is wanted, but for a little.
//! A joint read is one request, no larger than S3 advises. Local files are not joined: a jump costs
//! nothing there.

use std::ops::Range;
use std::sync::Arc;

use crate::sample::{Extent, Location, Scheme};

/// Bytes of one request, at most: S3's advice is 8 to 16 MiB.
const LARGEST: u64 = 8 << 20;
/// Bytes that may be thrown away however little is wanted.
const WASTE: u64 = 256 << 10;
/// Several extents of one object that one request brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joint {
    /// What is read.
    pub extent: Extent,
    /// Their numbers among those that were asked about.
    pub members: Vec<usize>,
    /// Bytes of it that are wanted.
    pub wanted: u64,
}

impl Joint {
    /// Bytes that are read.
    pub fn bytes(&self) -> u64 {
        self.extent.range.as_ref().map_or(0, |range| range.end - range.start)
    }
}

/// Which of some extents are brought by one request: each is in at most one, and only where there are
/// others with it. `most` are the bytes that one may have, `gap` those that may lie between two.
pub(super) fn joints(
    extents: &[Option<Extent>],
    most: u64,
    gap: impl Fn(&Location) -> u64,
) -> Vec<Joint> {
    let most = most.min(LARGEST);
    let joinable = extents.iter().enumerate().filter_map(|(number, extent)| {
        let Extent { object, range } = extent.as_ref()?;
        let range = range.clone().filter(|range| !range.is_empty())?;
        (object.scheme != Scheme::File).then_some((object, range, number))
    });
    let mut joinable: Vec<(&Arc<Location>, Range<u64>, usize)> = joinable.collect();
    joinable.sort_by(|(object, range, number), (other, its_range, its_number)| {
        let places =
            (range.start, range.end, number).cmp(&(its_range.start, its_range.end, its_number));
        object.cmp(other).then(places)
    });
    let (mut joints, mut near) = (Vec::<Joint>::new(), 0);
    for (object, range, number) in joinable {
        if let Some(joint) = joints.last_mut()
            && joint.extent.object == *object
            && joint.takes(&range, near, most)
        {
            joint.members.push(number);
            continue;
        }
        if joints.last().is_none_or(|joint| joint.extent.object != *object) {
            near = gap(object);
        }
        let wanted = range.end - range.start;
        let extent = Extent { object: Arc::clone(object), range: Some(range) };
        joints.push(Joint { extent, members: vec![number], wanted });
    }
    joints.retain(|joint| joint.members.len() > 1);
    joints
}

impl Joint {
    /// Reaches as far as a range that begins in it or behind it, if that is worth it.
    fn takes(&mut self, range: &Range<u64>, gap: u64, most: u64) -> bool {
        let Some(all) = &mut self.extent.range else { return false };
        let end = all.end.max(range.end);
        let wanted = self.wanted + range.end.saturating_sub(all.end.max(range.start));
        let bytes = end - all.start;
        let near = range.start <= all.end.saturating_add(gap);
        if near && bytes <= most && bytes - wanted <= wanted.max(WASTE) {
            (all.end, self.wanted) = (end, wanted);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(scheme: Scheme, key: &str) -> Arc<Location> {
        Arc::new(Location { scheme, authority: "bucket".into(), key: key.into() })
    }

    fn extents(ranges: &[Range<u64>]) -> Vec<Option<Extent>> {
        let object = object(Scheme::S3, "shard");
        let of = |range: &Range<u64>| {
            Some(Extent { object: Arc::clone(&object), range: Some(range.clone()) })
        };
        ranges.iter().map(of).collect()
    }

    /// Members and range of each joint.
    fn joined(ranges: &[Range<u64>], gap: u64) -> Vec<(Vec<usize>, Range<u64>, u64)> {
        let joints = joints(&extents(ranges), u64::MAX, |_| gap);
        joints.into_iter().map(|it| (it.members, it.extent.range.unwrap(), it.wanted)).collect()
    }

    #[test]
    fn neighbours_are_joined_where_the_gap_is_small_and_little_is_thrown_away() {
        let (kib, mib) = (1 << 10, 1 << 20);
        assert_eq!(joined(&[10..20, 20..30], 0), [(vec![0, 1], 10..30, 20)]);
        assert_eq!(joined(&[20..30, 10..20], 0), [(vec![1, 0], 10..30, 20)], "in any order");
        assert_eq!(joined(&[10..20, 21..30], 0), [], "a gap too large");
        assert_eq!(joined(&[10..20, 21..30], 1), [(vec![0, 1], 10..30, 19)]);
        assert_eq!(joined(&[10..20, 10..20], 0), [(vec![0, 1], 10..20, 10)], "the same twice");
        assert_eq!(joined(&[10..90, 20..30, 95..99], 9), [(vec![0, 1, 2], 10..99, 84)]);
        let far = [0..kib, 256 * kib..257 * kib];
        assert_eq!(joined(&far, mib).len(), 1);
        let farther = [0..kib, 260 * kib..261 * kib];
        assert_eq!(joined(&farther, mib), [], "too much is thrown away");
        let large = [0..5 * mib, 5 * mib..10 * mib, 10 * mib..11 * mib];
        assert_eq!(joined(&large, mib), [(vec![1, 2], 5 * mib..11 * mib, 6 * mib)], "too large");
        assert_eq!(joined(&[0..0, 0..5], 9), []);
    }

    #[test]
    fn only_parts_of_one_remote_object_are_joined() {
        let part =
            |object: &Arc<Location>| Some(Extent { object: Arc::clone(object), range: Some(0..9) });
        let (a, b) = (object(Scheme::S3, "a"), object(Scheme::S3, "b"));
        let (file, again) = (object(Scheme::File, "f"), object(Scheme::S3, "a"));
        let whole = Some(Extent { object: Arc::clone(&a), range: None });
        let all = [part(&a), part(&b), None, part(&file), whole, part(&file), part(&again)];
        let joints = joints(&all, 18, |_| 1000);
        assert_eq!(joints.len(), 1, "{joints:?}");
        assert_eq!(
            (joints[0].members.as_slice(), joints[0].extent.object.clone()),
            (&[0, 6][..], a)
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn each_extent_is_in_at_most_one_joint_which_holds_it(
            ranges in prop::collection::vec((0_u64..20 << 20, 0_u64..1 << 20), 0..40),
            gap in 0_u64..4 << 20,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            let mut met = vec![false; ranges.len()];
            for (members, all, wanted) in joined(&ranges, gap) {
                prop_assert!(members.len() > 1);
                let mut bytes = vec![false; (all.end - all.start) as usize];
                for member in members {
                    prop_assert!(!std::mem::replace(&mut met[member], true));
                    let range = ranges[member].clone();
                    prop_assert!(all.start <= range.start && range.end <= all.end);
                    bytes[(range.start - all.start) as usize..(range.end - all.start) as usize].fill(true);
                }
                let really = bytes.iter().filter(|wanted| **wanted).count() as u64;
                prop_assert_eq!(wanted, really);
                let thrown_away = bytes.len() as u64 - really;
                prop_assert!(bytes.len() as u64 <= LARGEST && thrown_away <= really.max(WASTE));
                let longest = bytes.split(|wanted| *wanted).map(<[bool]>::len).max();
                prop_assert!(longest.unwrap_or(0) as u64 <= gap);
            }
        }
    }
}
