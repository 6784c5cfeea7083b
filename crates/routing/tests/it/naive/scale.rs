//! A hundred thousand bindings.

use stafett_routing::{ExchangeKind, Hop, Pattern, Router, Spec};

use super::model::{EXCHANGE, Given, routed};

const BINDINGS: u32 = 100_000;

#[test]
fn a_hundred_thousand_bindings_come_and_go_while_clones_stay_as_they_were() {
    let mut router = Router::default();
    router.add_exchange(EXCHANGE.into(), Spec::new(ExchangeKind::Topic));
    let pattern = |number: u32| Pattern::key(format!("device.{number}.*"));
    let mut clones = Vec::new();
    for number in 0..BINDINGS {
        if number % 10_000 == 0 {
            clones.push(router.clone());
        }
        router
            .bind(EXCHANGE, &pattern(number), Hop::Target(number))
            .unwrap();
    }
    let to = |router: &Router<u32>, number: u32| {
        let key = format!("device.{number}.temperature").into_bytes();
        routed(
            router,
            EXCHANGE,
            &Given {
                key,
                ..Given::default()
            },
        )
    };
    assert_eq!(to(&router, 77_777), [77_777]);
    for (had, clone) in (0u32..).zip(&clones) {
        assert_eq!(to(clone, had * 10_000).len(), 0);
        assert_eq!(
            to(clone, (had * 10_000).saturating_sub(1)).len(),
            usize::from(had > 0)
        );
    }
    let full = router.clone();
    for number in 0..BINDINGS {
        assert!(router.unbind(EXCHANGE, &pattern(number), &Hop::Target(number)));
    }
    assert!(to(&router, 5).is_empty());
    assert_eq!(to(&full, 5), [5]);
}
