use proptest::prelude::*;
use stafett_routing::{ExchangeKind, Pattern};

use super::model::{Given, Twice, words, words_match};

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "", "*", "#", "#", "ab"])
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(word(), 0..7).prop_map(|words| words.join(".").into_bytes())
}

fn matches(pattern: &Pattern, key: &[u8]) -> bool {
    words_match(&words(&pattern.key), &words(key))
}

fn key(key: &[u8]) -> Given {
    Given {
        key: key.to_vec(),
        ..Given::default()
    }
}

proptest! {
    #[test]
    fn a_trie_finds_what_each_pattern_on_its_own_finds(
        steps in prop::collection::vec((text(), 0u32..8, any::<bool>(), 0usize..64), 1..40),
        keys in prop::collection::vec(text(), 1..12),
    ) {
        let mut table = Twice::new(ExchangeKind::Topic);
        let mut before = table.clone();
        for (pattern, target, unbind, at) in steps {
            if unbind {
                table.unbind(at);
            } else {
                table.bind(Pattern::key(pattern), target);
            }
            for given in &keys {
                table.route(&key(given), |pattern| matches(pattern, given));
                before.route(&key(given), |pattern| matches(pattern, given));
            }
            before = table.clone();
        }
    }

    #[test]
    fn direct_and_fan_out_find_equal_keys_and_everything(
        steps in prop::collection::vec((text(), 0u32..8, any::<bool>(), 0usize..64), 1..40),
        keys in prop::collection::vec(text(), 1..12),
    ) {
        let mut direct = Twice::new(ExchangeKind::Direct);
        let mut fan_out = Twice::new(ExchangeKind::FanOut);
        for (pattern, target, unbind, at) in steps {
            if unbind {
                direct.unbind(at);
                fan_out.unbind(at);
            } else {
                direct.bind(Pattern::key(&pattern), target);
                fan_out.bind(Pattern::key(&pattern), target);
            }
            for given in &keys {
                direct.route(&key(given), |pattern| pattern.key[..] == given[..]);
                fan_out.route(&key(given), |_| true);
            }
        }
    }
}

/// Trying one way after the other would take exponentially many steps.
#[test]
fn a_pattern_made_to_take_long_takes_no_longer() {
    let mut table = Twice::new(ExchangeKind::Topic);
    let pattern = ["#.a"; 60].join(".");
    table.bind(Pattern::key(&pattern), 1);
    table.bind(Pattern::key(["#.a.*"; 40].join(".")), 2);
    for words in [59, 60, 120] {
        let given = vec!["a"; words].join(".");
        let found = table.route(&key(given.as_bytes()), |pattern| {
            // The model would take that long.
            words
                >= super::model::words(&pattern.key)
                    .iter()
                    .filter(|word| ***word != *b"#")
                    .count()
        });
        assert_eq!(found.contains(&1), words >= 60);
    }
}
