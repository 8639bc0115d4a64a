//! The vocabulary and the merges of a tokenizer's file, by their numbers, if it is a plain one.
//!
//! Plain is what tokenizers are that were trained: every token is spelt in the letters that stand for
//! bytes, is there once and has a number of its own; every merge makes a token that no other makes, of
//! letters and of tokens that were made before; added tokens are numbered on. Only of such a file can
//! a part be taken and be known to do as the whole does. Of any other the library has the word.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::canonical::{AddedToken, Tables, words};
use super::parts::{Parts, Strings};

/// No merge.
const NONE: u32 = u32::MAX;

/// What is in a file, and where: strings are without their quotes.
pub(super) struct Lexicon {
    /// The tokens; letters come first.
    tokens: Vec<Range<u32>>,
    letters: usize,
    /// The tokens' numbers in the file.
    ids: Vec<u32>,
    /// The left sides of merges and the right ones.
    merges: Vec<[Range<u32>; 2]>,
    /// What each makes.
    made: Vec<u32>,
    /// Which merge makes each token.
    makers: Vec<u32>,
    /// Those of more than one letter, to be found.
    longer: Strings,
}

type Numbers<'a> = HashMap<&'a str, u32, BuildHasherDefault<Short>>;

impl Lexicon {
    pub(super) fn of(json: &str, tables: &Tables, added: &[AddedToken]) -> Option<Self> {
        let spelling = |string: &Range<u32>| &json[string.start as usize..string.end as usize];
        let strings = strings(json, tables.vocab.clone())?;
        let (mut tokens, rest): (Vec<_>, Vec<_>) =
            strings.into_iter().partition(|token| is_letter(spelling(token)));
        let letters = tokens.len();
        tokens.extend(rest);
        if !tokens.iter().all(|token| stands_for_bytes(spelling(token))) {
            return None;
        }
        let ids = tokens.iter().map(|token| id(json, token)).collect::<Option<Vec<_>>>()?;
        if !are_numbered(&ids, added) {
            return None;
        }
        let mut numbers = Numbers::default();
        numbers.reserve(tokens.len());
        for (token, number) in tokens.iter().zip(0..) {
            if numbers.insert(spelling(token), number).is_some() {
                return None;
            }
        }
        let merges = pairs(json, tables.merges.clone())?;
        let (mut made, mut makers) = (Vec::with_capacity(merges.len()), vec![NONE; tokens.len()]);
        let mut whole = String::new();
        for ([left, right], merge) in merges.iter().zip(0..) {
            let is_there = |side: &Range<u32>| {
                let number = *numbers.get(spelling(side))? as usize;
                (number < letters || makers[number] != NONE).then_some(())
            };
            is_there(left)?;
            is_there(right)?;
            whole.clear();
            whole.extend([spelling(left), spelling(right)]);
            let product = *numbers.get(whole.as_str())?;
            if std::mem::replace(&mut makers[product as usize], merge) != NONE {
                return None;
            }
            made.push(product);
        }
        let spell = |number: usize, to: &mut Vec<u8>| {
            to.extend_from_slice(spelling(&tokens[letters + number]).as_bytes());
        };
        let longer = Strings::new(tokens.len() - letters, spell);
        Some(Self { tokens, letters, ids, merges, made, makers, longer })
    }

    /// How many tokens are letters: the first ones.
    pub(super) fn letters(&self) -> usize {
        self.letters
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn spelling<'a>(&self, json: &'a str, token: usize) -> &'a str {
        let Range { start, end } = self.tokens[token];
        &json[start as usize..end as usize]
    }

    /// A token's number in the file.
    pub(super) fn id(&self, token: usize) -> u32 {
        self.ids[token]
    }

    /// A merge, as the file spells its sides.
    pub(super) fn sides<'a>(&self, json: &'a str, merge: usize) -> [&'a str; 2] {
        [0, 1].map(|side| {
            let Range { start, end } = self.merges[merge][side];
            &json[start as usize..end as usize]
        })
    }

    /// Letters, all tokens that may be parts of a text, and what the first merges make; and the merges
    /// that make these. All in order.
    pub(super) fn parts_of(
        &self,
        json: &str,
        text: &Parts,
        first_merges: usize,
    ) -> (Vec<usize>, Vec<usize>) {
        let spell = |number: usize, to: &mut Vec<u8>| {
            to.extend_from_slice(self.spelling(json, self.letters + number).as_bytes());
        };
        let found = self.longer.parts_of(text, spell).into_iter().map(|it| it + self.letters);
        let first = self.made.iter().take(first_merges).map(|it| *it as usize);
        let mut tokens: Vec<_> = (0..self.letters).chain(found).chain(first).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let makers = tokens.iter().map(|token| self.makers[*token]).filter(|it| *it != NONE);
        let mut merges: Vec<_> = makers.map(|it| it as usize).collect();
        merges.sort_unstable();
        (tokens, merges)
    }
}

/// Where the strings of a table are. Nothing if one is spelt in a way in which the same letters
/// would not always be the same bytes.
fn strings(json: &str, table: Range<usize>) -> Option<Vec<Range<u32>>> {
    let mut at = u32::try_from(table.start).ok().filter(|_| u32::try_from(table.end).is_ok())?;
    let mut strings = Vec::with_capacity(table.len() / 16);
    for word in words(&json[table]) {
        let end = at + word.len() as u32;
        if word.starts_with('"') {
            if !has_plain_escapes(word.as_bytes()) {
                return None;
            }
            strings.push(at + 1..end - 1);
        }
        at = end;
    }
    Some(strings)
}

/// The strings of a table, two and two, if that is how they are put.
fn pairs(json: &str, table: Range<usize>) -> Option<Vec<[Range<u32>; 2]>> {
    let strings = strings(json, table)?;
    let between = |two: &[Range<u32>]| &json[two[0].end as usize..two[1].start as usize];
    let expected = [r#"",""#, r#""],[""#].into_iter().cycle();
    let are_pairs = strings.len().is_multiple_of(2)
        && strings.windows(2).zip(expected).all(|(two, text)| between(two) == text);
    let pairs = strings.chunks_exact(2).map(|two| [two[0].clone(), two[1].clone()]);
    are_pairs.then(|| pairs.collect())
}

/// The number that a file gives a token.
fn id(json: &str, token: &Range<u32>) -> Option<u32> {
    let rest = json[token.end as usize..].strip_prefix("\":")?;
    rest[..rest.find([',', '}'])?].parse().ok()
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

/// Whether a token, spelt in JSON, is one letter.
fn is_letter(spelling: &str) -> bool {
    let letters = spelling.strip_prefix('\\').filter(|rest| !rest.is_empty()).unwrap_or(spelling);
    letters.chars().nth(1).is_none()
}

/// Whether all letters are those that GPT-2 has for bytes: the printable ones of Latin-1 for
/// themselves, and as many as there are others from U+0100 on.
fn stands_for_bytes(spelling: &str) -> bool {
    let is_of_a_byte =
        |letter: char| matches!(letter, '!'..='~' | '¡'..='¬' | '®'..='ÿ' | '\u{100}'..='\u{143}');
    !spelling.is_empty() && spelling.chars().all(is_of_a_byte)
}

/// Whether a string in JSON has no escapes but those that its letters can't do without.
fn has_plain_escapes(string: &[u8]) -> bool {
    let mut escape = false;
    string.iter().all(|byte| {
        let is_plain = !escape || matches!(byte, b'"' | b'\\');
        escape = !escape && *byte == b'\\';
        is_plain
    })
}

/// A hash of a short string: the standard library's, which no one can foresee, takes three times as
/// long, and here nobody has anything from making many that are equal.
#[derive(Default)]
struct Short(u64);

impl Hasher for Short {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = self.0.rotate_left(5) ^ xxhash_rust::xxh3::xxh3_64(bytes);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
