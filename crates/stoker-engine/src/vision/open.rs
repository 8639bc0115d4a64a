//! From what the recipe says to a [`Preprocessor`].
//!
//! A configuration file says what the model does: the one that `vision.config` names, else the model
//! folder's. `vision.family` is for where there is none; next to a file it must agree with it, since
//! either choice would be silently wrong. The recipe's own limits on pixels beat both.

use std::path::Path;

use super::Preprocessor;
use super::config::{self, MOST_PIXELS, Model};
use super::family;
use crate::error::{Error, Problem, Result};
use crate::recipe::{self, Compat, SizeRule};

impl Preprocessor {
    /// From the model folder, the recipe's section and the compat preset.
    ///
    /// Errors: [`Error::Recipe`] with all problems of the section or of the configuration file.
    pub fn open(model: Option<&Path>, config: &recipe::Vision, compat: Compat) -> Result<Self> {
        let model = named(model, config)
            .map(|model| limits_of_rule(model, compat.size_rule()))
            .and_then(|model| limited(model, config))
            .map_err(Error::Recipe)?;
        Ok(Self::new(model, config.pixels, compat))
    }
}

/// What the configuration file or the family says.
fn named(folder: Option<&Path>, config: &recipe::Vision) -> Result<Model, Vec<Problem>> {
    let family = config.family.as_deref().map(|name| {
        let hint = || Some(family::suggestion(name));
        let unknown = || problem("vision.family", format!("no family is called `{name}`"), hint());
        family::by_name(name).ok_or_else(unknown)
    });
    let family = family.transpose()?;
    let file = match (&config.config, folder) {
        (Some(path), _) => Some(config::read(Path::new(path))?),
        (None, Some(folder)) => config::find(folder)?,
        (None, None) => None,
    };
    match (file, family) {
        (Some(file), Some(family)) if file.layout != family.model.layout => {
            let reason =
                format!("`{}` has other patches or colours than the model's file", family.name);
            Err(problem("vision.family", reason, Some("remove it: the file is enough".into())))
        }
        (Some(file), _) => Ok(file),
        (None, Some(family)) => Ok(family.model),
        (None, None) => {
            let reason = "nothing says what the model does with images".into();
            let hint = "name a model folder that has a preprocessor_config.json, or one of the \
                        known families";
            let hint = format!("{hint}: {}", family::names());
            Err(problem("vision.family", reason, Some(hint)))
        }
    }
}

/// qwen-vl-utils has limits of its own, 4 and 16,384 tokens (`IMAGE_MIN_TOKEN_NUM` and
/// `IMAGE_MAX_TOKEN_NUM` in its `vision_process.py`), whatever the model's are.
fn limits_of_rule(model: Model, rule: SizeRule) -> Model {
    match rule {
        SizeRule::Transformers => model,
        SizeRule::QwenVlUtils => {
            let token = u64::from(model.layout.patch_size * model.layout.merge_size).pow(2);
            Model { min_pixels: 4 * token, max_pixels: 16_384 * token, ..model }
        }
    }
}

/// The recipe's limits in place of the model's.
fn limited(model: Model, config: &recipe::Vision) -> Result<Model, Vec<Problem>> {
    let min_pixels = config.min_pixels.unwrap_or(model.min_pixels);
    let max_pixels = config.max_pixels.unwrap_or(model.max_pixels);
    let key = if config.max_pixels.is_some() { "vision.max-pixels" } else { "vision.min-pixels" };
    if min_pixels == 0 || max_pixels > MOST_PIXELS {
        let reason = format!("{min_pixels} to {max_pixels} pixels are out of range");
        return Err(problem(key, reason, Some(format!("use 1 to {MOST_PIXELS}"))));
    }
    if min_pixels > max_pixels {
        let reason = format!("at least {min_pixels} and at most {max_pixels} pixels can't be met");
        let hint =
            "set both vision.min-pixels and vision.max-pixels; what is not set is the model's";
        return Err(problem(key, reason, Some(hint.into())));
    }
    Ok(Model { min_pixels, max_pixels, ..model })
}

fn problem(path: &str, reason: String, hint: Option<String>) -> Vec<Problem> {
    vec![Problem { path: path.into(), reason, hint }]
}
