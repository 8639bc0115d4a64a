//! Which files the room reads: a tokenizer, its settings and a chat template, from the recipe or
//! from the model folder in the order in which transformers looks for them.
//!
//! Everything that is missing or broken is reported at once, each with the key of the recipe that
//! would mend it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::{Error, Problem, Result, too_many_files};
use crate::recipe;

pub(super) const TOKENIZER: &str = "text.tokenizer";
pub(super) const CHAT_TEMPLATE: &str = "text.chat-template";

/// What was found.
#[derive(Debug)]
pub(super) struct Sources {
    pub(super) tokenizer: PathBuf,
    /// `tokenizer_config.json` beside the tokenizer; empty where there is none.
    pub(super) settings: Map<String, Value>,
    pub(super) template: String,
    /// Where the template stands, for errors.
    pub(super) template_path: PathBuf,
}

impl Sources {
    pub(super) fn find(model: Option<&Path>, config: &recipe::Text) -> Result<Self> {
        let tokenizer = tokenizer(model, config);
        let settings = match &tokenizer {
            Ok(path) => settings(path),
            Err(_) => Ok(Map::new()),
        };
        let template = template(model, config);
        match (tokenizer, settings, template) {
            (Ok(tokenizer), Ok(settings), Ok((template_path, template))) => {
                Ok(Self { tokenizer, settings, template, template_path })
            }
            (tokenizer, settings, template) => {
                let problems = [tokenizer.err(), settings.err(), template.err()];
                Err(Error::Recipe(problems.into_iter().flatten().collect()))
            }
        }
    }

    /// A token that the settings name, such as `pad_token`: a string or an object with `content`.
    pub(super) fn named_token(&self, name: &str) -> Option<&str> {
        let token = self.settings.get(name)?;
        token.as_str().or_else(|| token.get("content")?.as_str())
    }
}

/// A problem with a file.
pub(super) fn problem(key: &str, path: &Path, reason: &str, hint: &str) -> Problem {
    Problem {
        path: key.to_owned(),
        reason: format!("{reason}: {}", path.display()),
        hint: Some(hint.to_owned()),
    }
}

fn tokenizer(model: Option<&Path>, config: &recipe::Text) -> Result<PathBuf, Problem> {
    const HINT: &str = "name a `tokenizer.json`, or a `model` folder that has one";
    let path = match (&config.tokenizer, model) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(model)) => model.join("tokenizer.json"),
        (None, None) => return Err(nothing_named(TOKENIZER, "tokenizer", HINT)),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(problem(TOKENIZER, &path, "there is no such file", HINT))
}

fn settings(tokenizer: &Path) -> Result<Map<String, Value>, Problem> {
    let path = tokenizer.with_file_name("tokenizer_config.json");
    if path.is_file() { json(TOKENIZER, &path) } else { Ok(Map::new()) }
}

fn template(model: Option<&Path>, config: &recipe::Text) -> Result<(PathBuf, String), Problem> {
    const HINT: &str = "name a Jinja chat template, or a `model` folder that has one";
    if let Some(path) = &config.chat_template {
        let path = PathBuf::from(path);
        let text = read(CHAT_TEMPLATE, &path)?;
        return Ok((path, text));
    }
    let Some(model) = model else {
        return Err(nothing_named(CHAT_TEMPLATE, "chat template", HINT));
    };
    let path = model.join("chat_template.jinja");
    if path.is_file() {
        let text = read(CHAT_TEMPLATE, &path)?;
        return Ok((path, text));
    }
    for name in ["chat_template.json", "tokenizer_config.json"] {
        let path = model.join(name);
        if path.is_file()
            && let Some(value) = json(CHAT_TEMPLATE, &path)?.get("chat_template")
        {
            let text = default_template(value).ok_or_else(|| {
                let reason =
                    "`chat_template` is neither a string nor a list with one named default";
                problem(CHAT_TEMPLATE, &path, reason, HINT)
            })?;
            return Ok((path, text.to_owned()));
        }
    }
    let reason = "there is no chat_template.jinja, and no `chat_template` in chat_template.json or \
                  tokenizer_config.json";
    Err(problem(CHAT_TEMPLATE, model, reason, HINT))
}

/// A template, or the one named `default` in a list of them.
fn default_template(value: &Value) -> Option<&str> {
    if let Some(text) = value.as_str() {
        return Some(text);
    }
    let is_default = |entry: &&Value| entry.get("name").is_some_and(|name| name == "default");
    value.as_array()?.iter().find(is_default)?.get("template")?.as_str()
}

fn json(key: &str, path: &Path) -> Result<Map<String, Value>, Problem> {
    serde_json::from_str(&read(key, path)?).map_err(|error| {
        problem(key, path, &format!("not a JSON object ({error})"), "get the file anew")
    })
}

fn read(key: &str, path: &Path) -> Result<String, Problem> {
    std::fs::read_to_string(path).map_err(|error| {
        let hint = too_many_files(&error).unwrap_or_else(|| "check the path".to_owned());
        problem(key, path, &format!("can't be read ({error})"), &hint)
    })
}

fn nothing_named(key: &str, what: &str, hint: &str) -> Problem {
    Problem {
        path: key.to_owned(),
        reason: format!("the recipe names no {what}"),
        hint: Some(hint.to_owned()),
    }
}
