//! A recipe as written, from TOML, JSON, a Python dict or a file, with overrides laid over it.
//!
//! All notations become one tree with kebab-case keys. A relative path in a file is made absolute
//! here, because only here it is known where it stood; so a recipe means the same from whatever
//! folder, process or host it is used. Overrides come after that: their paths start from the
//! working directory, as on any command line.

use std::path::Path;

use serde_json::{Map, Value};

use super::json::Strict;
use super::{Recipe, patterns, read};
use crate::error::{Error, Problem, Result, too_many_files};

/// Where paths stand: section (empty for the top) and key.
const PATHS: [(&str, &str); 9] = [
    ("", "model"),
    ("dataset", "source"),
    ("dataset", "media-root"),
    ("dataset", "index-dir"),
    ("fetch", "ca-file"),
    ("vision", "config"),
    ("text", "tokenizer"),
    ("text", "chat-template"),
    ("engine", "ledger"),
];

/// A recipe as written.
#[derive(Clone, Debug)]
pub struct Document {
    root: Map<String, Value>,
    problems: Vec<Problem>,
}

impl Document {
    /// Parses TOML.
    pub fn from_toml(text: &str) -> Result<Self> {
        let text = without_mark(text);
        let table = toml::from_str::<toml::Table>(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let (line, column) = line_and_column(text, start);
            syntax("TOML", line, column, error.message())
        })?;
        Self::from_value(from_toml_value(toml::Value::Table(table)))
    }

    /// Parses JSON.
    pub fn from_json(text: &str) -> Result<Self> {
        let Strict(value) = serde_json::from_str(without_mark(text)).map_err(|error| {
            // serde_json ends its message with the place, which stands in front here.
            let place = format!(" at line {} column {}", error.line(), error.column());
            let reason = error.to_string().replace(&place, "");
            syntax("JSON", error.line(), error.column(), &reason)
        })?;
        Self::from_value(value)
    }

    /// Takes a value, such as a Python dict makes.
    pub fn from_value(value: Value) -> Result<Self> {
        let Value::Object(root) = value else {
            let reason = "expected a table of sections";
            return Err(single(
                "document",
                reason,
                Some("write {\"dataset\": {\"source\": …}, …}"),
            ));
        };
        let mut document = Self { root: Map::new(), problems: Vec::new() };
        for (name, value) in document.in_kebab_case("", root) {
            let value = match value {
                Value::Object(section) => document.in_kebab_case(&name, section).into(),
                Value::Array(items) => {
                    let items = items.into_iter().enumerate();
                    items.map(|(number, item)| document.item(&name, number, item)).collect()
                }
                other => other,
            };
            document.root.insert(name, value);
        }
        Ok(document)
    }

    /// Reads a file named `*.toml` or `*.json`; its relative paths start from its folder.
    pub fn from_file(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("toml") => Self::from_toml,
            Some(extension) if extension.eq_ignore_ascii_case("json") => Self::from_json,
            _ => {
                let hint = "name it *.toml or *.json, after what is in it";
                return Err(single(&place, "is neither TOML nor JSON by its name", Some(hint)));
            }
        };
        let text = std::fs::read_to_string(path).map_err(|error| {
            let hint = too_many_files(&error);
            single(&place, &format!("can't be read: {error}"), hint.as_deref())
        })?;
        let mut document = parse(&text).map_err(|error| in_file(&place, error))?;
        let path = std::path::absolute(path)
            .map_err(|error| single(&place, &format!("has no absolute path: {error}"), None))?;
        document.start_paths_from(path.parent().unwrap_or(&path));
        Ok(document)
    }

    /// Overrides one key: `section.key=value` (or `key=value` for those at the top). The value is
    /// read as TOML (`8`, `true`, `"text"`, `[1, 2]`), and as text where it is not TOML. What is
    /// wrong with it is reported with all other problems by [`Document::recipe`].
    pub fn set(&mut self, assignment: &str) {
        let Some((path, value)) = assignment.split_once('=') else {
            return self.problem(assignment, "is not an override", "write section.key=value");
        };
        let value = value.trim();
        let parsed = value.parse().map_or_else(|_| value.into(), from_toml_value);
        self.set_value(path.trim(), parsed);
    }

    /// Overrides one key with a value that is already parsed.
    pub fn set_value(&mut self, path: &str, value: Value) {
        let mut steps: Vec<String> = path.split('.').map(str::to_owned).collect();
        if steps.iter().any(String::is_empty) {
            return self.problem(path, "is not a path", "write section.key");
        }
        // In a list, the name or number of the item stands between the section and its key.
        let spelled: &[usize] = if steps[0] == "datasets" { &[0, 2] } else { &[0, 1] };
        for (_, step) in steps.iter_mut().enumerate().filter(|(at, _)| spelled.contains(at)) {
            *step = step.replace('_', "-");
        }
        let last = steps.pop().expect("split gives at least one piece");
        match descend(&mut self.root, &steps) {
            Ok(table) => _ = table.insert(last, value),
            Err((reason, hint)) => self.problem(path, reason, hint),
        }
    }

    /// The document for another process or host: no path in it depends on where it is read.
    pub fn portable(mut self) -> Result<Value> {
        let folder = std::env::current_dir()
            .map_err(|error| single("working directory", &error.to_string(), None))?;
        self.start_paths_from(&folder);
        if self.problems.is_empty() {
            Ok(self.root.into())
        } else {
            Err(Error::Recipe(self.problems))
        }
    }

    /// Reads it; all problems at once where there are any.
    pub fn recipe(self) -> Result<Recipe> {
        read::recipe(self.root, self.problems)
    }

    fn problem(&mut self, path: &str, reason: &str, hint: &str) {
        self.problems.push(problem(path, reason, Some(hint)));
    }

    fn item(&mut self, list: &str, number: usize, item: Value) -> Value {
        match item {
            Value::Object(keys) => self.in_kebab_case(&format!("{list}.{number}"), keys).into(),
            other => other,
        }
    }

    /// Spells the keys of one level as they are documented.
    fn in_kebab_case(&mut self, section: &str, table: Map<String, Value>) -> Map<String, Value> {
        let mut kebab = Map::new();
        for (key, value) in table {
            let name = key.replace('_', "-");
            if kebab.contains_key(&name) {
                let path = if section.is_empty() { name } else { format!("{section}.{name}") };
                self.problem(&path, "is given twice, with _ and with -", "keep one");
            } else {
                kebab.insert(name, value);
            }
        }
        kebab
    }

    fn start_paths_from(&mut self, folder: &Path) {
        for (section, key) in PATHS {
            let is_pattern = (section, key) == ("dataset", "source");
            for table in tables(&mut self.root, section) {
                match table.get_mut(key) {
                    Some(Value::Array(paths)) if is_pattern => {
                        for path in paths {
                            start_path_from(folder, path, is_pattern);
                        }
                    }
                    Some(path) => start_path_from(folder, path, is_pattern),
                    None => {}
                }
            }
        }
        for table in tables(&mut self.root, "fetch") {
            if let Some(path) = table.get_mut("cache").and_then(|cache| cache.get_mut("path")) {
                start_path_from(folder, path, false);
            }
        }
    }
}

/// Makes a relative path start from a folder, which is taken by its letters in a pattern.
fn start_path_from(folder: &Path, path: &mut Value, is_pattern: bool) {
    if let Value::String(path) = path
        && !path.trim().is_empty()
        && !path.starts_with('~')
        && read::scheme(path).is_none()
    {
        let folder = match folder.to_str() {
            Some(folder) if is_pattern => Path::new(&patterns::quoted(folder)).to_owned(),
            _ => folder.to_owned(),
        };
        *path = folder.join(&path).display().to_string();
    }
}

/// The tables of a section: all datasets of a list have what `[dataset]` has.
fn tables<'a>(root: &'a mut Map<String, Value>, section: &str) -> Vec<&'a mut Map<String, Value>> {
    if section.is_empty() {
        return vec![root];
    }
    let is_meant = |name: &str| name == section || (section, name) == ("dataset", "datasets");
    let mut tables = Vec::new();
    for (_, value) in root.iter_mut().filter(|(name, _)| is_meant(name)) {
        match value {
            Value::Object(table) => tables.push(table),
            Value::Array(items) => tables.extend(items.iter_mut().filter_map(Value::as_object_mut)),
            _ => {}
        }
    }
    tables
}

/// The table at the end of some steps, made where there is none; or what is wrong with them.
fn descend<'a>(
    mut table: &'a mut Map<String, Value>,
    steps: &[String],
) -> Result<&'a mut Map<String, Value>, (&'static str, &'static str)> {
    let mut steps = steps.iter();
    while let Some(step) = steps.next() {
        let mut value = table.entry(step.clone()).or_insert_with(|| Map::new().into());
        if let Value::Array(items) = value {
            let number = steps.next().and_then(|name| named(items, name));
            let found = number.and_then(|number| items.get_mut(number));
            let hint = "write the name of one, such as datasets.NAME.weight";
            value = found.ok_or(("is no item of the list", hint))?;
        }
        let no_section = ("goes through a key that is no section", "shorten it");
        table = value.as_object_mut().ok_or(no_section)?;
    }
    Ok(table)
}

/// Which item of a list has a name or number.
fn named(items: &[Value], name: &str) -> Option<usize> {
    let is_meant = |item: &Value| item.get("name").and_then(Value::as_str) == Some(name);
    items.iter().position(is_meant).or_else(|| name.parse().ok())
}

fn from_toml_value(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(flag) => flag.into(),
        // JSON has no infinity and no NaN; as text they are refused by whatever wants a number.
        toml::Value::Float(number) if !number.is_finite() => number.to_string().into(),
        toml::Value::Float(number) => number.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(items) => items.into_iter().map(from_toml_value).collect(),
        toml::Value::Table(table) => {
            table.into_iter().map(|(key, value)| (key, from_toml_value(value))).collect()
        }
    }
}

/// Some editors begin a file with a byte order mark.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Line and column, from 1, of a byte.
fn line_and_column(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

fn syntax(notation: &str, line: usize, column: usize, reason: &str) -> Error {
    let reason = format!("not {notation}: {}", reason.trim().replace('\n', ", "));
    single(&format!("line {line}, column {column}"), &reason, None)
}

/// Puts the file's name before each problem that has only a place in it.
fn in_file(place: &str, error: Error) -> Error {
    let Error::Recipe(mut problems) = error else { return error };
    for problem in &mut problems {
        problem.path = format!("{place}, {}", problem.path);
    }
    Error::Recipe(problems)
}

fn problem(path: &str, reason: &str, hint: Option<&str>) -> Problem {
    Problem { path: path.to_owned(), reason: reason.to_owned(), hint: hint.map(str::to_owned) }
}

fn single(path: &str, reason: &str, hint: Option<&str>) -> Error {
    Error::Recipe(vec![problem(path, reason, hint)])
}
