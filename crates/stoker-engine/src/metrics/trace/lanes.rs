//! What overlaps, side by side: each goes to the first lane that is free, so that on one lane one thing
//! comes after the other, as viewers of traces want it of a thread.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

/// The lane of each span, in the order of the spans.
pub(super) fn lanes(spans: &[Range<i64>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|&number| (spans[number].start, spans[number].end));
    let (mut busy, mut free, mut lanes) = (BinaryHeap::new(), BTreeSet::new(), 0);
    let mut lane_of = vec![0; spans.len()];
    for number in order {
        let span = &spans[number];
        while let Some(Reverse((end, lane))) = busy.peek().copied()
            && end <= span.start
        {
            busy.pop();
            free.insert(lane);
        }
        let lane = free.pop_first().unwrap_or_else(|| {
            lanes += 1;
            lanes - 1
        });
        busy.push(Reverse((span.end, lane)));
        lane_of[number] = lane;
    }
    lane_of
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn on_a_lane_nothing_overlaps_and_there_are_no_more_lanes_than_overlap_at_once(
            spans in prop::collection::vec((0_i64..1000, 0_i64..100), 0..80)
        ) {
            let spans: Vec<_> = spans.into_iter().map(|(start, length)| start..start + length).collect();
            let found = lanes(&spans);
            for (a, one) in spans.iter().enumerate() {
                for (b, other) in spans.iter().enumerate().filter(|(b, _)| *b != a) {
                    let apart = one.end <= other.start || other.end <= one.start;
                    prop_assert!(apart || found[a] != found[b], "{one:?} and {other:?}");
                }
            }
            let at_once = |at: i64| spans.iter().filter(|span| span.start <= at && at < span.end.max(span.start + 1)).count();
            let most = spans.iter().map(|span| at_once(span.start)).max().unwrap_or(0);
            prop_assert!(found.iter().all(|lane| *lane < most.max(1)));
        }
    }
}
