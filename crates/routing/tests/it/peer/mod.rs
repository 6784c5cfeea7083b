//! Comparison with the answers of RabbitMQ 4.0.5, case by case. `ask.py` wrote `answers.txt` from them.
//!
//! The tasks of a front end are done here: selecting the header names that count in each mode, and mapping
//! types of values to variants.

use bytes::Bytes;
use stafett_routing::{
    ExchangeKind, HeaderMatch, HeaderValue, Hop, MessageView, Mode, Pattern, Property, Router, Routes, Spec,
};

const ANSWERS: &str = include_str!("answers.txt");

struct Message {
    key: &'static str,
    headers: Vec<(Bytes, HeaderValue)>,
}

impl MessageView for Message {
    fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    fn headers(&self, visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        for (name, value) in &self.headers {
            visit(name, value.clone());
        }
    }

    fn property(&self, _: Property) -> Option<Bytes> {
        None
    }
}

fn arrives(kind: ExchangeKind, pattern: &Pattern, message: &Message) -> bool {
    let mut router = Router::default();
    router.add_exchange("".into(), Spec::new(kind));
    router.bind("", pattern, Hop::Target(1)).unwrap();
    let mut found = Routes::default();
    router.route("", message, &|_: &[u8]| None, &mut found).unwrap();
    !found.is_nowhere()
}

/// Builds a header value; published and bound values differ for some types.
fn value(text: &str, is_published: bool) -> HeaderValue {
    let (kind, value) = text.rsplit_once(' ').unwrap_or((text, ""));
    let text = Bytes::copy_from_slice(value.as_bytes());
    match kind {
        "int" | "byte" | "unsigned byte" | "short" | "unsigned short" | "unsigned int" | "long" => {
            HeaderValue::Integer(value.parse().unwrap())
        }
        // Published times count in milliseconds, bound ones in the seconds that go over the wire.
        "time" => HeaderValue::Integer(value.parse::<i128>().unwrap() * if is_published { 1000 } else { 1 }),
        "float" | "double" => HeaderValue::Float(value.parse::<f64>().unwrap().to_bits()),
        "text" if value == "empty" => HeaderValue::Text(Bytes::new()),
        "text" | "bytes" => HeaderValue::Text(text),
        "bool" => HeaderValue::Bool(value == "true"),
        "void" => HeaderValue::Nothing,
        // The client that asked sends 1.0 as 1.
        "decimal" => HeaderValue::Other(Bytes::from_static(b"D1")),
        "list" | "table" => HeaderValue::Other([kind.as_bytes(), value.as_bytes()].concat().into()),
        _ => panic!("{kind:?} is no kind of value"),
    }
}

fn pairs(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split_terminator(';')
        .map(|pair| pair.split_once('=').unwrap())
}

fn wanted(mode: &str, text: &'static str) -> Pattern {
    let with_x = mode.ends_with("-with-x");
    let pairs = pairs(text).filter(|(name, _)| with_x || !name.starts_with("x-"));
    let pairs = pairs.map(|(name, value)| {
        let value = self::value(value, false);
        let value = (value != HeaderValue::Nothing).then_some(value);
        (Bytes::from_static(name.as_bytes()), value)
    });
    Pattern {
        key: Bytes::new(),
        headers: HeaderMatch {
            filter: None,
            mode: if mode.starts_with("any") {
                Mode::Any
            } else {
                Mode::All
            },
            pairs: pairs.collect(),
        },
    }
}

fn published(text: &'static str) -> Message {
    let headers =
        pairs(text).map(|(name, value)| (Bytes::from_static(name.as_bytes()), self::value(value, true)));
    Message {
        key: "",
        headers: headers.collect(),
    }
}

#[test]
fn routes_are_those_of_the_peer() {
    let mut asked = 0;
    for line in ANSWERS.lines() {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let &[kind, bound, given, answer] = &fields[..] else {
            panic!("{line:?} is no answer");
        };
        let found = match kind.split_once(' ') {
            None if kind == "topic" => {
                let message = Message {
                    key: given,
                    headers: Vec::new(),
                };
                arrives(ExchangeKind::Topic, &Pattern::key(bound), &message)
            }
            None if kind == "value" => {
                let (bound, given) = (one(bound), one(given));
                arrives(ExchangeKind::Headers, &wanted("all", bound), &published(given))
            }
            Some(("headers", mode)) => {
                arrives(ExchangeKind::Headers, &wanted(mode, bound), &published(given))
            }
            _ => panic!("{line:?} asks for something unknown"),
        };
        assert_eq!(found, answer == "1", "{line:?}");
        asked += 1;
    }
    assert!(asked > 2000, "{asked}");
}

fn one(value: &str) -> &'static str {
    Box::leak(format!("a={value}").into_boxed_str())
}
