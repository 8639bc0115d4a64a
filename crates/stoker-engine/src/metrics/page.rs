//! A report as a page of HTML, with plots: one file that needs nothing from elsewhere.
//!
//! The page is a template, and the report is in it as JSON; a script that is part of the template draws
//! the plots. What comes from data (messages of bad samples, keys, titles) may be hostile: it is in the
//! page in two places, as JSON without a `<` and as escaped text, and the script sets it as text only.
//! Should that ever fail, the page's own policy lets no script run but the one whose hash it names, and
//! nothing be loaded.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::Report;

const TEMPLATE: &str = include_str!("page/page.html");
const BASE_STYLE: &str = include_str!("page/base.css");
const STYLE: &str = include_str!("page/run.css");
const SCRIPT: &str = include_str!("page/plots.js");

/// How all pages of stoker look, in light and in dark, wide and narrow: CSS.
pub fn page_style() -> &'static str {
    BASE_STYLE
}

impl Report {
    /// The report as a page of HTML, with plots, by the name of the run if it has one.
    pub fn page(&self, title: Option<&str>) -> String {
        let data = json!({
            "report": brief(serde_json::to_value(self).unwrap_or_default()),
            "title": title,
            "version": env!("CARGO_PKG_VERSION"),
            "made": now(),
        });
        let style = format!("{BASE_STYLE}{STYLE}");
        let hash = ring::digest::digest(&ring::digest::SHA256, SCRIPT.as_bytes());
        let hash = BASE64_STANDARD.encode(hash);
        let (words, data) = (escaped(&self.to_string()), in_script(&data));
        filled(&[
            ("hash", &hash),
            ("style", &style),
            ("words", &words),
            ("data", &data),
            ("script", SCRIPT),
        ])
    }
}

#[expect(clippy::disallowed_methods, reason = "a page says when it was made")]
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The template with its places filled, in one pass: what is filled in is not looked at for places.
fn filled(values: &[(&str, &str)]) -> String {
    let mut page = String::with_capacity(64 << 10);
    let mut rest = TEMPLATE;
    while let Some((before, (name, after))) =
        rest.split_once("{{").and_then(|(before, after)| Some((before, after.split_once("}}")?)))
    {
        page.push_str(before);
        let value = values.iter().find(|(known, _)| *known == name);
        page.push_str(
            value.map(|(_, value)| *value).expect("each place of the template has a value"),
        );
        rest = after;
    }
    page.push_str(rest);
    page
}

/// JSON that ends no script: `<` is written as an escape, which means the same in a string, and elsewhere
/// JSON has none.
fn in_script(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Numbers to six digits: the rest is noise, and long to write.
fn brief(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            format!("{number:.5e}").parse::<f64>().unwrap_or_default().into()
        }
        Value::Array(all) => all.into_iter().map(brief).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, brief(value))).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{BadSample, Outcome};
    use crate::metrics::{Metrics, Room};
    use crate::sample::SampleId;

    /// What ends a script or a text, or is a place of the template, if it is taken at its word.
    const HOSTILE: &str = "</script><script>alert(1)</script><!--{{data}}</pre><img src=x onerror=alert(1)>&lt;\u{2028}\"'";

    fn hostile() -> Report {
        let metrics = Metrics::default();
        metrics.bad_sample(&BadSample {
            id: SampleId { dataset: 0, row: 1 },
            room: Room::Fetch,
            code: HOSTILE.to_owned(),
            reason: HOSTILE.to_owned(),
            hint: None,
            origin: HOSTILE.to_owned(),
            outcome: Outcome::Replaced,
        });
        metrics.report()
    }

    #[test]
    fn hostile_text_is_in_a_page_as_text_alone() {
        let page = hostile().page(Some(HOSTILE));
        let tags = |name: &str| page.matches(name).count();
        let own = TEMPLATE.matches("<script").count();
        assert_eq!((tags("<script"), tags("</script")), (own, own), "{page}");
        assert_eq!((tags("<img"), tags("<!--"), tags("</pre")), (0, 0, 1));
        assert_eq!(tags("id=\"data\""), 1);
        let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["title"], HOSTILE);
        assert_eq!(data["report"]["flaws"][0]["code"], HOSTILE);
        let words = page.split_once("<pre").unwrap().1.split_once('>').unwrap().1;
        let words = words.split_once("</pre>").unwrap().0;
        let plain = words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        assert_eq!(plain, hostile().to_string());
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere_and_runs_its_own_script_alone() {
        let page = Metrics::default().report().page(None);
        for way in ["src=", "href=", "url(", "@import", "fetch(", "import(", "innerHTML", "eval("] {
            assert!(!page.contains(way), "{way}");
        }
        let script = page.rsplit_once("<script>").unwrap().1.split_once("</script>").unwrap().0;
        let hash = ring::digest::digest(&ring::digest::SHA256, script.as_bytes());
        let hash = format!("script-src 'sha256-{}'", BASE64_STANDARD.encode(hash));
        assert!(page.contains(&hash), "{hash}");
        assert!(page.len() < 40 << 10, "{} bytes", page.len());
    }

    #[test]
    fn numbers_are_written_to_six_digits() {
        let value = brief(json!({"a": [0.123_456_789, 1_234.567_89, 7, null, 0.0]}));
        assert_eq!(value.to_string(), r#"{"a":[0.123457,1234.57,7,null,0.0]}"#);
    }
}
