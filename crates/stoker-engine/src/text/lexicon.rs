//! The vocabulary and the merges of a tokenizer's file, by their numbers, if it is a plain one.
//!
//! Plain is what tokenizers are that were trained: every token is spelt in the letters that stand for
//! bytes, is there once and has a number of its own; besides the letters there is what merges make, in
//! their order, each of letters and of tokens that were made before; added tokens are numbered on. Only of
//! such a file can a part be taken and be known to do as the whole does. Of any other the library has the
//! word.
//!
//! The first batch waits for this. So each table is gone through once, and most of what is left is to find
//! the sides of merges, three hundred thousand of them.

use std::ops::Range;

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use super::canonical::{AddedToken, Tables};
use super::parts::{Parts, Strings};

/// What is in a file, and where.
pub(super) struct Lexicon {
    tokens: Tokens,
    /// The tokens' numbers in the file.
    ids: Vec<u32>,
    /// The left sides of merges and the right ones. Each makes the token of its place behind the letters.
    merges: Vec<[u32; 2]>,
    /// Those of more than one letter, to be found.
    longer: Strings,
}

/// Where the tokens are in the file, without their quotes; letters come first.
struct Tokens {
    places: Vec<Range<u32>>,
    letters: usize,
}

impl Tokens {
    fn spelling<'a>(&self, json: &'a str, token: usize) -> &'a str {
        let Range { start, end } = self.places[token];
        &json[start as usize..end as usize]
    }
}

impl Lexicon {
    pub(super) fn of(json: &str, tables: &Tables, added: &[AddedToken]) -> Option<Self> {
        u32::try_from(json.len()).ok()?;
        let (tokens, ids) = vocab(json, &tables.vocab)?;
        if !are_numbered(&ids, added) {
            return None;
        }
        let merges = merges(json, &tables.merges, &tokens)?;
        let longer =
            Strings::new(merges.len(), |number| tokens.spelling(json, tokens.letters + number));
        Some(Self { tokens, ids, merges, longer })
    }

    /// How many tokens are letters: the first ones.
    pub(super) fn letters(&self) -> usize {
        self.tokens.letters
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn spelling<'a>(&self, json: &'a str, token: usize) -> &'a str {
        self.tokens.spelling(json, token)
    }

    /// A token's number in the file.
    pub(super) fn id(&self, token: usize) -> u32 {
        self.ids[token]
    }

    /// A merge, as the file spells its sides.
    pub(super) fn sides<'a>(&self, json: &'a str, merge: usize) -> [&'a str; 2] {
        self.merges[merge].map(|token| self.spelling(json, token as usize))
    }

    /// Of the tokens that may be parts of a text, and those that the first merges make: which merges make them.
    /// In order; letters have none.
    pub(super) fn merges_of(&self, json: &str, text: &Parts, first: usize) -> Vec<usize> {
        let first = first.min(self.merges.len());
        let spelt = |number| self.spelling(json, self.letters() + number);
        let found = self.longer.parts_of(text, spelt);
        let rest = found.into_iter().filter(|merge| *merge >= first);
        (0..first).chain(rest).collect()
    }
}

/// The tokens, letters before the rest, and their numbers. All are spelt in letters of bytes.
fn vocab(json: &str, table: &Range<usize>) -> Option<(Tokens, Vec<u32>)> {
    let mut reader = Reader::of(json, table);
    let (mut letters, mut rest) = (Vec::new(), Vec::new());
    let mut mark = b"{".as_slice();
    while !reader.is_at_end(b"}") {
        reader.skip(mark)?;
        let (place, length) = reader.string()?;
        reader.skip(b":")?;
        let kind = if length == 1 { &mut letters } else { &mut rest };
        kind.push((place, reader.number()?));
        mark = b",";
    }
    let count = letters.len();
    let (places, ids) = letters.into_iter().chain(rest).unzip();
    Some((Tokens { places, letters: count }, ids))
}

/// The sides of all merges, if each makes the next token, of letters and of what was made before.
fn merges(json: &str, table: &Range<usize>, tokens: &Tokens) -> Option<Vec<[u32; 2]>> {
    let mut reader = Reader::of(json, table);
    let mut known = Known::new(json, tokens);
    for letter in 0..tokens.letters {
        known.insert(letter)?;
    }
    let mut merges = Vec::with_capacity(tokens.places.len() - tokens.letters);
    let mut mark = b"[[".as_slice();
    for made in tokens.letters..tokens.places.len() {
        reader.skip(mark)?;
        let (left, _) = reader.string()?;
        reader.skip(b",")?;
        let (right, _) = reader.string()?;
        let [left, right] = [left, right].map(|it| &json[it.start as usize..it.end as usize]);
        if tokens.spelling(json, made).strip_prefix(left) != Some(right) {
            return None;
        }
        merges.push([known.find(left)?, known.find(right)?]);
        known.insert(made)?;
        mark = b"],[";
    }
    reader.is_at_end(b"]]").then_some(merges)
}

/// Tokens that can be made, to be found by their spelling. Nobody has anything from making many hashes equal:
/// what is slow then is the start of their own run.
struct Known<'a> {
    numbers: HashTable<u32>,
    json: &'a str,
    tokens: &'a Tokens,
}

impl<'a> Known<'a> {
    fn new(json: &'a str, tokens: &'a Tokens) -> Self {
        Self { numbers: HashTable::with_capacity(tokens.places.len()), json, tokens }
    }

    fn spelling(&self, token: u32) -> &'a str {
        self.tokens.spelling(self.json, token as usize)
    }

    fn find(&self, spelling: &str) -> Option<u32> {
        let is_it = |token: &u32| self.spelling(*token) == spelling;
        self.numbers.find(hash(spelling), is_it).copied()
    }

    /// Nothing if there is one of that spelling.
    fn insert(&mut self, token: usize) -> Option<()> {
        let (json, tokens) = (self.json, self.tokens);
        let spelling = tokens.spelling(json, token);
        if self.find(spelling).is_some() {
            return None;
        }
        let again = |token: &u32| hash(tokens.spelling(json, *token as usize));
        self.numbers.insert_unique(hash(spelling), token as u32, again);
        Some(())
    }
}

fn hash(spelling: &str) -> u64 {
    xxh3_64(spelling.as_bytes())
}

/// Goes through a table that has no space between its words.
struct Reader<'a> {
    /// Ends with the table.
    json: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn of(json: &'a str, table: &Range<usize>) -> Self {
        Self { json: &json.as_bytes()[..table.end], at: table.start }
    }

    /// Goes past what has to come now.
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        let is_there = self.json[self.at..].starts_with(text);
        is_there.then(|| self.at += text.len())
    }

    /// Whether nothing but this is left.
    fn is_at_end(&self, text: &[u8]) -> bool {
        self.json[self.at..] == *text
    }

    /// Goes past a string; where it is, without its quotes, and how many letters it has. Nothing if it has none,
    /// or others than those that GPT-2 has for bytes (the printable ones of Latin-1 for themselves, and
    /// as many as there are others from U+0100 on), or is spelt in a way in which the same letters would not
    /// always be the same bytes.
    fn string(&mut self) -> Option<(Range<u32>, usize)> {
        self.skip(b"\"")?;
        let (start, mut at, mut letters) = (self.at, self.at, 0);
        loop {
            at += match self.json.get(at..)? {
                [b'"', ..] => break,
                // The two escapes that there must be; U+00A1 to U+00FF without U+00AD, and on to U+0143.
                [b'\\', b'"' | b'\\', ..]
                | [0xc2, 0xa1..=0xac | 0xae..=0xbf, ..]
                | [0xc3 | 0xc4, 0x80..=0xbf, ..]
                | [0xc5, 0x80..=0x83, ..] => 2,
                [b'!'..=b'[' | b']'..=b'~', ..] => 1,
                _ => return None,
            };
            letters += 1;
        }
        self.at = at + 1;
        (letters > 0).then_some((start as u32..at as u32, letters))
    }

    /// Goes past a whole number.
    fn number(&mut self) -> Option<u32> {
        let rest = &self.json[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        let mut number = 0_u32;
        let mut count = 0;
        for digit in digits {
            number = number.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
            count += 1;
        }
        self.at += count;
        (count > 0).then_some(number)
    }
}

/// Whether tokens have numbers of their own, and the added ones those that follow.
fn are_numbered(ids: &[u32], added: &[AddedToken]) -> bool {
    let mut are_taken = vec![false; ids.len()];
    // Of so many different ones below their count, none is left out.
    let own = ids.iter().all(|id| {
        are_taken.get_mut(*id as usize).is_some_and(|taken| !std::mem::replace(taken, true))
    });
    let mut added: Vec<u32> = added.iter().map(|token| token.id).collect();
    added.sort_unstable();
    own && (ids.len() as u32..).zip(&added).all(|(expected, id)| *id == expected)
}
