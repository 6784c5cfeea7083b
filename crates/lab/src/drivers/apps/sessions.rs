//! Sessions of one task. Those under way are entries of the app's table, each with a timer for its end.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::{RawValue, to_raw_value};

use super::TABLE;
use super::words::{Entry, Records, Step};
use crate::experiment::Session;
use crate::workload::{HEADER_BYTES, Received};

/// Characters of base64 that the lab's own bytes take: a multiple of three makes no rest.
const HEADER_TEXT: usize = HEADER_BYTES / 3 * 4;

/// Sessions under way, by their keys: messages in base64, in their order.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    open: BTreeMap<String, Vec<Box<RawValue>>>,
    /// Those that the broker has.
    stored: BTreeSet<String>,
}

impl Sessions {
    /// Adds an entry of the table.
    pub(super) fn restore(&mut self, entry: Entry) {
        self.stored.insert(entry.key.clone());
        self.open.insert(entry.key, entry.value);
    }

    /// Takes records and timers. Returns the step to commit; messages that it passes on to the topic `to` are
    /// added to `finished`. `now_ms` is the time of the clock.
    pub(super) fn take(
        &mut self,
        session: &Session,
        records: Records<'_>,
        (to, now_ms): (&str, i64),
        finished: &mut Vec<Received>,
    ) -> Step {
        let mut step = Step::default();
        to.clone_into(&mut step.emit.topic);
        // Of a key, the last one holds.
        let (mut touched, mut timers, mut ended) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        for (key, _, _) in records.due {
            if self.end(&key, &mut step, finished) {
                ended.insert(key.clone());
            }
            // One whose session has ended goes, too.
            timers.insert(key, None);
        }
        for record in records.list {
            let content = match (record.value_base64, record.value) {
                (Some(base64), _) => base64.to_owned(),
                (None, Some(text)) => to_raw_value(&STANDARD.encode(text.as_bytes())).unwrap_or_default(),
                (None, None) => continue,
            };
            let Some(message) = read(&content) else { continue };
            let key = record.key.into_owned();
            let is_end = session.fragment(message.sequence).is_end;
            self.open.entry(key.clone()).or_default().push(content);
            if is_end {
                touched.remove(&key);
                if self.end(&key, &mut step, finished) {
                    timers.insert(key.clone(), None);
                    ended.insert(key);
                }
            } else {
                touched.insert(key);
            }
        }
        let timeout = i64::try_from(session.timeout.0.as_millis()).unwrap_or(i64::MAX);
        for key in touched {
            let Some(messages) = self.open.get(&key) else {
                continue;
            };
            self.stored.insert(key.clone());
            timers.insert(key.clone(), Some(now_ms.saturating_add(timeout)));
            ended.remove(&key);
            step.put.entry(TABLE).or_default().push((key, messages.clone()));
        }
        if !ended.is_empty() {
            step.delete.insert(TABLE, ended.into_iter().collect());
        }
        step.timers = timers.into_iter().collect();
        step
    }

    /// Passes a session on. Returns true if the broker had its beginning.
    fn end(&mut self, key: &str, step: &mut Step, finished: &mut Vec<Received>) -> bool {
        let Some((key, messages)) = self.open.remove_entry(key) else {
            return false;
        };
        finished.extend(messages.iter().filter_map(|content| read(content)));
        let was_stored = self.stored.remove(&key);
        step.emit.sessions.push((key, messages));
        was_stored
    }
}

/// Reads the lab's own bytes of a message.
fn read(content: &RawValue) -> Option<Received> {
    let content = content.get().strip_prefix('"')?.strip_suffix('"')?;
    let header = STANDARD.decode(content.get(..HEADER_TEXT)?).ok()?;
    let rest = content.len() / 4 * 3 - content.bytes().rev().take_while(|byte| *byte == b'=').count();
    let size = u32::try_from(rest).ok()?;
    Some(Received {
        size,
        ..Received::read(&header)?
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::Message;

    fn session() -> Session {
        Session {
            fragments: 2,
            open: 1,
            unended: 0.5,
            ..Session::default()
        }
    }

    fn message(sequence: u64) -> String {
        let message = Message {
            stream: 7,
            sequence,
            ..Message::default()
        };
        let mut bytes = message.header().to_vec();
        bytes.resize(100, 0xff);
        STANDARD.encode(bytes)
    }

    /// Takes messages by their keys, and keys whose timers are due.
    fn take(sessions: &mut Sessions, due: &[&str], came: &[(&str, u64)]) -> (Step, Vec<u64>) {
        let record = |(key, sequence): &(&str, u64)| json!({"key": key, "value_base64": message(*sequence)});
        let records: Vec<_> = came.iter().map(record).collect();
        let due: Vec<_> = due.iter().map(|key| json!([key, 5, ""])).collect();
        let text = json!({"task": "0", "due": due, "records": records, "next": {}}).to_string();
        let mut finished = Vec::new();
        let read = serde_json::from_str(&text).unwrap();
        let step = sessions.take(&session(), read, ("whole", 1000), &mut finished);
        assert!(
            finished
                .iter()
                .all(|message| message.size == 100 && message.stream == 7)
        );
        (step, finished.iter().map(|message| message.sequence).collect())
    }

    fn timers(step: &Step) -> Vec<(&str, Option<i64>)> {
        step.timers.iter().map(|(key, at)| (&**key, *at)).collect()
    }

    #[test]
    fn a_session_ends_by_its_last_message() {
        let mut sessions = Sessions::default();
        let (step, finished) = take(&mut sessions, &[], &[("7-0", 0)]);
        assert!(finished.is_empty() && step.emit.sessions.is_empty());
        assert_eq!(json!(step.put[TABLE]), json!([["7-0", [message(0)]]]));
        assert_eq!(timers(&step), [("7-0", Some(3000))]);
        let (step, finished) = take(&mut sessions, &[], &[("7-0", 1)]);
        assert_eq!(finished, [0, 1]);
        let passed = |sequence| json!({"topic": "whole", "key": "7-0", "value_base64": message(sequence)});
        assert_eq!(json!(step.emit), json!([passed(0), passed(1)]));
        assert_eq!(step.delete[TABLE], ["7-0"]);
        assert_eq!(timers(&step), [("7-0", None)]);
        assert!(step.put.is_empty());
    }

    #[test]
    fn a_session_that_comes_whole_is_never_stored() {
        let (step, finished) = take(&mut Sessions::default(), &[], &[("7-0", 0), ("7-0", 1)]);
        assert_eq!(finished, [0, 1]);
        assert!(step.put.is_empty() && step.delete.is_empty() && step.timers.is_empty());
    }

    #[test]
    fn what_comes_behind_a_time_out_begins_the_session_anew() {
        let mut sessions = Sessions::default();
        take(&mut sessions, &[], &[("7-0", 0)]);
        let (step, finished) = take(&mut sessions, &["7-0"], &[("7-0", 2)]);
        assert_eq!(finished, [0]);
        assert_eq!(json!(step.put[TABLE]), json!([["7-0", [message(2)]]]));
        assert!(step.delete.is_empty(), "the entry is another one now");
        assert_eq!(timers(&step), [("7-0", Some(3000))]);
    }

    #[test]
    fn one_without_an_end_ends_by_the_time_out_and_another_worker_has_its_beginning() {
        let mut first = Sessions::default();
        let (step, _) = take(&mut first, &[], &[("7-1", 2), ("7-1", 3)]);
        let [(key, value)] = step.put[TABLE].as_slice() else {
            panic!("{step:?}")
        };
        let mut second = Sessions::default();
        second.restore(Entry {
            key: key.clone(),
            value: value.clone(),
        });
        let (step, finished) = take(&mut second, &["7-1"], &[]);
        assert_eq!(finished, [2, 3]);
        assert_eq!(step.delete[TABLE], ["7-1"]);
        assert_eq!(timers(&step), [("7-1", None)]);
        let (step, finished) = take(&mut second, &["7-1"], &[]);
        assert!(finished.is_empty() && step.emit.sessions.is_empty());
        assert_eq!(timers(&step), [("7-1", None)], "the timer goes all the same");
    }
}
