//! A mixture of any weights: a tree of two-way splits.
//!
//! It is Huffman's tree over the weights: the two lightest are joined, again and again, so the
//! heaviest datasets are reached in the fewest steps. Of the n positions that come to a node, the
//! left child gets n a / c, rounded to the nearest, where a is its weight and c that of the node;
//! the right child gets the others. So which way a position goes, and how many went there before, is
//! a matter of one division.
//!
//! A node's rounding is off by at most a half. A dataset of weight w has that of its own node, and
//! w / u of that of each node of weight u on the way down (the root's apart). In Huffman's tree such
//! u are at least 1, 2, 3, 5, 8, … times w, so a dataset's share of any prefix is kept within
//! ½ (1 + 1 + 1/2 + 1/3 + 1/5 + 1/8 + …) < 1.68 samples, and mostly within one. After a multiple of
//! the sum of all weights it is exact.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::mixture::gcd;

/// Splits, each to two.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    root: Child,
}

/// Of `of` positions, `share` go to the left.
#[derive(Clone, Copy, Debug)]
struct Node {
    share: u64,
    of: u64,
    left: Child,
    right: Child,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Child {
    Dataset(u32),
    Node(u32),
}

impl Tree {
    /// The tree of weights with a sum below 2^62.
    pub(super) fn new(weights: &[u64]) -> Self {
        let drawn = (0_u32..).zip(weights).filter(|(_, weight)| **weight > 0);
        // Of equal weights, datasets come first, by number; then nodes, in the order of their making.
        let mut loose: BinaryHeap<_> =
            drawn.map(|(dataset, weight)| Reverse((*weight, Child::Dataset(dataset)))).collect();
        let mut nodes = Vec::new();
        loop {
            let Reverse((share, left)) = loose.pop().expect("a mixture has a dataset");
            let Some(Reverse((other, right))) = loose.pop() else {
                return Self { nodes, root: left };
            };
            let of = share + other;
            loose.push(Reverse((of, Child::Node(nodes.len() as u32))));
            let divisor = gcd(share, of);
            nodes.push(Node { share: share / divisor, of: of / divisor, left, right });
        }
    }

    /// The dataset at a position, and how often it came before.
    pub(super) fn place_at(&self, position: u64) -> (u32, u64) {
        let (mut child, mut position) = (self.root, position);
        loop {
            let node = match child {
                Child::Dataset(dataset) => return (dataset, position),
                Child::Node(node) => &self.nodes[node as usize],
            };
            let (left, is_left) = node.split(position);
            (child, position) =
                if is_left { (node.left, left) } else { (node.right, position - left) };
        }
    }

    /// Adds how often each dataset comes before a position.
    pub(super) fn count(&self, position: u64, counts: &mut [u64]) {
        let mut open = vec![(self.root, position)];
        while let Some((child, position)) = open.pop() {
            match child {
                Child::Dataset(dataset) => counts[dataset as usize] += position,
                Child::Node(node) => {
                    let node = &self.nodes[node as usize];
                    let (left, _) = node.split(position);
                    open.extend([(node.left, left), (node.right, position - left)]);
                }
            }
        }
    }
}

impl Node {
    /// How many of the positions before this one went to the left, and whether this one does.
    fn split(&self, position: u64) -> (u64, bool) {
        let (turns, rest) = (position / self.of, position % self.of);
        // floor((2 rest share + of) / (2 of)) is rest share / of, rounded to the nearest.
        let (left, over) = if self.of < 1 << 31 {
            let doubled = 2 * rest * self.share + self.of;
            (doubled / (2 * self.of), doubled % (2 * self.of))
        } else {
            let of = u128::from(self.of);
            let doubled = 2 * u128::from(rest) * u128::from(self.share) + of;
            let left = doubled / (2 * of);
            (left as u64, (doubled - left * 2 * of) as u64)
        };
        (turns * self.share + left, over + 2 * self.share >= 2 * self.of)
    }
}
