//! What a member's name says: which sample it belongs to, and what it is of it.
//!
//! The rule is WebDataset's, `^((?:.*/|)[^.]+)[.]([^/]*)$`: the key is the path up to the first dot
//! of its last component, the extension what follows, in lower case (`img_1.5x.jpg` is `5x.jpg` of
//! `img_1`). A key is only ever a key, and never a path on any disk.

/// Key and extension; `None` for a member that is no part of a sample: without an extension, or
/// left by a tool.
pub(super) fn split(name: &[u8]) -> Option<(&[u8], Vec<u8>)> {
    let last = name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let dot = last + name[last..].iter().position(|byte| *byte == b'.')?;
    // macOS puts its metadata into `._` files, and a key is never empty.
    let is_empty = dot == last;
    let by_a_tool = name[..last].split(|byte| *byte == b'/').any(|folder| {
        folder == b"__MACOSX" || folder.starts_with(b"PaxHeader") || folder == b"@PaxHeader"
    });
    let is_meta = last == 0 && name.starts_with(b"__") && name.ends_with(b"__");
    if is_empty || by_a_tool || is_meta {
        return None;
    }
    Some((&name[..dot], name[dot + 1..].to_ascii_lowercase()))
}

/// The file formats by which images are known; what they really are is seen when they are decoded.
const IMAGES: [&str; 10] =
    ["jpg", "jpeg", "png", "webp", "gif", "bmp", "jpe", "jfif", "tif", "tiff"];

/// Whether an extension is that of an image: its last part counts.
pub(in crate::dataset) fn is_image(extension: &str) -> bool {
    let last = extension.rsplit('.').next().unwrap_or_default();
    IMAGES.contains(&last)
}

/// Whether an extension is that of JSON.
pub(in crate::dataset) fn is_json(extension: &str) -> bool {
    extension.rsplit('.').next() == Some("json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_as_webdataset_splits_them() {
        for (name, expected) in [
            ("000000.jpg", Some(("000000", "jpg"))),
            ("a.b.c.jpg", Some(("a", "b.c.jpg"))),
            ("img_1.5x.jpg", Some(("img_1", "5x.jpg"))),
            ("d.x/000.JPG", Some(("d.x/000", "jpg"))),
            ("./000.Seg.PNG", Some(("./000", "seg.png"))),
            ("/etc/cron.d/x.jpg", Some(("/etc/cron.d/x", "jpg"))),
            ("../../x.jpg", Some(("../../x", "jpg"))),
            ("Key.", Some(("Key", ""))),
            ("d/._000000.jpg", None),
            (".DS_Store", None),
            ("d/.hidden", None),
            ("README", None),
            ("d.x/README", None),
            ("__meta__", None),
            ("__MACOSX/000.jpg", None),
            ("PaxHeaders.12/000.jpg", None),
            ("", None),
            ("/", None),
        ] {
            let found = split(name.as_bytes());
            let found = found.map(|(key, extension)| {
                (str::from_utf8(key).unwrap(), String::from_utf8(extension).unwrap())
            });
            let found = found.as_ref().map(|(key, extension)| (*key, extension.as_str()));
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(split(b"caf\xe9_0.jpg"), Some((b"caf\xe9_0".as_slice(), b"jpg".to_vec())));
    }
}
