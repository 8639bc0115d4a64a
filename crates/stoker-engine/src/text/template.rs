//! The chat template: compiled once, rendered once per conversation.
//!
//! Messages reach it as transformers hands them over (content as a string or a list of parts, other
//! fields as they stood in the data, nulls left out), with every string of the data guarded (see
//! [`super::specials`]). `{% generation %}` of training templates becomes a filter block that puts
//! marks around what it holds.

use minijinja::value::Value;
use minijinja::{Environment, Error as JinjaError};

use super::python;
use super::specials::{GENERATION_END, GENERATION_START, Specials};
use crate::error::Flaw;
use crate::metrics::Room;
use crate::sample::{Content, Conversation, Part, Turn};

const NAME: &str = "chat";
const GENERATION: &str = "generation";

/// A compiled chat template.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    /// Whether it marks what is learned itself.
    pub(super) marks_generation: bool,
}

impl Template {
    /// `globals` are variables that each rendering sees.
    pub(super) fn compile(
        source: &str,
        globals: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, JinjaError> {
        let mut environment = python::environment();
        environment.add_filter(GENERATION, |text: String| {
            format!("{GENERATION_START}{text}{GENERATION_END}")
        });
        for (name, value) in globals {
            environment.add_global(name, value);
        }
        let (source, marks_generation) = with_generation_as_filter(source);
        environment.add_template_owned(NAME, source)?;
        Ok(Self { environment, marks_generation })
    }

    /// The conversation as text, with marks.
    pub(super) fn render(
        &self,
        conversation: &Conversation,
        specials: &Specials,
    ) -> Result<String, Flaw> {
        let messages: Vec<Value> = conversation
            .turns
            .iter()
            .map(|turn| message(turn, specials))
            .collect::<Result<_, _>>()?;
        let tools: Vec<Value> =
            conversation.tools.iter().map(|tool| json(tool, specials)).collect::<Result<_, _>>()?;
        let tools = if tools.is_empty() { Value::from(()) } else { Value::from(tools) };
        let context = Value::from_pairs([
            ("messages", Value::from(messages)),
            ("tools", tools),
            ("add_generation_prompt", Value::from(false)),
        ]);
        let template = self.environment.get_template(NAME).expect("it was added when compiled");
        template.render(context).map_err(|error| {
            let reason =
                format!("the chat template can't render this conversation: {}", chain(&error));
            Flaw::new(Room::Text, "chat-template", reason)
        })
    }
}

/// What minijinja says, with its causes.
pub(super) fn chain(error: &JinjaError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn message(turn: &Turn, specials: &Specials) -> Result<Value, Flaw> {
    let content = match &turn.content {
        Content::Text(text) => Value::from(specials.guard(text)?),
        Content::Parts(parts) => {
            let parts = parts.iter().map(|part| self::part(part, specials));
            Value::from(parts.collect::<Result<Vec<Value>, Flaw>>()?)
        }
    };
    let role = Value::from(specials.guard(&turn.role)?);
    let mut fields = vec![("role".into(), role), ("content".into(), content)];
    for (name, value) in turn.extra.iter().filter(|(_, value)| !value.is_null()) {
        fields.push((specials.guard(name)?, json(value, specials)?));
    }
    Ok(Value::from_pairs(fields))
}

fn part(part: &Part, specials: &Specials) -> Result<Value, Flaw> {
    Ok(match part {
        Part::Text(text) => Value::from_pairs([
            ("type", Value::from("text")),
            ("text", Value::from(specials.guard(text)?)),
        ]),
        Part::Image(_) => Value::from_pairs([("type", Value::from("image"))]),
    })
}

fn json(value: &serde_json::Value, specials: &Specials) -> Result<Value, Flaw> {
    python::value(value, &|text| specials.guard(text).map(Value::from))
}

/// Rewrites `{% generation %}…{% endgeneration %}` as a filter block, which Jinja trims alike, and
/// says whether there was one.
fn with_generation_as_filter(source: &str) -> (String, bool) {
    let mut rewritten = String::with_capacity(source.len());
    let mut found = false;
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        rewritten.push_str(before);
        let close = tag.find("%}").unwrap_or(tag.len());
        let name = tag[..close].trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        match name {
            "generation" => rewritten.push_str(&tag[..close].replace(name, "filter generation")),
            "endgeneration" => rewritten.push_str(&tag[..close].replace(name, "endfilter")),
            _ => rewritten.push_str(&tag[..close]),
        }
        found |= name == "generation";
        rest = &tag[close..];
    }
    rewritten.push_str(rest);
    (rewritten, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_tags_become_filter_blocks_with_their_trimming() {
        let source = "a {%- generation -%} b {% if x %}c{% endif %} {%+ endgeneration %} d";
        let expected = "a {%- filter generation -%} b {% if x %}c{% endif %} {%+ endfilter %} d";
        assert_eq!(with_generation_as_filter(source), (expected.to_owned(), true));
        assert_eq!(with_generation_as_filter("{% if x %}{%"), ("{% if x %}{%".to_owned(), false));
    }
}
