//! Which of very many strings may be parts of a text.
//!
//! A text is known by its pairs of bytes and its runs of four; a string all of whose pairs and runs
//! the text has is taken for a part of it, which is wrong now and then. The strings are in order of
//! the run that they begin with, so that only those are looked at which begin with one of the text's.

/// Where strings of less than four bytes are, which begin with no run.
const SHORT: u32 = PLACES as u32;

/// Places of runs.
const PLACES: usize = 1 << 18;

/// The pairs and runs of a text.
pub(super) struct Parts {
    pairs: Set<{ 1 << 16 }>,
    runs: Set<PLACES>,
    /// The runs, once each.
    each: Vec<u32>,
}

impl Parts {
    pub(super) fn of(text: &[u8]) -> Self {
        let mut parts = Self { pairs: Set::default(), runs: Set::default(), each: Vec::new() };
        for pair in text.windows(2) {
            parts.pairs.insert(place_of_pair(pair));
        }
        for run in text.windows(4).map(place_of_run) {
            if parts.runs.insert(run as usize) {
                parts.each.push(run);
            }
        }
        parts
    }

    /// Whether these bytes may be a part of the text. If so, so may all parts of them.
    fn may_hold(&self, bytes: &[u8]) -> bool {
        bytes.windows(4).all(|run| self.runs.holds(place_of_run(run) as usize))
            && bytes.windows(2).all(|pair| self.pairs.holds(place_of_pair(pair)))
    }
}

/// Strings, by their numbers.
pub(super) struct Strings {
    /// The numbers, in the order of the runs that their strings begin with.
    in_order: Vec<u32>,
    /// For each place of a run, how many come before those that begin with it.
    before: Vec<u32>,
}

impl Strings {
    /// `spelt` is the string of a number.
    pub(super) fn new<'a>(count: usize, spelt: impl Fn(usize) -> &'a str) -> Self {
        let place = |number| spelt(number).as_bytes().get(..4).map_or(SHORT, place_of_run) as usize;
        let places: Vec<_> = (0..count).map(place).collect();
        let mut before = vec![0; SHORT as usize + 2];
        for place in &places {
            before[place + 1] += 1;
        }
        for place in 1..before.len() {
            before[place] += before[place - 1];
        }
        let (mut next, mut in_order) = (before.clone(), vec![0; count]);
        for (number, place) in (0..).zip(places) {
            in_order[next[place] as usize] = number;
            next[place] += 1;
        }
        Self { in_order, before }
    }

    /// The numbers of those that may be parts of a text, in their order.
    pub(super) fn parts_of<'a>(
        &self,
        text: &Parts,
        spelt: impl Fn(usize) -> &'a str,
    ) -> Vec<usize> {
        let runs = text.each.iter().copied().chain([SHORT]);
        let all = runs.flat_map(|run| self.beginning_with(run)).map(|number| *number as usize);
        let mut found: Vec<_> =
            all.filter(|number| text.may_hold(spelt(*number).as_bytes())).collect();
        found.sort_unstable();
        found
    }

    fn beginning_with(&self, run: u32) -> &[u32] {
        let [start, end] = [run, run + 1].map(|run| self.before[run as usize] as usize);
        &self.in_order[start..end]
    }
}

fn place_of_pair(pair: &[u8]) -> usize {
    usize::from(pair[0]) << 8 | usize::from(pair[1])
}

/// By Fibonacci's multiplier: different runs may share a place.
fn place_of_run(run: &[u8]) -> u32 {
    let run = u32::from_le_bytes([run[0], run[1], run[2], run[3]]);
    run.wrapping_mul(0x9e37_79b9) >> 14
}

/// Numbers below `N`, a bit for each, so that all of them stay in a core's nearest cache.
struct Set<const N: usize>(Vec<u64>);

impl<const N: usize> Default for Set<N> {
    fn default() -> Self {
        Self(vec![0; N / 64])
    }
}

impl<const N: usize> Set<N> {
    /// Whether it is new.
    fn insert(&mut self, number: usize) -> bool {
        let is_new = !self.holds(number);
        self.0[number / 64] |= 1 << (number % 64);
        is_new
    }

    fn holds(&self, number: usize) -> bool {
        self.0[number / 64] >> (number % 64) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_part_of_a_text_is_found(
            text in "[ab\u{120}]{0,40}",
            strings in prop::collection::vec("[abc\u{120}]{1,8}", 0..200),
        ) {
            let spelt = |number: usize| strings[number].as_str();
            let found = Strings::new(strings.len(), spelt).parts_of(&Parts::of(text.as_bytes()), spelt);
            prop_assert!(found.is_sorted());
            for (number, string) in strings.iter().enumerate() {
                let is_part = text.contains(string.as_str());
                prop_assert!(!is_part || found.contains(&number), "{string}");
                // No letter of its own: nothing of it can be there but by a run that shares a place.
                let is_foreign = string.len() < 4 && string.len() > 1 && string.contains('c');
                prop_assert!(!is_foreign || !found.contains(&number), "{string}");
            }
        }
    }
}
