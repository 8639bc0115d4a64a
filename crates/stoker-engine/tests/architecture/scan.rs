//! Finds the rooms that a source text names: `crate::room`, groups such as `use crate::{a, b::c}`,
//! and chains of `super` that climb out of a room. It reads tokens, not lines, so that comments,
//! strings and layout make no difference; what it can't follow (`use crate::*`, `crate as x`) is
//! named `*`, which has no door anywhere.

use std::collections::BTreeSet;
use std::path::Path;

/// The modules that a file is in: `pack/layout.rs` is `["pack", "layout"]`, `lib.rs` is `[]`.
pub(crate) fn module_path(file: &Path) -> Vec<String> {
    let names = file.with_extension("");
    let mut path: Vec<_> =
        names.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib")) {
        path.pop();
    }
    path
}

/// The modules that a text declares at its top, in order.
pub(crate) fn modules(code: &str) -> Vec<String> {
    let tokens = tokens(code);
    let declared = tokens.windows(3).filter(|three| three[0] == "mod" && three[2] == ";");
    declared.map(|three| three[1].clone()).collect()
}

/// The modules at the root of the crate that a text names; `depth` is how many modules it is in.
pub(crate) fn rooms_used(code: &str, depth: usize) -> BTreeSet<String> {
    let tokens = tokens(code);
    let mut used = BTreeSet::new();
    let mut depth = depth;
    // For each open brace, whether it is that of a module.
    let mut braces = Vec::new();
    for at in 0..tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                let module = at >= 2 && tokens[at - 2] == "mod";
                depth += usize::from(module);
                braces.push(module);
            }
            "}" => depth -= usize::from(braces.pop().unwrap_or(false)),
            "crate" => used.extend(roots_after(&tokens[at + 1..])),
            "super" if at == 0 || tokens[at - 1] != "::" => {
                let chain = tokens[at..].chunks(2).take_while(|pair| {
                    pair[0] == "super" && pair.get(1).is_some_and(|next| next == "::")
                });
                let climbed = chain.count();
                if climbed >= depth {
                    used.extend(roots_after(&tokens[at + 2 * climbed - 1..]));
                }
            }
            _ => {}
        }
    }
    used
}

/// The names that follow the root of the crate, from its `::` on.
fn roots_after(tokens: &[String]) -> Vec<String> {
    match tokens {
        [path, open, rest @ ..] if path == "::" && open == "{" => first_names(rest),
        [path, name, ..] if path == "::" => vec![name.clone()],
        [word, ..] if word == "as" => vec!["*".to_owned()],
        _ => Vec::new(), // `pub(crate)`
    }
}

/// The first name of each entry of a group.
fn first_names(group: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    let (mut level, mut fresh) = (0, true);
    for token in group {
        match token.as_str() {
            "{" => level += 1,
            "}" if level == 0 => break,
            "}" => level -= 1,
            "," if level == 0 => fresh = true,
            "self" if fresh => {
                names.push("*".to_owned());
                fresh = false;
            }
            name if fresh => {
                names.push(name.to_owned());
                fresh = false;
            }
            _ => {}
        }
    }
    names
}

/// Names, `::` and single signs; without comments, strings, characters and lifetimes.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let length = if let Some(length) = unread(rest) {
            length
        } else if word > 0 {
            tokens.push(rest[..word].to_owned());
            word
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    tokens
}

/// The length of the comment, string, character or lifetime that a text begins with.
fn unread(rest: &str) -> Option<usize> {
    let to = |end: &str, from: usize| {
        rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
    };
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        let (mut level, mut at) = (1, 2);
        while level > 0 && at < rest.len() {
            let (open, close) = (to("/*", at), to("*/", at));
            (level, at) = if open < close { (level + 1, open) } else { (level - 1, close) };
        }
        return Some(at);
    }
    let prefix = ["br", "cr", "b", "c", "r", ""].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix).unwrap_or("");
        after.starts_with('"')
            || prefix.ends_with('r') && after.trim_start_matches('#').starts_with('"')
    });
    if let Some(prefix) = prefix {
        if prefix.ends_with('r') {
            let hashes = rest[prefix.len()..].bytes().take_while(|byte| *byte == b'#').count();
            return Some(to(&format!("\"{}", "#".repeat(hashes)), prefix.len() + hashes + 1));
        }
        return Some(quoted(rest, prefix.len(), '"'));
    }
    if let Some(after) = rest.strip_prefix('\'') {
        let mut next = after.chars();
        let character = next.next() == Some('\\') || next.next() == Some('\'');
        return Some(if character { quoted(rest, 0, '\'') } else { 1 });
    }
    None
}

/// The end of what is quoted from `start` on, with backslashes.
fn quoted(rest: &str, start: usize, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip_while(|(at, _)| *at <= start) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[test]
fn the_scanner_finds_what_there_is_and_nothing_else() {
    let cases: &[(usize, &str, &[&str])] = &[
        (1, "use crate::pack::Layout;", &["pack"]),
        (
            1,
            "use crate::{pack, fetch::{self, Fetcher}, text::{a::b, c}};",
            &["fetch", "pack", "text"],
        ),
        (
            1,
            "use crate::{\n    pack::{\n        A,\n    },\n    // text,\n    vision,\n};",
            &["pack", "vision"],
        ),
        (1, "use {crate::image, std::{fmt, vec}};", &["image"]),
        (1, "pub(crate) fn f() -> crate :: engine :: X { crate::plan::g() }", &["engine", "plan"]),
        (1, "macro_rules! m { () => { $crate::text::f() } }", &["text"]),
        (1, "use crate::*;", &["*"]),
        (1, "use crate::{self as root};", &["*"]),
        (1, "use crate as root;", &["*"]),
        // climbing out, at a room's top, below it and in a module inside the file
        (1, "use super::pack;", &["pack"]),
        (2, "use super::pack;", &[]),
        (2, "use super::super::pack;", &["pack"]),
        (2, "use super::super::{pack, text::T};", &["pack", "text"]),
        (1, "mod tests { use super::pack; use super::super::text; }", &["text"]),
        (1, "mod tests { fn f() {} } use super::text;", &["text"]),
        (1, "fn f() { if x { super::text::g() } }", &["text"]),
        // what is no code
        (1, "//! See [`crate::pack`].\n/* crate::text /* crate::image */ crate::fetch */", &[]),
        (
            1,
            r##"const A: &str = "crate::pack \" crate::text"; const B: &str = r#"crate::x " crate::y"#;"##,
            &[],
        ),
        (
            1,
            "const C: [char; 3] = ['\"', '\\'', 'x']; use crate::pack; const D: char = '\"';",
            &["pack"],
        ),
        (1, "fn f<'a>(x: &'a str) -> crate::text::X<'a> {}", &["text"]),
        (1, "const E: &[u8] = b\"crate::pack\"; const F: u8 = b'\\''; use crate::text;", &["text"]),
        (1, "pub(in crate::pack) struct X; let br = crate::text;", &["pack", "text"]),
        (1, "use mycrate::pack; use std::crate_::x;", &[]),
    ];
    for (depth, code, rooms) in cases {
        let found = rooms_used(code, *depth);
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), *rooms, "{code}");
    }
}

#[test]
fn the_scanner_knows_where_a_file_is_and_what_it_declares() {
    assert_eq!(module_path(Path::new("lib.rs")), [""; 0]);
    assert_eq!(module_path(Path::new("loader.rs")), ["loader"]);
    assert_eq!(module_path(Path::new("pack/mod.rs")), ["pack"]);
    assert_eq!(module_path(Path::new("metrics/report.rs")), ["metrics", "report"]);
    let code = "// mod no;\npub mod a;\n#[cfg(test)]\npub(crate) mod b;\nmod c { }\n\"mod d;\"";
    assert_eq!(modules(code), ["a", "b"]);
}
