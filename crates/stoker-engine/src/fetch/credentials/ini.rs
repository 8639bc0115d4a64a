//! The files that AWS's tools share, as they read them: sections in brackets, a key and a value a
//! line.
//!
//! A comment begins with `#` or `;` at the start of a line or behind a space. Indented lines below a
//! key without a value are keys of their own below it, joined with a dot here.

use std::collections::BTreeMap;

/// The keys of a section, in small letters, with their values.
pub(super) type Section = BTreeMap<String, String>;

/// The sections by name; what stands in two sections of one name is put together.
pub(super) fn parse(text: &str) -> BTreeMap<String, Section> {
    let mut sections: BTreeMap<String, Section> = BTreeMap::new();
    let mut name = None;
    let mut parent = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let indented = line.starts_with([' ', '\t']);
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let title = title_of(title.0);
            sections.entry(title.clone()).or_default();
            (name, parent) = (Some(title), None);
            continue;
        }
        let (Some(section), Some((key, value))) =
            (name.as_ref().and_then(|name| sections.get_mut(name)), line.split_once('='))
        else {
            continue;
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
        match &parent {
            Some(parent) if indented => {
                section.insert(format!("{parent}.{key}"), value);
            }
            _ => {
                parent = value.is_empty().then(|| key.clone());
                section.insert(key, value);
            }
        }
    }
    sections
}

/// `profile "my name"` and `profile  my name` are the same.
fn title_of(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace(['"', '\''], "")
}

fn without_comment(line: &str) -> &str {
    if line.starts_with(['#', ';']) {
        return "";
    }
    let mut before = ' ';
    for (at, letter) in line.char_indices() {
        if matches!(letter, '#' | ';') && before.is_whitespace() {
            return &line[..at];
        }
        before = letter;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_comments_and_nested_keys_are_read() {
        let text = "\u{feff}# of nobody\r\nlost = 1\n[default]\nregion=eu-west-1 # here\r\n\
                    aws_secret_access_key = a#b;c=d/e+f==\n\n[ profile  \"my dev\" ]; mine\n\
                    Role_ARN = arn:aws:iam::1:role/x\ns3 =\n  addressing_style = virtual\n\
                    \tmax = 3\nregion = us-east-2\n   ; nothing\n[profile my dev]\nsource_profile = default\n\
                    nonsense\n";
        let sections = parse(text);
        let names: Vec<_> = sections.keys().map(String::as_str).collect();
        assert_eq!(names, ["default", "profile my dev"]);
        let default = &sections["default"];
        assert_eq!(default["region"], "eu-west-1");
        assert_eq!(default["aws_secret_access_key"], "a#b;c=d/e+f==");
        let mine = &sections["profile my dev"];
        assert_eq!(mine["role_arn"], "arn:aws:iam::1:role/x");
        assert_eq!(mine["s3.addressing_style"], "virtual");
        assert_eq!(mine["s3.max"], "3");
        assert_eq!(mine["region"], "us-east-2");
        assert_eq!(mine["source_profile"], "default");
        assert_eq!(mine.len(), 6, "{mine:?}");
    }
}
