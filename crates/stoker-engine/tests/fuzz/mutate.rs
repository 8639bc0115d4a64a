//! Mutations by seed, of the kinds that fuzzers use: bits, bytes, numbers, pieces.

/// A seeded source of mutations: splitmix64.
pub(crate) struct Mutator(u64);

/// Numbers at the edges of what fits.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    u64::MAX,
];

/// Letters that mean something to one parser or another.
const LETTERS: &[u8] = b"{}[]\",:\\/.%<>&;|#*?-+\0\n\r\t 019eE\xFF\xD8\xEF\xBF\xBD";

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.bits() % count.max(1) as u64) as usize
    }

    /// A place, more often near the beginning, where headers are.
    fn place(&mut self, length: usize) -> usize {
        let within = if self.below(4) == 0 { length.min(128) } else { length };
        self.below(within)
    }

    /// One of the seeds, changed in some places.
    pub(crate) fn mutated(&mut self, seeds: &[&[u8]]) -> Vec<u8> {
        let seed = seeds[self.below(seeds.len())];
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(3) {
            let other = seeds[self.below(seeds.len())];
            self.mutate(&mut bytes, other);
        }
        bytes
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        if bytes.is_empty() {
            bytes.push(self.bits() as u8);
            return;
        }
        let at = self.place(bytes.len());
        match self.below(9) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.bits() as u8,
            2 => bytes[at] = LETTERS[self.below(LETTERS.len())],
            3 => {
                let (edge, width) = (EDGES[self.below(EDGES.len())], [1, 2, 4, 8][self.below(4)]);
                let number =
                    if self.below(2) == 0 { edge.to_le_bytes() } else { edge.to_be_bytes() };
                let number =
                    if number[0] == edge as u8 { &number[..width] } else { &number[8 - width..] };
                let end = bytes.len().min(at + width);
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            4 => bytes.truncate(at),
            5 => {
                let end = bytes.len().min(at + 1 + self.below(32));
                bytes.drain(at..end);
            }
            6 => {
                let end = bytes.len().min(at + 1 + self.below(64));
                let piece = bytes[at..end].repeat(1 + self.below(8));
                bytes.splice(at..at, piece);
            }
            7 => {
                let from = self.below(other.len().max(1));
                let end = other.len().min(from + 1 + self.below(256));
                let piece = other.get(from..end).unwrap_or_default().to_vec();
                let until = bytes.len().min(at + self.below(256));
                bytes.splice(at..until, piece);
            }
            _ => bytes.insert(at, LETTERS[self.below(LETTERS.len())]),
        }
    }
}
