//! Jinja as transformers sets it up for chat templates: what minijinja does differently.
//!
//! `tojson` is Python's `json.dumps(x, ensure_ascii=False)`: spaces after commas and colons, no
//! HTML escapes, floats as Python writes them. Scalars print as Python prints them. There is no
//! `strftime_now`: a prompt that holds today's date would make a resumed run differ from a straight
//! one. Templates that ask whether it is defined fall back on a fixed date; others can be given one
//! in the recipe's `text.template-options`.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use serde_json::Value as Json;

/// A value of JSON as templates see it; `text` is applied to each string in it.
pub(super) fn value<E>(json: &Json, text: &impl Fn(&str) -> Result<Value, E>) -> Result<Value, E> {
    Ok(match json {
        Json::Null => Value::from(()),
        Json::Bool(truth) => Value::from(*truth),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            (None, None) => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(string) => text(string)?,
        Json::Array(items) => {
            Value::from(items.iter().map(|item| value(item, text)).collect::<Result<Vec<_>, _>>()?)
        }
        Json::Object(fields) => {
            let pairs = fields.iter().map(|(name, field)| Ok((text(name)?, value(field, text)?)));
            Value::from_pairs(pairs.collect::<Result<Vec<_>, E>>()?)
        }
    })
}

/// The environment of transformers' `apply_chat_template`.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the delimiters are the usual ones"));
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, state, value| match scalar(value) {
        Some(text) => out.write_str(&text).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("string", |value: Value| {
        scalar(&value).map_or_else(|| Value::from(value.to_string()), Value::from)
    });
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment
}

/// `str(value)` of what Python writes in its own way.
fn scalar(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::None => Some("None".to_owned()),
        ValueKind::Bool => Some(if value.is_true() { "True" } else { "False" }.to_owned()),
        ValueKind::Number if !value.is_integer() => f64::try_from(value.clone()).ok().map(float),
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "minijinja passes keyword arguments by value")]
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson can't escape to ASCII here"));
    }
    options.assert_all_used()?;
    let mut text = String::new();
    dump(value, &mut text)?;
    Ok(Value::from(text))
}

fn dump(value: &Value, out: &mut String) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => {
            out.push_str(&scalar(value).unwrap_or_else(|| value.to_string()));
        }
        ValueKind::String => quote(value.as_str().unwrap_or_default(), out),
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                quote(&key.to_string(), out);
                out.push_str(": ");
                dump(&value.get_item(&key)?, out)?;
            }
            out.push('}');
        }
        _ => {
            out.push('[');
            for (index, item) in value.try_iter()?.enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                dump(&item, out)?;
            }
            out.push(']');
        }
    }
    Ok(())
}

/// JSON and Python escape the same characters of a string alike.
fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

/// `repr(value)`: as Rust's `{:?}`, but for the sign and the two digits of the exponent.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, json: &str) -> String {
        let json: Json = serde_json::from_str(json).unwrap();
        let x = value(&json, &|text| Ok::<_, Error>(Value::from(text))).unwrap();
        let context = Value::from_pairs([("x", x)]);
        environment().render_str(template, context).unwrap()
    }

    #[test]
    fn tojson_is_pythons_json_dumps() {
        // the right-hand sides are what Python 3.11 prints
        for (json, python) in [
            (r#"{"b":1,"a":[true,null,-2],"c":{}}"#, r#"{"b": 1, "a": [true, null, -2], "c": {}}"#),
            (
                r#"["<é&'北>", "q\"\\\n\t\b\u0001\u007f"]"#,
                "[\"<é&'北>\", \"q\\\"\\\\\\n\\t\\b\\u0001\u{7f}\"]",
            ),
            (
                "[1.0, 1.5, 0.1, 1e15, 1e16, 1.25e22, 0.0001, 1e-5, 2.5e-10, -0.0, 1e300]",
                "[1.0, 1.5, 0.1, 1000000000000000.0, 1e+16, 1.25e+22, 0.0001, 1e-05, 2.5e-10, -0.0, 1e+300]",
            ),
            (
                "[18446744073709551615, -9223372036854775808]",
                "[18446744073709551615, -9223372036854775808]",
            ),
        ] {
            assert_eq!(render("{{ x | tojson }}", json), python);
        }
    }

    #[test]
    fn scalars_print_as_python_prints_them() {
        let json = r#"[true, false, null, 1.0, 1e-7, 3, "s"]"#;
        assert_eq!(
            render("{% for v in x %}{{ v }} {% endfor %}", json),
            "True False None 1.0 1e-07 3 s "
        );
        assert_eq!(render("{{ x[0] | string }}", json), "True");
    }

    #[test]
    fn blocks_leave_no_blank_lines_and_python_methods_work() {
        let template =
            "{% for v in x %}\n  {% if loop.last %}\n{{ v.upper() }}\n  {% endif %}\n{% endfor %}";
        assert_eq!(render(template, r#"["a", "b"]"#), "B\n");
    }

    #[test]
    fn raise_exception_fails_with_its_message() {
        let error = environment().render_str("{{ raise_exception('no!') }}", ()).unwrap_err();
        assert!(error.to_string().contains("no!"), "{error}");
    }
}
