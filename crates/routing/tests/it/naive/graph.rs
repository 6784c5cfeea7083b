//! Exchanges bound to exchanges.

use std::collections::BTreeSet;

use proptest::prelude::*;
use stafett_routing::{ExchangeKind, Hop, Pattern, Router, Routes, Spec};

use super::model::{Given, routed};

const EXCHANGES: usize = 6;

fn name(index: usize) -> String {
    format!("x{index}")
}

fn key(text: &str) -> Given {
    Given {
        key: text.as_bytes().to_vec(),
        ..Given::default()
    }
}

/// An exchange of the model: targets and exchanges by key, and its alternate.
#[derive(Debug, Clone)]
struct Node {
    to_targets: Vec<(bool, u32)>,
    to_exchanges: Vec<(bool, usize)>,
    alternate: Option<usize>,
}

fn node() -> impl Strategy<Value = Node> {
    (
        prop::collection::vec((any::<bool>(), 0u32..8), 0..3),
        prop::collection::vec((any::<bool>(), 0..EXCHANGES), 0..3),
        prop::option::of(0..EXCHANGES + 1),
    )
        .prop_map(|(to_targets, to_exchanges, alternate)| Node {
            to_targets,
            to_exchanges,
            alternate,
        })
}

/// Returns the targets reached from an exchange, by fixpoint iteration.
fn reached(nodes: &[Node], from: usize, key: bool) -> BTreeSet<u32> {
    let (mut targets, mut seen, mut next) = (BTreeSet::new(), BTreeSet::from([from]), vec![from]);
    while let Some(index) = next.pop() {
        let Some(node) = nodes.get(index) else { continue };
        let to_targets = node.to_targets.iter().filter(|(wanted, _)| *wanted == key);
        let to_exchanges = node.to_exchanges.iter().filter(|(wanted, _)| *wanted == key);
        let mut hops: Vec<usize> = to_exchanges.map(|(_, index)| *index).collect();
        let before = targets.len();
        let mut led = !hops.is_empty();
        for (_, target) in to_targets {
            targets.insert(*target);
            led = true;
        }
        assert!(led || targets.len() == before);
        if !led {
            hops.extend(node.alternate);
        }
        next.extend(hops.into_iter().filter(|hop| seen.insert(*hop)));
    }
    targets
}

proptest! {
    #[test]
    fn whatever_is_bound_to_whatever_every_target_gets_a_message_once(
        nodes in prop::collection::vec(node(), EXCHANGES),
        from in 0..EXCHANGES,
        key_is_a: bool,
    ) {
        let mut router = Router::default();
        for (index, node) in nodes.iter().enumerate() {
            // The last one that may be an alternate does not exist.
            let alternate = node.alternate.map(|index| name(index).into());
            router.add_exchange(name(index).into(), Spec { alternate, ..Spec::new(ExchangeKind::Direct) });
        }
        let text = |is_a| if is_a { "a" } else { "b" };
        for (index, node) in nodes.iter().enumerate() {
            for (wanted, target) in &node.to_targets {
                router.bind(&name(index), &Pattern::key(text(*wanted)), Hop::Target(*target)).unwrap();
            }
            for (wanted, to) in &node.to_exchanges {
                router.bind(&name(index), &Pattern::key(text(*wanted)), Hop::Exchange(name(*to).into())).unwrap();
            }
        }
        let found = routed(&router, &name(from), &key(text(key_is_a)));
        let expected: Vec<u32> = reached(&nodes, from, key_is_a).into_iter().collect();
        let mut sorted = found;
        sorted.sort_unstable();
        prop_assert_eq!(sorted, expected);
    }
}

#[test]
fn a_thousand_exchanges_in_a_circle_end() {
    let mut router = Router::default();
    for index in 0..1000 {
        router.add_exchange(name(index).into(), Spec::new(ExchangeKind::FanOut));
    }
    for index in 0..1000 {
        for to in [(index + 1) % 1000, (index + 7) % 1000] {
            let hop = Hop::Exchange(name(to).into());
            router.bind(&name(index), &Pattern::default(), hop).unwrap();
        }
        router
            .bind(
                &name(index),
                &Pattern::default(),
                Hop::Target(u32::try_from(index % 10).unwrap()),
            )
            .unwrap();
    }
    assert_eq!(routed(&router, "x0", &key("")).len(), 10);
}

#[test]
fn a_delayed_message_waits_where_an_exchange_delays_and_goes_on_from_there() {
    let mut router = Router::default();
    router.add_exchange("in".into(), Spec::new(ExchangeKind::FanOut));
    router.add_exchange(
        "late".into(),
        Spec {
            delays: true,
            ..Spec::new(ExchangeKind::Direct)
        },
    );
    router
        .bind("in", &Pattern::default(), Hop::Exchange("late".into()))
        .unwrap();
    router.bind("in", &Pattern::default(), Hop::Target(1)).unwrap();
    router.bind("late", &Pattern::key("a"), Hop::Target(2)).unwrap();
    let nobody = |_: &[u8]| None;
    let mut found = Routes::default();
    let delayed = Given {
        delayed: true,
        ..key("a")
    };
    router.route("in", &delayed, &nobody, &mut found).unwrap();
    assert_eq!(
        (found.targets(), found.delayed_at()),
        (&[1][..], &["late".into()][..])
    );
    router.route("in", &key("a"), &nobody, &mut found).unwrap();
    assert_eq!((found.targets(), found.delayed_at()), (&[1, 2][..], &[][..]));
    assert_eq!(routed(&router, "late", &key("a")), [2], "once its time has come");
}

#[test]
fn an_exchange_without_bindings_finds_targets_by_name() {
    let mut router = Router::default();
    router.add_exchange("".into(), Spec::new(ExchangeKind::ByName));
    let names = |name: &[u8]| (name == b"queue").then_some(7);
    let mut found = Routes::default();
    router.route("", &key("queue"), &names, &mut found).unwrap();
    assert_eq!(found.targets(), [7]);
    router.route("", &key("other"), &names, &mut found).unwrap();
    assert!(found.is_nowhere());
    assert!(router.bind("", &Pattern::key("queue"), Hop::Target(7)).is_err());
}

#[test]
fn an_exchange_that_is_removed_leads_nowhere() {
    let mut router = Router::default();
    router.add_exchange("a".into(), Spec::new(ExchangeKind::FanOut));
    router.add_exchange("b".into(), Spec::new(ExchangeKind::FanOut));
    router
        .bind("a", &Pattern::default(), Hop::Exchange("b".into()))
        .unwrap();
    router.bind("b", &Pattern::default(), Hop::Target(1)).unwrap();
    let before = router.clone();
    assert!(router.remove_exchange("b"));
    assert!(!router.remove_exchange("b"));
    assert!(routed(&router, "a", &key("")).is_empty());
    assert_eq!(routed(&before, "a", &key("")), [1], "a clone never changes");
    let mut found = Routes::default();
    assert!(router.route("b", &key(""), &|_: &[u8]| None, &mut found).is_err());
}
