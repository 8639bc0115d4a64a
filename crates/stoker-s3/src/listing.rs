//! One page of a listing, as ListObjectsV2 makes it: pure, over any source of sorted keys.
//!
//! Keys that share a prefix up to the delimiter are rolled up into one entry, which counts like a
//! key. A page ends with a token from which the next one starts.

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Query<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) delimiter: Option<&'a str>,
    /// Only keys after this one.
    pub(crate) after: String,
    /// Most entries.
    pub(crate) limit: usize,
}

/// One page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page<M> {
    pub(crate) objects: Vec<(String, M)>,
    pub(crate) prefixes: Vec<String>,
    /// [`Query::after`] of the next page.
    pub(crate) next: Option<String>,
}

/// Makes a page. `list(after, limit)` gives up to `limit` keys after `after` that have the prefix.
pub(crate) fn page<M, E>(
    query: &Query<'_>,
    mut list: impl FnMut(&str, usize) -> Result<Vec<(String, M)>, E>,
) -> Result<Page<M>, E> {
    let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
    let mut after = query.after.clone();
    loop {
        let room = query.limit - page.objects.len() - page.prefixes.len();
        // One more than fits tells whether there is a next page.
        let batch = list(&after, room + 1)?;
        let exhausted = batch.len() <= room;
        let mut rolled_up = false;
        for (key, meta) in batch {
            if key <= after {
                continue;
            }
            if page.objects.len() + page.prefixes.len() == query.limit {
                page.next = (query.limit > 0).then_some(after);
                return Ok(page);
            }
            if let Some(prefix) = common_prefix(&key, query) {
                after = past(prefix);
                page.prefixes.push(prefix.to_owned());
                rolled_up = true;
            } else {
                after.clone_from(&key);
                page.objects.push((key, meta));
            }
        }
        if exhausted && !rolled_up {
            return Ok(page);
        }
    }
}

/// The page that ended at `end`, or the last one, by making them all; `make` makes a page from the
/// end of the one before.
pub(crate) fn last_before<M, E>(
    end: &str,
    start: String,
    make: impl Fn(String) -> Result<Page<M>, E>,
) -> Result<Page<M>, E> {
    let mut page = make(start)?;
    while let Some(next) = page.next.take_if(|next| next != end) {
        page = make(next)?;
    }
    Ok(page)
}

/// The part of a key up to the first delimiter after the prefix.
fn common_prefix<'k>(key: &'k str, query: &Query<'_>) -> Option<&'k str> {
    let delimiter = query.delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(query.prefix)?;
    let end = rest.find(delimiter)? + delimiter.len();
    Some(&key[..query.prefix.len() + end])
}

/// After all keys that start with `prefix`: no key has the last code point.
fn past(prefix: &str) -> String {
    format!("{prefix}\u{10FFFF}")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const KEYS: [&str; 8] = ["a", "b/1", "b/2", "b/c/3", "c/4", "d", "e//5", "f"];

    fn pages(prefix: &str, delimiter: Option<&str>, limit: usize) -> Vec<Page<()>> {
        let mut pages = Vec::new();
        let mut after = String::new();
        loop {
            let query = Query { prefix, delimiter, after, limit };
            let made = page(&query, |after, limit| {
                let keys = KEYS.iter().filter(|key| key.starts_with(prefix) && **key > after);
                Ok::<_, Infallible>(keys.take(limit).map(|key| ((*key).to_owned(), ())).collect())
            })
            .unwrap();
            let next = made.next.clone();
            pages.push(made);
            match next {
                Some(next) => after = next,
                None => return pages,
            }
        }
    }

    fn entries(pages: &[Page<()>]) -> (Vec<&str>, Vec<&str>) {
        let keys = pages.iter().flat_map(|page| &page.objects).map(|(key, ())| key.as_str());
        let prefixes = pages.iter().flat_map(|page| &page.prefixes).map(String::as_str);
        (keys.collect(), prefixes.collect())
    }

    #[test]
    fn pages_of_any_size_give_each_entry_once() {
        for limit in 1..10 {
            let flat = pages("", None, limit);
            assert_eq!(entries(&flat), (KEYS.to_vec(), vec![]), "limit {limit}");
            let rolled = pages("", Some("/"), limit);
            let expected = (vec!["a", "d", "f"], vec!["b/", "c/", "e/"]);
            assert_eq!(entries(&rolled), expected, "limit {limit}");
            let full = |page: &Page<()>| page.objects.len() + page.prefixes.len() == limit;
            assert!(rolled[..rolled.len() - 1].iter().all(full), "limit {limit}");
        }
    }

    #[test]
    fn the_delimiter_is_looked_for_after_the_prefix() {
        assert_eq!(entries(&pages("b/", Some("/"), 9)), (vec!["b/1", "b/2"], vec!["b/c/"]));
        assert_eq!(entries(&pages("b", Some("/"), 9)), (vec![], vec!["b/"]));
        assert_eq!(entries(&pages("x", Some("/"), 9)), (vec![], vec![]));
    }

    #[test]
    fn a_last_page_that_is_just_full_has_no_next() {
        let made = pages("", None, 8);
        assert_eq!(made.len(), 1);
        assert_eq!(made[0].next, None);
    }

    #[test]
    fn a_page_of_no_entries_ends_the_listing() {
        assert_eq!(pages("", None, 0), [Page { objects: vec![], prefixes: vec![], next: None }]);
    }
}
