//! Cases of the suite about batches of which the store refuses rows.

use std::sync::atomic::Ordering;

use stafett_sinks::target::Steps;

use super::{Letters, Store, killing_at, life, place, record};

/// Records that cannot be converted are known before the rows that the store refuses: also those that come
/// before them are in the dead letters.
pub(crate) async fn poison_of_both_kinds_is_kept(store: &dyn Store) {
    let place = place(3100);
    let value = |offset| match offset {
        5 => "not JSON".to_owned(),
        2 => "{\"n\":1002,\"text\":\"\"}".to_owned(),
        _ => format!("{{\"n\":{offset},\"text\":\"\"}}"),
    };
    let log: Vec<_> = (0..6).map(|offset| record(offset, &value(offset))).collect();
    let mut letters = Letters::default();
    let mut target = store.target(Steps::default());
    life(store.definition(), &mut *target, &place, &log, &mut letters)
        .await
        .unwrap();
    letters.0.sort_unstable();
    assert_eq!(letters.0, [2, 5]);
    assert_eq!(store.rows(&place).await, [0, 1, 3, 4]);
}

/// Kills the sink behind every step of a batch that is halved, and lets another one go on.
pub(crate) async fn kills_within_a_bisection_change_nothing(store: &dyn Store) {
    let (definition, bad) = (store.definition(), [2, 8, 9]);
    let number = |offset| {
        if bad.contains(&offset) {
            offset + 1000
        } else {
            offset
        }
    };
    let log: Vec<_> = (0..14)
        .map(|offset| record(offset, &format!("{{\"n\":{},\"text\":\"\"}}", number(offset))))
        .collect();
    let good: Vec<u64> = (0..14).filter(|offset| !bad.contains(offset)).collect();
    let (counting, reached) = killing_at(u64::MAX);
    let mut target = store.target(counting);
    let first = place(3200);
    life(definition, &mut *target, &first, &log, &mut Letters::default())
        .await
        .unwrap();
    let steps = reached.load(Ordering::Relaxed);
    for (n, is_another) in (1..=steps).flat_map(|n| [(n, false), (n, true)]) {
        let place = place(3200 + u32::try_from(n * 2).unwrap() + u32::from(is_another));
        let mut target = store.target(killing_at(n).0);
        let mut letters = Letters::default();
        let killed = life(definition, &mut *target, &place, &log, &mut letters).await;
        assert!(killed.is_err(), "the {n}. step fails");
        let mut stored = std::mem::take(&mut letters.0);
        if is_another {
            target = store.target(Steps::default());
            letters = Letters::default();
        }
        life(definition, &mut *target, &place, &log, &mut letters)
            .await
            .unwrap();
        stored.extend(letters.0);
        stored.sort_unstable();
        if is_another {
            // Another process may store one again, under the same key.
            stored.dedup();
        }
        assert_eq!(stored, bad, "{killed:?}, the {n}. step");
        assert_eq!(store.rows(&place).await, good, "{killed:?}, the {n}. step");
    }
}
