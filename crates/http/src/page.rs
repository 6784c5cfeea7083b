//! One page of a list: up to `count` entries, and in `next` the parameters of the page after it.

use serde_json::{Map, Value};

use crate::problem::Problem;
use crate::query::Query;

/// Reads the number of entries that a request wants; `max` if it says nothing.
pub fn count(query: &Query, max: usize) -> Result<usize, Problem> {
    let count = query.number("count", max as u64)?;
    Ok(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(max))
}

/// Returns a page as JSON. Only a full page, of `count` entries, has `next`.
pub fn told<T>(
    name: &str,
    entries: &[T],
    count: usize,
    told: impl FnMut(&T) -> Value,
    next: impl FnOnce(&T) -> Value,
) -> Value {
    let mut page = Map::new();
    page.insert(name.to_owned(), entries.iter().map(told).collect());
    if let Some(last) = entries.last().filter(|_| entries.len() == count) {
        page.insert("next".to_owned(), next(last));
    }
    page.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_full_page_has_a_next_one() {
        let page = |entries: &[u8], count| {
            told(
                "entries",
                entries,
                count,
                |entry| (*entry).into(),
                |last| (last + 1).into(),
            )
        };
        assert_eq!(page(&[1, 2], 2), json!({ "entries": [1, 2], "next": 3 }));
        assert_eq!(page(&[1, 2], 3), json!({ "entries": [1, 2] }));
        assert_eq!(page(&[], 0), json!({ "entries": [] }));
    }

    #[test]
    fn a_page_has_no_more_entries_than_allowed() {
        let count = |text| count(&Query::strict(Some(text), &["count"]).unwrap(), 100);
        assert_eq!(count(""), Ok(100));
        assert_eq!(count("count=7"), Ok(7));
        assert_eq!(count("count=101").unwrap_err().code, "bad_request");
    }
}
