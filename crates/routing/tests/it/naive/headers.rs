use bytes::Bytes;
use proptest::prelude::*;
use stafett_routing::{ExchangeKind, HeaderMatch, HeaderValue, Mode, Pattern};

use super::model::{Given, Twice, headers_match};

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", ""])
}

fn value() -> impl Strategy<Value = HeaderValue> {
    prop::sample::select(vec![
        HeaderValue::Nothing,
        HeaderValue::Bool(true),
        HeaderValue::Integer(1),
        HeaderValue::Float(1f64.to_bits()),
        HeaderValue::Text(Bytes::from_static(b"1")),
        HeaderValue::Other(Bytes::from_static(b"1")),
    ])
}

fn wanted() -> impl Strategy<Value = Pattern> {
    let pairs = prop::collection::btree_map(name(), prop::option::of(value()), 0..4);
    (any::<bool>(), pairs).prop_map(|(all, pairs)| Pattern {
        key: Bytes::new(),
        headers: HeaderMatch {
            filter: None,
            mode: if all { Mode::All } else { Mode::Any },
            pairs: pairs
                .into_iter()
                .map(|(name, value)| (Bytes::from_static(name.as_bytes()), value))
                .collect(),
        },
    })
}

fn message() -> impl Strategy<Value = Given> {
    prop::collection::btree_map(name(), value(), 0..4).prop_map(|headers| Given {
        headers: headers
            .into_iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value))
            .collect(),
        ..Given::default()
    })
}

proptest! {
    #[test]
    fn a_table_of_headers_finds_what_each_binding_on_its_own_finds(
        steps in prop::collection::vec((wanted(), 0u32..8, any::<bool>(), 0usize..64), 1..40),
        messages in prop::collection::vec(message(), 1..12),
    ) {
        let mut table = Twice::new(ExchangeKind::Headers);
        let mut before = table.clone();
        for (pattern, target, unbind, at) in steps {
            if unbind {
                table.unbind(at);
            } else {
                table.bind(pattern, target);
            }
            for message in &messages {
                table.route(message, |pattern| headers_match(&pattern.headers, message));
                before.route(message, |pattern| headers_match(&pattern.headers, message));
            }
            before = table.clone();
        }
    }
}
