//! Jinja as transformers sets it up for chat templates: what minijinja does differently.
//!
//! `tojson` is Python's `json.dumps(x, ensure_ascii=False)`: spaces after commas and colons, no
//! HTML escapes, floats as Python writes them. Scalars print as Python prints them. There is no
//! `strftime_now`: a prompt that holds today's date would make a resumed run differ from a straight
//! one. Templates that ask whether it is defined fall back on a fixed date; others can be given one
//! in the recipe's `text.template-options`.

use std::io;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The environment of transformers' `apply_chat_template`.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
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

fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    if options.get::<Option<bool>>("ensure_ascii")? == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson can't escape to ASCII here"));
    }
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    value
        .serialize(&mut Serializer::with_formatter(&mut bytes, JsonDumps))
        .map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    Ok(Value::from(String::from_utf8(bytes).expect("serde_json writes UTF-8")))
}

/// `repr(value)`: as Rust's `{:?}`, but for the sign and the two digits of the exponent.
fn float(value: f64) -> String {
    let text = format!("{value:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// The layout of `json.dumps`.
struct JsonDumps;

impl JsonDumps {
    fn comma<W: ?Sized + io::Write>(writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl Formatter for JsonDumps {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Self::comma(writer, first)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        Self::comma(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(template: &str, json: &str) -> String {
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let context = Value::from_pairs([("x", Value::from_serialize(value))]);
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
