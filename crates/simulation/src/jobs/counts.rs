//! Records counted by key: the count of each key is the number of its records before the position, and each
//! count came out once, in order.

use std::collections::BTreeMap;

use bytes::Bytes;
use stafett_model::StoredRecord;
use stafett_topics::NewRecord;

use super::checks::Seen;
use super::{Changes, Facts, text};

pub(super) const INPUTS: [&str; 1] = ["jobs.in"];
pub(super) const RESULTS: &str = "jobs.out";
const KEYS: u64 = 7;

pub(super) fn record(number: u64) -> NewRecord {
    NewRecord {
        key: Some(format!("k{}", number * 31 % KEYS).into()),
        value: Some(Bytes::from_static(b"x")),
        ..NewRecord::default()
    }
}

pub(super) fn changes(records: &[&StoredRecord]) -> (Changes, Facts) {
    let mut changes = Changes::default();
    for record in records {
        *changes
            .sums
            .entry(record.key.clone().unwrap_or_default())
            .or_default() += 1;
    }
    (changes, Facts::new())
}

/// Returns the result of a new count, and the fact that a commit of it makes true.
pub(super) fn result(key: &Bytes, count: i64) -> (NewRecord, (String, u64)) {
    let result = NewRecord {
        key: Some(key.clone()),
        value: Some(count.to_string().into()),
        ..NewRecord::default()
    };
    let fact = String::from_utf8_lossy(key).into_owned();
    (result, (fact, u64::try_from(count).unwrap_or(0)))
}

/// Checks counts and results. Returns the facts that hold.
pub(super) fn check(seen: &Seen, results: &[StoredRecord]) -> Result<BTreeMap<String, u64>, String> {
    let (found, mut wanted) = (&seen.sums, BTreeMap::<String, i64>::new());
    for record in seen.done.iter().flatten() {
        *wanted
            .entry(text(record.key.as_deref().unwrap_or_default())?)
            .or_default() += 1;
    }
    if *found != wanted {
        return Err(format!(
            "counts are {found:?}, and the records before the positions {wanted:?}"
        ));
    }
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    for record in results {
        let key = text(record.key.as_deref().unwrap_or_default())?;
        let count: i64 = text(record.value.as_deref().unwrap_or_default())?
            .parse()
            .map_err(|_| "a result is no count")?;
        let before = last.insert(key.clone(), count).unwrap_or(0);
        if count <= before {
            return Err(format!("the count {count} of {key} came out behind {before}"));
        }
    }
    if last != *found {
        return Err(format!("the last results are {last:?}, and counts {found:?}"));
    }
    let facts = found.iter();
    Ok(facts
        .map(|(key, count)| (key.clone(), u64::try_from(*count).unwrap_or(0)))
        .collect())
}
