//! Look-ups in a table of bindings, to be measured with a tool:
//! `valgrind --tool=cachegrind --cache-sim=yes target/debug/examples/lookups topic 100000 20000`
//!
//! One binding per device; messages of random devices, no key twice in a row. `0` messages give the cost of
//! building.

use std::hint::black_box;

use bytes::Bytes;
use stafett_routing::{
    ExchangeKind, HeaderMatch, HeaderValue, Hop, KeyOnly, MessageView, Mode, Pattern, Property, Router,
    Routes, Spec,
};

/// A message with a header.
struct Device(String);

impl MessageView for Device {
    fn key(&self) -> &[u8] {
        b""
    }

    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        visit(
            b"device",
            HeaderValue::Text(Bytes::copy_from_slice(self.0.as_bytes())),
        );
    }

    fn property(&self, _: Property) -> Option<Bytes> {
        None
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "topic".to_owned());
    let mut number = |default: u32| {
        arguments
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (bindings, messages) = (number(100_000), number(20_000));
    let mut router: Router<u32> = Router::default();
    let of = match kind.as_str() {
        "direct" => ExchangeKind::Direct,
        "headers" => ExchangeKind::Headers,
        _ => ExchangeKind::Topic,
    };
    router.add_exchange("x".into(), Spec::new(of.clone()));
    for number in 0..bindings {
        let pattern = match of {
            ExchangeKind::Headers => Pattern {
                headers: HeaderMatch {
                    filter: None,
                    mode: Mode::All,
                    pairs: vec![(
                        Bytes::from_static(b"device"),
                        Some(HeaderValue::Text(Bytes::from(format!("device.{number}")))),
                    )],
                },
                ..Pattern::default()
            },
            ExchangeKind::Direct => Pattern::key(format!("device.{number}.temperature")),
            ExchangeKind::Topic | ExchangeKind::ByName | ExchangeKind::FanOut | ExchangeKind::Hashed(_) => {
                Pattern::key(format!("device.{number}.*"))
            }
        };
        if router.bind("x", &pattern, Hop::Target(number % 10)).is_err() {
            return;
        }
    }
    let mut found = Routes::default();
    let nobody = |_: &[u8]| None;
    let mut reached = 0;
    for message in 0..messages {
        let device = message.wrapping_mul(2_654_435_761) % bindings;
        let went = if of == ExchangeKind::Headers {
            router.route("x", &Device(format!("device.{device}")), &nobody, &mut found)
        } else {
            let key = format!("device.{device}.temperature");
            router.route("x", &KeyOnly(black_box(key.as_bytes())), &nobody, &mut found)
        };
        reached += usize::from(went.is_ok()) * found.targets().len();
    }
    assert_eq!(
        reached,
        usize::try_from(messages).unwrap_or(0),
        "each leads to one target"
    );
}
