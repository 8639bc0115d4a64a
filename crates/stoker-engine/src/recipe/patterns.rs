//! How one source names many shards, as shells have it.
//!
//! - Braces make several names of one, in order: `{a,b}`, `{000..127}` (as wide as it is written),
//!   `{0..100..10}`, `{a..f}`, nested as one likes; braces that hold neither stay as they are.
//! - `*`, `?`, `[abc]` and `**` (any folders) stand for what a store lists, sorted by name. Not on
//!   `http(s)`, which has no listings and where `?` begins a query.
//! - A character in brackets stands for itself: `[*]`, `[{]`.

/// Most names that braces may make.
const MOST: usize = 1_000_000;
/// Most bytes of all names together, roughly.
const LARGEST: usize = 256 << 20;
/// Longest text with braces: each pair is looked at for itself.
const LONGEST: usize = 4096;
/// What has a meaning, and is taken by its letter in brackets.
const SPECIAL: [char; 4] = ['*', '?', '[', '{'];
/// What brackets take the meaning from: some of these mean something only behind the above.
const QUOTABLE: [char; 7] = ['*', '?', '[', '{', '}', ']', ','];

/// The names that a text stands for, braces expanded; why not, where they are too many.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    if text.len() > LONGEST {
        return Err(format!("is longer than {LONGEST} bytes"));
    }
    let most = MOST.min(LARGEST / text.len().max(1));
    let names = braces(&text.chars().collect::<Vec<_>>(), most);
    names.ok_or_else(|| format!("{text:?} names more than {most} shards"))
}

/// The one name that a text without `*`, `?` and `[…]` stands for; `None` for a pattern.
pub fn literal(text: &str) -> Option<String> {
    let (name, is_pattern) = unquote(text);
    (!is_pattern).then_some(name)
}

/// The name that a text is if nothing in it has a meaning but letters in brackets.
pub fn unquoted(text: &str) -> String {
    unquote(text).0
}

fn unquote(text: &str) -> (String, bool) {
    let (mut name, mut is_pattern) = (String::new(), false);
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let quoted = quoted_letter(rest);
        name.push(quoted.unwrap_or(letter));
        is_pattern |= quoted.is_none() && ['*', '?', '['].contains(&letter);
        rest = &rest[quoted.map_or(letter.len_utf8(), |quoted| quoted.len_utf8() + 2)..];
    }
    (name, is_pattern)
}

/// A text that stands for a name, whatever letters it has.
pub fn quoted(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if SPECIAL.contains(&letter) {
            text.extend(['[', letter, ']']);
        } else {
            text.push(letter);
        }
    }
    text
}

/// The letter in brackets that a text begins with.
fn quoted_letter(text: &str) -> Option<char> {
    let mut letters = text.chars();
    match (letters.next(), letters.next(), letters.next()) {
        (Some('['), Some(letter), Some(']')) if QUOTABLE.contains(&letter) => Some(letter),
        _ => None,
    }
}

/// All names, or `None` where there are more than `most`.
fn braces(text: &[char], most: usize) -> Option<Vec<String>> {
    let mut start = 0;
    while let Some(open) = find(text, start, '{') {
        let Some(group) = Group::at(text, open) else {
            start = open + 1;
            continue;
        };
        let heads = group.choices(most)?;
        let tails = braces(&text[group.end..], most)?;
        if heads.len().checked_mul(tails.len())? > most {
            return None;
        }
        let before: String = text[..open].iter().collect();
        let names = heads.iter().flat_map(|head| {
            let before = &before;
            tails.iter().map(move |tail| format!("{before}{head}{tail}"))
        });
        return Some(names.collect());
    }
    Some(vec![text.iter().collect()])
}

/// The next such letter that does not stand in brackets of its own.
fn find(text: &[char], from: usize, letter: char) -> Option<usize> {
    let mut at = from;
    while at < text.len() {
        if is_quoted_letter(&text[at..]) {
            at += 3;
        } else if text[at] == letter {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

/// Whether a text begins with a letter in brackets that stands for itself.
fn is_quoted_letter(text: &[char]) -> bool {
    matches!(text, ['[', letter, ']', ..] if QUOTABLE.contains(letter))
}

/// What stands between a pair of braces.
enum Inside<'a> {
    List(Vec<&'a [char]>),
    Range(Vec<String>),
    TooLong,
}

struct Group<'a> {
    inside: Inside<'a>,
    /// Behind the closing brace.
    end: usize,
}

impl<'a> Group<'a> {
    /// The group that opens there, if it is one.
    fn at(text: &'a [char], open: usize) -> Option<Self> {
        let (mut depth, mut items, mut begin) = (0, Vec::new(), open + 1);
        let mut at = open + 1;
        while at < text.len() {
            match text[at] {
                '[' if is_quoted_letter(&text[at..]) => at += 2,
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' if depth == 0 => {
                    items.push(&text[begin..at]);
                    begin = at + 1;
                }
                '}' => {
                    items.push(&text[begin..at]);
                    let inside = match items.as_slice() {
                        [only] => range(&only.iter().collect::<String>())?,
                        _ => Inside::List(items),
                    };
                    return Some(Self { inside, end: at + 1 });
                }
                _ => {}
            }
            at += 1;
        }
        None
    }

    fn choices(&self, most: usize) -> Option<Vec<String>> {
        match &self.inside {
            Inside::TooLong => None,
            Inside::Range(names) => Some(names.clone()),
            Inside::List(items) => {
                let mut names = Vec::new();
                for item in items {
                    names.extend(braces(item, most)?);
                }
                (names.len() <= most).then_some(names)
            }
        }
    }
}

/// `first..last` or `first..last..step`, of numbers or letters.
fn range(text: &str) -> Option<Inside<'static>> {
    let parts: Vec<&str> = text.split("..").collect();
    let (first, last, step) = match parts.as_slice() {
        [first, last] => (*first, *last, 1),
        [first, last, step] => (*first, *last, step.parse::<i64>().ok()?.unsigned_abs().max(1)),
        _ => return None,
    };
    let letters = (one_letter(first), one_letter(last));
    if let (Some(first), Some(last)) = letters {
        let steps = steps(first.into(), last.into(), step)?;
        let names = steps.iter().filter_map(|code| u8::try_from(*code).ok());
        return Some(Inside::Range(names.map(|code| char::from(code).to_string()).collect()));
    }
    let padded = |text: &str| {
        let digits = text.trim_start_matches('-');
        digits.len() > 1 && digits.starts_with('0')
    };
    let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
    let Some(numbers) = steps(first.parse().ok()?, last.parse().ok()?, step) else {
        return Some(Inside::TooLong);
    };
    Some(Inside::Range(numbers.iter().map(|number| format!("{number:0width$}")).collect()))
}

fn one_letter(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some(*letter),
        _ => None,
    }
}

/// From one number to the other, both included; `None` where there are too many.
fn steps(first: i64, last: i64, step: u64) -> Option<Vec<i64>> {
    let count = usize::try_from(first.abs_diff(last) / step).ok().filter(|count| *count < MOST)?;
    let step = i64::try_from(step).ok()?;
    let step = if first <= last { step } else { -step };
    Some((0..=count as i64).map(|number| first + number * step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> String {
        expand(text).unwrap().join(" ")
    }

    /// What bash 5 makes of the same text.
    #[test]
    fn braces_expand_as_in_a_shell() {
        for (text, expected) in [
            ("a.tar", "a.tar"),
            ("{a,b}.tar", "a.tar b.tar"),
            ("x-{000..003}.tar", "x-000.tar x-001.tar x-002.tar x-003.tar"),
            ("{8..11}", "8 9 10 11"),
            ("{08..11}", "08 09 10 11"),
            ("{3..1}", "3 2 1"),
            ("{0..100..50}", "0 50 100"),
            ("{0..9..4}", "0 4 8"),
            ("{10..0..-5}", "10 5 0"),
            ("{-01..1}", "-01 000 001"),
            ("{-1..1}", "-1 0 1"),
            ("{c..e}", "c d e"),
            ("{a,b}{1..2}", "a1 a2 b1 b2"),
            ("{a,b{1..2},c}x", "ax b1x b2x cx"),
            ("{train,val}/{00..01}.tar", "train/00.tar train/01.tar val/00.tar val/01.tar"),
            ("{a,}", "a "),
            ("{}", "{}"),
            ("{a}", "{a}"),
            ("{a..}", "{a..}"),
            ("{1..x}", "{1..x}"),
            ("{a", "{a"),
            ("{a,b", "{a,b"),
            ("a}b{c,d}", "a}bc a}bd"),
            ("{{a,b}}", "{a} {b}"),
            ("{x}{a,b}", "{x}a {x}b"),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn too_many_names_are_refused_and_not_made() {
        for text in ["{0..999999999999}", "{0..999999}{0..9}", "{0..9}{0..9}{0..9}{0..99999}"] {
            let reason = expand(text).unwrap_err();
            assert_eq!(reason, format!("{text:?} names more than 1000000 shards"));
        }
        assert_eq!(expand("{1..1000000}").unwrap().len(), 1_000_000);
    }

    #[test]
    fn letters_in_brackets_stand_for_themselves() {
        for name in ["a*b", "what?.tar", "[x]", "{a,b}.tar", "{0..3}", "[[{", "plain", "é{1,2}"] {
            let text = quoted(name);
            assert_eq!(expand(&text).unwrap(), std::slice::from_ref(&text), "{name}");
            assert_eq!(literal(&text).as_deref(), Some(name), "{text}");
        }
        assert_eq!(names("[{]{a,b}[,]"), "[{]a[,] [{]b[,]");
        assert_eq!(literal("x[{]a[,]").as_deref(), Some("x{a,"));
        for pattern in ["a*", "?", "x[12]", "x[1]", "**/a", "[", "[*][a]"] {
            assert_eq!(literal(pattern), None, "{pattern}");
        }
    }
}
