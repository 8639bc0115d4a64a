//! JSON of the data, with a limit on what it may become in memory.
//!
//! A value takes two bytes in a text (`0,`) and some 80 in memory, so a line within its limit could
//! become more than a gigabyte. How deep values stand in one another is limited by the parser: to 128.

use serde_json::Value;

/// Most values in the JSON of one row, keys included. No chat comes near: they are 30 MB in memory.
pub(super) const MOST_VALUES: usize = 1 << 18;

/// Why a text is not read.
#[derive(Debug)]
pub(super) enum Unread {
    TooManyValues,
    NotJson(serde_json::Error),
}

/// What a text says.
pub(super) fn parse(text: &str) -> Result<Value, Unread> {
    if has_too_many_values(text.as_bytes()) {
        return Err(Unread::TooManyValues);
    }
    serde_json::from_str(text).map_err(Unread::NotJson)
}

fn has_too_many_values(text: &[u8]) -> bool {
    // Each value but the first stands behind one of these.
    let begins = |byte: &u8| matches!(byte, b',' | b':' | b'[' | b'{');
    if text.len() <= MOST_VALUES || text.iter().filter(|byte| begins(byte)).count() < MOST_VALUES {
        return false;
    }
    let (mut within, mut escaped, mut values) = (false, false, 1);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = within,
            b'"' => within = !within,
            _ if !within && begins(byte) => values += 1,
            _ => {}
        }
    }
    values > MOST_VALUES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_read(text: &str) -> bool {
        match parse(text) {
            Ok(_) => true,
            Err(Unread::TooManyValues) => false,
            Err(Unread::NotJson(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn values_are_limited_and_letters_are_not() {
        let zeros = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert!(is_read(&zeros(MOST_VALUES - 1)));
        assert!(!is_read(&zeros(MOST_VALUES)));
        assert!(!is_read(&format!("[{}]", vec!["[]"; MOST_VALUES].join(","))));
        assert!(!is_read(&format!("[{}]", vec!["{\"\":0}"; MOST_VALUES / 2].join(","))));
        let letters = ",:[{\\\"\\\\".repeat(MOST_VALUES);
        assert!(is_read(&format!("{{\"content\":\"{letters}\"}}")));
        assert!(!is_read(&format!("[\"{letters}\",{}]", zeros(MOST_VALUES))));
    }

    #[test]
    fn values_deep_in_one_another_are_not_read() {
        for (deep, is_read) in [(127, true), (128, false), (1 << 22, false)] {
            let text = format!("{}{}", "[".repeat(deep), "]".repeat(deep));
            assert_eq!(parse(&text).is_ok(), is_read, "{deep}");
        }
    }
}
