//! Keyed state beside the logs.

use std::collections::BTreeMap;

use bytes::Bytes;
use smallvec::smallvec;
use stafett_journal::{
    Append, Change, Frame, Journal, Outcome, Precondition, Refusal, StateChange, StateItem, StateSpace,
    StateWait,
};
use stafett_model::{Durability, Offset};

use super::appends::whole;
use super::bench::Bench;
use crate::support::{append, control, create, listed, read_all};

/// Contents of a space: by key, the value and its later deltas.
pub type Loaded = BTreeMap<String, (Option<String>, Vec<String>)>;

pub fn load(journal: &dyn Journal, space: u16) -> Loaded {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut loaded = Loaded::new();
    let mut last_value: Option<Vec<u8>> = None;
    journal
        .load_state(StateSpace(space), &mut |item| match item {
            StateItem::Value { key, value } => {
                assert!(
                    last_value.as_deref().is_none_or(|last| last < key),
                    "values come by key"
                );
                last_value = Some(key.to_vec());
                let entry = loaded.entry(text(key)).or_default();
                assert!(entry.1.is_empty(), "a value comes before its deltas");
                entry.0 = Some(text(value));
            }
            StateItem::Delta { key, delta } => loaded.entry(text(key)).or_default().1.push(text(delta)),
        })
        .unwrap();
    loaded
}

pub fn change(space: u16, key: &str, change: Change) -> Frame {
    let key = Bytes::copy_from_slice(key.as_bytes());
    Frame::State(StateChange {
        space: StateSpace(space),
        key,
        change,
    })
}

fn put(value: &str) -> Change {
    Change::Put(Bytes::copy_from_slice(value.as_bytes()))
}

fn delta(value: &str) -> Change {
    Change::Delta(Bytes::copy_from_slice(value.as_bytes()))
}

fn holds(value: Option<&str>, deltas: &[&str]) -> (Option<String>, Vec<String>) {
    (
        value.map(str::to_owned),
        deltas.iter().map(|delta| (*delta).to_owned()).collect(),
    )
}

pub fn state_is_what_was_put_and_added_since(bench: &mut Bench) {
    control(
        bench.journal(),
        [
            change(1, "a", put("1")),
            change(1, "a", delta("+1")),
            change(1, "bb", put("2")),
        ],
    );
    control(
        bench.journal(),
        [
            change(1, "a", delta("+2")),
            change(1, "c", delta("alone")),
            change(1, "", put("")),
        ],
    );
    let waiting = Append::state([change(1, "a", delta("+3"))], StateWait::Written);
    assert_eq!(append(bench.journal(), waiting), Outcome::Committed(smallvec![]));
    for _ in 0..2 {
        bench.reopen();
        let loaded = load(bench.journal(), 1);
        assert_eq!(loaded["a"], holds(Some("1"), &["+1", "+2", "+3"]));
        assert_eq!(loaded["bb"], holds(Some("2"), &[]));
        assert_eq!(loaded["c"], holds(None, &["alone"]));
        assert_eq!(loaded[""], holds(Some(""), &[]));
        assert_eq!(loaded.len(), 4);
    }
    control(
        bench.journal(),
        [
            change(1, "a", delta("+4")),
            change(1, "a", put("9")),
            change(1, "a", delta("+1")),
        ],
    );
    bench.reopen();
    assert_eq!(load(bench.journal(), 1)["a"], holds(Some("9"), &["+1"]));
}

pub fn deleted_state_is_gone(bench: &mut Bench) {
    control(
        bench.journal(),
        [
            change(1, "a", put("1")),
            change(1, "a", delta("+1")),
            change(1, "b", put("2")),
        ],
    );
    bench.reopen();
    control(
        bench.journal(),
        [change(1, "a", Change::Delete), change(1, "never", Change::Delete)],
    );
    for _ in 0..2 {
        bench.reopen();
        assert_eq!(load(bench.journal(), 1).into_keys().collect::<Vec<_>>(), ["b"]);
    }
    control(bench.journal(), [change(1, "a", delta("+9"))]);
    bench.reopen();
    assert_eq!(load(bench.journal(), 1)["a"], holds(None, &["+9"]));
}

pub fn spaces_do_not_mix(bench: &mut Bench) {
    let spaces = [0, 1, 255, 256, u16::MAX - 2, u16::MAX - 1];
    for space in spaces {
        let value = space.to_string();
        control(
            bench.journal(),
            [
                change(space, "key", put(&value)),
                change(space, "key", delta(&value)),
            ],
        );
    }
    control(bench.journal(), [change(1, "key", Change::Delete)]);
    bench.reopen();
    for space in spaces.into_iter().filter(|space| *space != 1) {
        let value = space.to_string();
        let expected = [("key".to_owned(), holds(Some(&value), &[&value]))];
        assert_eq!(
            load(bench.journal(), space),
            Loaded::from(expected),
            "space {space}"
        );
    }
    assert_eq!(load(bench.journal(), 1), Loaded::new());
}

pub fn state_and_batches_are_stored_together(bench: &mut Bench) {
    let log = create(bench.journal(), Durability::Sync);
    let both = |key: &str, value: &str, at: u64| Append {
        frames: smallvec![
            change(1, key, put(value)),
            whole(log, &[value]),
            change(1, key, delta(value))
        ],
        require: smallvec![Precondition::NextOffset {
            log,
            offset: Offset(at)
        }],
        ..Append::default()
    };
    let outcome = append(bench.journal(), both("a", "x", 0));
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    let outcome = append(bench.journal(), both("b", "y", 0));
    assert!(
        matches!(outcome, Outcome::Refused(Refusal::NotAtOffset { .. })),
        "{outcome:?}"
    );
    bench.reopen();
    assert_eq!(
        load(bench.journal(), 1),
        Loaded::from([("a".to_owned(), holds(Some("x"), &["x"]))])
    );
    assert_eq!(read_all(bench.journal(), log, 100).unwrap(), listed(["x"]));
}

pub fn deltas_outlive_many_starts(bench: &mut Bench) {
    let mut expected = Vec::new();
    for round in 0..6 {
        for n in 0..20 {
            let text = format!("{round} {n}");
            control(
                bench.journal(),
                [
                    change(7, "key", delta(&text)),
                    change(7, "longer key", delta(&text)),
                ],
            );
            expected.push(text);
        }
        bench.reopen();
        let loaded = load(bench.journal(), 7);
        assert_eq!(loaded["key"].1, expected);
        assert_eq!(loaded["longer key"].1, expected);
    }
}
