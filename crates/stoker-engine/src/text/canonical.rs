//! `tokenizer.json` in the one spelling that the tokenizers library reads.
//!
//! The library has a function that brings files of all times into that spelling. It makes a tree of
//! the whole file and writes the tree down to be read again, which takes more than a third of the
//! time of building the tokenizer. But nearly all of the file is its vocabulary and its merges, which
//! are spelt in one of two ways. So the library is given the rest of the file ([`Head`]), which is enough to
//! open a loader with, and the two tables are carried over later, as they are, or as pairs. A file in
//! which anything is out of the ordinary goes the library's own way as a whole ([`thorough`]), which also
//! says what is wrong with it.

use std::iter;
use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A tokenizer file.
#[derive(Debug)]
pub(super) struct Canonical {
    pub(super) json: String,
    pub(super) added_tokens: Vec<AddedToken>,
    /// Whether it is of the kind that is read here.
    pub(super) is_byte_level_bpe: bool,
    /// Where in it the tables are, if each merge puts two tokens together as they are.
    pub(super) tables: Option<Tables>,
}

/// Where the vocabulary and the merges are, with their brackets.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) vocab: Range<usize>,
    pub(super) merges: Range<usize>,
}

/// A token beside the vocabulary.
#[derive(Debug, PartialEq, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the fields are the file's")]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    pub(super) special: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    pub(super) single_word: bool,
}

/// A file as it lies there.
#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    model: Model<'a>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(borrow)]
    vocab: &'a RawValue,
    #[serde(borrow)]
    merges: &'a RawValue,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

/// A file of which everything is known but its tables, which are nearly all of it.
#[derive(Debug)]
pub(super) enum Opened {
    /// It is of the usual kind, as far as that can be seen without them.
    Usual { text: String, head: Head },
    /// It went the library's own way.
    Other(Canonical),
}

/// All that a file of the usual kind says but its tables.
#[derive(Debug)]
pub(super) struct Head {
    /// The canonical spelling, until where the vocabulary begins.
    json: String,
    /// Where in the file they are.
    tables: Tables,
    kind: Kind,
    added_tokens: Vec<AddedToken>,
}

impl Opened {
    pub(super) fn new(text: String) -> tokenizers::Result<Self> {
        match Head::of(&text) {
            Some(head) => Ok(Self::Usual { text, head }),
            None => thorough(&text).map(Self::Other),
        }
    }

    pub(super) fn added_tokens(&self) -> &[AddedToken] {
        match self {
            Self::Usual { head, .. } => &head.added_tokens,
            Self::Other(canonical) => &canonical.added_tokens,
        }
    }

    /// Whether it is of the kind that is read here.
    pub(super) fn is_byte_level_bpe(&self) -> bool {
        match self {
            Self::Usual { head, .. } => head.kind.is_byte_level_bpe(),
            Self::Other(canonical) => canonical.is_byte_level_bpe,
        }
    }

    /// The whole file.
    pub(super) fn canonical(self) -> tokenizers::Result<Canonical> {
        match self {
            Self::Usual { text, head } => head.quick(&text).map_or_else(|| thorough(&text), Ok),
            Self::Other(canonical) => Ok(canonical),
        }
    }
}

impl Head {
    fn of(text: &str) -> Option<Self> {
        let File { model, rest: mut root } = serde_json::from_str(text).ok()?;
        let (vocab, merges, mut model) = (model.vocab.get(), model.merges.get(), model.rest);
        if !vocab.starts_with('{') || !merges.starts_with('[') {
            return None;
        }
        // Whether there are such tables decides what kind of model it is.
        model.insert("vocab".into(), Value::Object(Map::new()));
        model.insert("merges".into(), Value::Array(Vec::new()));
        root.insert("model".into(), Value::Object(model));
        let mut root = Value::Object(root);
        tokenizers::canonicalize_value(&mut root).ok()?;

        let root = root.as_object_mut()?;
        let added_tokens = Vec::deserialize(root.get("added_tokens")?).ok()?;
        let mut model = root.shift_remove("model")?;
        let kind = Kind::deserialize(&model).ok()?;
        let model = model.as_object_mut()?;
        ["vocab", "merges"].into_iter().try_for_each(|name| model.shift_remove(name).map(drop))?;
        let mut json = String::with_capacity(text.len());
        push_open(root.iter(), &mut json);
        json.push_str("\"model\":");
        push_open(model.iter(), &mut json);
        json.push_str("\"vocab\":");
        let place = |table: &str| {
            let start = table.as_ptr().addr() - text.as_ptr().addr();
            start..start + table.len()
        };
        let tables = Tables { vocab: place(vocab), merges: place(merges) };
        Some(Self { json, tables, kind, added_tokens })
    }

    /// All of the file that it is the head of, if its tables are of the usual kind.
    fn quick(self, text: &str) -> Option<Canonical> {
        let Self { mut json, tables, kind, added_tokens } = self;
        let start = json.len();
        push_compact(&text[tables.vocab], &mut json);
        let vocab = start..json.len();
        json.push_str(",\"merges\":");
        let start = json.len();
        push_merges(&text[tables.merges], &mut json)?;
        let merges = start..json.len();
        json.push_str("}}");
        let tables = kind.has_plain_merges().then_some(Tables { vocab, merges });
        Some(Canonical { json, added_tokens, is_byte_level_bpe: kind.is_byte_level_bpe(), tables })
    }
}

/// The file, whatever is in it.
fn thorough(text: &str) -> tokenizers::Result<Canonical> {
    #[derive(Deserialize)]
    struct File {
        model: Kind,
        added_tokens: Vec<AddedToken>,
    }
    let json = tokenizers::canonicalize_str(text)?;
    let File { model, added_tokens } = serde_json::from_str(&json)?;
    let is_byte_level_bpe = model.is_byte_level_bpe();
    Ok(Canonical { json, added_tokens, is_byte_level_bpe, tables: None })
}

/// What kind of model it is, in the canonical spelling.
#[derive(Debug, Deserialize)]
struct Kind {
    r#type: String,
    #[serde(default)]
    byte_level: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

impl Kind {
    /// Whether a merge's result is its left side and its right one.
    fn has_plain_merges(&self) -> bool {
        let affixes = [&self.continuing_subword_prefix, &self.end_of_word_suffix];
        affixes.into_iter().flatten().all(String::is_empty)
    }

    fn is_byte_level_bpe(&self) -> bool {
        self.r#type == "BPE" && self.byte_level
    }
}

/// An object that is not closed, to be gone on with.
fn push_open<'a>(fields: impl Iterator<Item = (&'a String, &'a Value)>, json: &mut String) {
    json.push('{');
    for (name, value) in fields {
        let (name, value) = (Value::from(name.as_str()).to_string(), value.to_string());
        json.extend([name.as_str(), ":", &value, ","]);
    }
}

/// JSON without the space between its words: how a file is laid out means nothing.
fn push_compact(raw: &str, json: &mut String) {
    words(raw).for_each(|word| json.push_str(word));
}

/// Merges as pairs: they are, or they are strings with a space in the middle.
fn push_merges(raw: &str, json: &mut String) -> Option<()> {
    if !raw[1..].trim_ascii_start().starts_with('"') {
        push_compact(raw, json);
        return Some(());
    }
    // The rule is JSON's own, so commas stand between strings, and the first word is the bracket.
    for word in words(raw) {
        match word {
            "[" | "," | "]" => json.push_str(word),
            string => {
                let (left, right) = string.strip_prefix('"')?.split_once(' ')?;
                let is_plain = !right.contains(' ') && !string.contains("\\u0020");
                if !is_plain || left.starts_with("#version") {
                    return None;
                }
                json.extend(["[\"", left, "\",\"", right, "]"]);
            }
        }
    }
    Some(())
}

/// What a JSON text consists of: strings with their quotes, and whatever stands between them in
/// pieces without space. `[` and `,` may be parts of a longer piece where no string follows them.
fn words(json: &str) -> impl Iterator<Item = &str> {
    let (bytes, mut at) = (json.as_bytes(), 0);
    iter::from_fn(move || {
        at += bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let rest = &bytes[at..];
        let length = if *rest.first()? == b'"' {
            string_length(rest)
        } else {
            let ends = |byte: &u8| *byte == b'"' || byte.is_ascii_whitespace();
            rest.iter().position(ends).unwrap_or(rest.len())
        };
        at += length;
        Some(&json[at - length..at])
    })
}

/// The length of the string that a text begins with.
fn string_length(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A file as the library writes it today, but for its merges.
    fn file(merges: &Value) -> Value {
        let added = |id, content| {
            json!({"id": id, "content": content, "special": true, "single_word": false,
                   "lstrip": false, "rstrip": false, "normalized": false})
        };
        json!({
            "version": "1.0",
            "truncation": null,
            "added_tokens": [added(4, "<|im_start|>"), added(5, "\"")],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
            "post_processor": {"type": "ByteLevel", "trim_offsets": false},
            "model": {
                "vocab": {"a": 0, "\"": 1, "a\"": 2, "\\ é": 3},
                "merges": merges,
                "dropout": null,
            },
        })
    }

    fn tree(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    fn quick(text: &str) -> Option<Canonical> {
        Head::of(text)?.quick(text)
    }

    /// The library's own way, as a tree.
    fn by_the_library(file: &Value) -> Value {
        tree(&thorough(&file.to_string()).unwrap().json)
    }

    #[test]
    fn the_quick_way_means_what_the_librarys_own_means_however_the_file_is_laid_out() {
        for merges in [
            json!([]),
            json!([["a", "\""], ["\\", "é"], ["a b", "c"]]),
            json!(["a \"", "\\ é", "Ġ \u{1f600}"]),
        ] {
            let file = file(&merges);
            let quick_of = |text: &str| quick(text).expect("nothing is out of the ordinary");
            let found = quick_of(&file.to_string());
            assert_eq!(tree(&found.json), by_the_library(&file), "{merges}");
            let contents: Vec<_> = found.added_tokens.iter().map(|token| &token.content).collect();
            assert_eq!(contents, ["<|im_start|>", "\""]);
            let laid_out = serde_json::to_string_pretty(&file).unwrap();
            assert_eq!(quick_of(&laid_out).json, found.json, "{merges}");
        }
    }

    #[test]
    fn both_spellings_of_merges_are_the_same_tokenizer() {
        let (strings, pairs) = (json!(["a \"", "Ġ é"]), json!([["a", "\""], ["Ġ", "é"]]));
        let [strings, pairs] = [strings, pairs].map(|merges| file(&merges).to_string());
        assert_eq!(quick(&strings).unwrap().json, quick(&pairs).unwrap().json);
    }

    #[test]
    fn what_is_out_of_the_ordinary_goes_the_librarys_own_way() {
        for merges in [
            json!(null),
            json!({}),
            json!(["#version: 0.2", "a b"]),
            json!(["a b c"]),
            json!(["ab"]),
            json!(["a b", ["c", "d"]]),
            json!(["a b", 1]),
        ] {
            assert!(quick(&file(&merges).to_string()).is_none(), "{merges}");
        }
        let escaped = file(&json!(["a X"])).to_string().replace('X', "b\\u0020c");
        assert!(quick(&escaped).is_none());
        let mut list = file(&json!([]));
        list["model"]["vocab"] = json!([["a", 0.5]]);
        assert!(quick(&list.to_string()).is_none());
        for text in ["", "[", "{}", "[]", r#"{"model": 1}"#, r#"{"model": {"vocab": {}}}"#] {
            assert!(quick(text).is_none(), "{text}");
        }
    }
}
