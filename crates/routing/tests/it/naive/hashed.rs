//! Distribution by hash.

use stafett_routing::{BadPattern, BindError, ExchangeKind, HashOn, HeaderValue, Hop, Pattern, Router, Spec};

use super::model::{EXCHANGE, Given, routed};

const MESSAGES: u32 = 20_000;

fn router(on: HashOn) -> Router<u32> {
    let mut router = Router::default();
    router.add_exchange(EXCHANGE.into(), Spec::new(ExchangeKind::Hashed(on)));
    router
}

fn bind(router: &mut Router<u32>, weight: &str, target: u32) {
    router
        .bind(EXCHANGE, &Pattern::key(weight), Hop::Target(target))
        .unwrap();
}

/// Returns how many of many messages each target gets.
fn shares(router: &Router<u32>) -> Vec<u32> {
    let to = |number: u32| {
        let key = format!("order-{number}").into_bytes();
        let found = routed(
            router,
            EXCHANGE,
            &Given {
                key,
                ..Given::default()
            },
        );
        let [target] = found[..] else {
            panic!("one target gets it, not {found:?}");
        };
        target
    };
    (0..MESSAGES).map(to).collect()
}

fn count(shares: &[u32], target: u32) -> usize {
    shares.iter().filter(|share| **share == target).count()
}

#[test]
fn every_target_gets_what_its_weight_says() {
    let mut router = router(HashOn::Key);
    for (target, weight) in [(1, "1"), (2, "2"), (3, "1")] {
        bind(&mut router, weight, target);
    }
    let shares = shares(&router);
    for (target, expected) in [(1, 5000), (2, 10_000), (3, 5000)] {
        let found = count(&shares, target);
        assert!(found.abs_diff(expected) < expected / 10, "{target}: {found}");
    }
}

#[test]
fn a_target_that_comes_or_goes_moves_only_its_own_share() {
    let mut router = router(HashOn::Key);
    (1..=5).for_each(|target| bind(&mut router, "1", target));
    let five = shares(&router);
    bind(&mut router, "3", 6);
    let six = shares(&router);
    assert!(
        five.iter()
            .zip(&six)
            .all(|(before, after)| before == after || *after == 6)
    );
    assert!(router.unbind(EXCHANGE, &Pattern::key("1"), &Hop::Target(2)));
    let without = shares(&router);
    assert!(
        six.iter()
            .zip(&without)
            .all(|(before, after)| before == after || *before == 2)
    );
    assert!(!without.contains(&2));
}

#[test]
fn the_order_in_which_bindings_came_does_not_matter() {
    let (mut there, mut back) = (router(HashOn::Key), router(HashOn::Key));
    (1..=9).for_each(|target| bind(&mut there, &target.to_string(), target));
    (1..=9)
        .rev()
        .for_each(|target| bind(&mut back, &target.to_string(), target));
    bind(&mut back, "2", 10);
    assert!(back.unbind(EXCHANGE, &Pattern::key("2"), &Hop::Target(10)));
    assert_eq!(shares(&there), shares(&back));
}

#[test]
fn of_several_weights_the_largest_counts() {
    let (mut one, mut several) = (router(HashOn::Key), router(HashOn::Key));
    bind(&mut one, "1", 1);
    bind(&mut one, "4", 2);
    bind(&mut several, "1", 1);
    for weight in ["2", "4", "3", "4"] {
        bind(&mut several, weight, 2);
    }
    assert_eq!(shares(&one), shares(&several));
    for weight in ["4", "4"] {
        assert!(several.unbind(EXCHANGE, &Pattern::key(weight), &Hop::Target(2)));
    }
    assert!(!several.unbind(EXCHANGE, &Pattern::key("4"), &Hop::Target(2)));
    assert_ne!(shares(&one), shares(&several), "the weight is 3 now");
}

#[test]
fn a_header_can_decide() {
    let mut router = router(HashOn::Header("customer".into()));
    (1..=4).for_each(|target| bind(&mut router, "1", target));
    let to = |customer: i128, key: &str| {
        let message = Given {
            key: key.as_bytes().to_vec(),
            headers: vec![
                (b"other".to_vec(), HeaderValue::Bool(true)),
                (b"customer".to_vec(), HeaderValue::Integer(customer)),
            ],
            ..Given::default()
        };
        routed(&router, EXCHANGE, &message)
    };
    assert!((0..100).all(|customer| to(customer, "a") == to(customer, "b")));
    assert!((1..=4).all(|target| (0..100).any(|customer| to(customer, "") == [target])));
    let without = routed(&router, EXCHANGE, &Given::default());
    assert_eq!(without.len(), 1, "messages without the header go to one of them");
}

#[test]
fn what_is_no_weight_is_refused() {
    let mut router = router(HashOn::Key);
    for weight in ["", "0", "-1", "1.5", "a", "1000001", "99999999999999999999"] {
        let refused = router.bind(EXCHANGE, &Pattern::key(weight), Hop::Target(1));
        let Err(BindError::BadPattern(BadPattern::Weight { given, .. })) = refused else {
            panic!("{weight:?}: {refused:?}");
        };
        assert_eq!(given, weight);
    }
}

#[test]
fn destinations_are_limited_and_their_bindings_are_not() {
    let mut router = router(HashOn::Key);
    (0..1024).for_each(|target| bind(&mut router, "1", target));
    let (pattern, one_more) = (Pattern::key("1"), Hop::Target(1024));
    let refused = router.check(EXCHANGE, &pattern, &one_more).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "an exchange that spreads by hash has at most 1024 destinations"
    );
    assert_eq!(router.bind(EXCHANGE, &pattern, one_more.clone()), Err(refused));
    bind(&mut router, "2", 7);
    assert!(router.unbind(EXCHANGE, &Pattern::key("2"), &Hop::Target(7)));
    assert!(
        router.check(EXCHANGE, &pattern, &one_more).is_err(),
        "7 is still bound"
    );
    assert!(router.unbind(EXCHANGE, &pattern, &Hop::Target(7)));
    router.bind(EXCHANGE, &pattern, one_more).unwrap();
}
