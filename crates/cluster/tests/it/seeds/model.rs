//! What clients of all nodes know: the records that they sent, and those that count.

use std::collections::{BTreeMap, BTreeSet};

use stafett_model::LogId;

use crate::support::Seen;

/// Knowledge of clients.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Records that were sent, by their log. No two have one value.
    sent: BTreeMap<LogId, BTreeSet<String>>,
    /// Records that were acknowledged, or read once: they stay.
    settled: BTreeMap<LogId, BTreeMap<u64, String>>,
    /// Begins of logs that were acknowledged, and asked for.
    begin: BTreeMap<LogId, u64>,
    begin_max: BTreeMap<LogId, u64>,
    sent_count: u64,
}

impl Known {
    pub(super) fn logs(&self) -> Vec<LogId> {
        self.sent.keys().copied().collect()
    }

    pub(super) fn add_log(&mut self, log: LogId) {
        self.sent.insert(log, BTreeSet::new());
        self.settled.insert(log, BTreeMap::new());
    }

    /// Returns a value that was never sent, with this number of bytes.
    pub(super) fn send(&mut self, log: LogId, node: usize, bytes: usize) -> String {
        self.sent_count += 1;
        let mut value = format!("{:06} of node {node}: ", self.sent_count);
        while value.len() < bytes {
            value.push_str("all work and no play ");
        }
        self.sent.get_mut(&log).unwrap().insert(value.clone());
        value
    }

    /// Notes a record that counts.
    pub(super) fn settle(&mut self, log: LogId, offset: u64, value: &str) -> Result<(), String> {
        let settled = self.settled.get_mut(&log).unwrap();
        let before = settled.insert(offset, value.to_owned());
        match before {
            Some(before) if before != value => Err(format!(
                "offset {offset} of {log:?} has two records: {} and {}",
                short(&before),
                short(value)
            )),
            _ => Ok(()),
        }
    }

    /// Returns the offset behind the last record that counts.
    pub(super) fn end(&self, log: LogId) -> u64 {
        self.settled[&log].last_key_value().map_or(0, |(at, _)| at + 1)
    }

    pub(super) fn ask_for_begin(&mut self, log: LogId, before: u64) {
        let most = self.begin_max.entry(log).or_default();
        *most = before.max(*most);
    }

    pub(super) fn begins_at(&mut self, log: LogId, before: u64) {
        let begin = self.begin.entry(log).or_default();
        *begin = before.max(*begin);
    }

    /// Compares records that were read with those known. `is_complete`: every record that counts is among them.
    pub(super) fn check(
        &mut self,
        log: LogId,
        start: u64,
        found: &[Seen],
        is_complete: bool,
    ) -> Result<(), String> {
        let fail = |why: String| Err(format!("{log:?}: {why}"));
        let least = self.begin.get(&log).copied().unwrap_or_default();
        if start > self.begin_max.get(&log).copied().unwrap_or_default() {
            return fail(format!("it begins at {start}"));
        }
        if is_complete && start < least {
            return fail(format!("it begins at {start} and was cut at {least}"));
        }
        let mut values = BTreeSet::new();
        for (index, (offset, value)) in (start..).zip(found) {
            if *offset != index {
                return fail(format!("{index} is missing before {offset}"));
            }
            if !self.sent[&log].contains(value) {
                return fail(format!("{} at {offset} was not sent", short(value)));
            }
            if !values.insert(value) {
                return fail(format!("{} is there twice", short(value)));
            }
            self.settle(log, *offset, value)?;
        }
        let end = start + found.len() as u64;
        let known_end = self.end(log);
        if is_complete && end < known_end && start < known_end {
            return fail(format!("it ends at {end}, and counts to {known_end}"));
        }
        self.check_order(log)
    }

    /// The records of one node are in the order in which it sent them.
    fn check_order(&self, log: LogId) -> Result<(), String> {
        let mut last: BTreeMap<&str, &str> = BTreeMap::new();
        for value in self.settled[&log].values() {
            let (number, node) = value.split_once(' ').unwrap();
            let node = node.split_once(':').unwrap().0;
            if last.insert(node, number).is_some_and(|before| before >= number) {
                return Err(format!("{log:?}: {} is behind a later one", short(value)));
            }
        }
        Ok(())
    }
}

fn short(value: &str) -> &str {
    value.split_once(':').map_or(value, |(begin, _)| begin)
}
