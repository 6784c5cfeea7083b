//! Compares the arguments of a declaration with those of the existing queue, in any order.

use bytestring::ByteString;
use stafett_amqp_wire::{Table, Value};

use crate::arguments::QueueType;
use crate::known_arguments;

/// Compares two values; integers are equal regardless of their width.
fn is_same(left: Option<&Value>, right: Option<&Value>) -> bool {
    left == right
        || match (left.and_then(Value::integer), right.and_then(Value::integer)) {
            (Some(left), Some(right)) => left == right,
            (None, Some(_) | None) | (Some(_), None) => false,
        }
}

/// Returns the first argument that differs between a declaration and the existing queue, with both values in
/// RabbitMQ's words. Arguments without a meaning for the queue type are not compared.
pub(crate) fn difference(
    received: &Table,
    current: &Table,
    kind: QueueType,
) -> Option<(ByteString, String, String)> {
    let names = received.iter().chain(current.iter()).map(|(name, _)| name);
    for name in names.filter(|name| known_arguments::has_meaning(name, kind)) {
        let (new, old) = (received.get(&name), current.get(&name));
        if !is_same(new.as_ref(), old.as_ref()) {
            // RabbitMQ names the type only where the other value is missing.
            let has_both = new.is_some() && old.is_some();
            return Some((name, told(new, has_both), told(old, has_both)));
        }
    }
    None
}

fn told(value: Option<Value>, has_both: bool) -> String {
    let Some(value) = value else {
        return "none".to_owned();
    };
    let shown = match (value.text(), value.integer()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(number)) => number.to_string(),
        (None, None) => format!("{value:?}"),
    };
    if has_both {
        format!("'{shown}'")
    } else {
        format!("the value '{shown}' of type '{}'", value.type_name())
    }
}

#[cfg(test)]
mod tests {
    use stafett_amqp_wire::TableBuilder;

    use super::*;

    #[test]
    fn arguments_are_equal_whatever_their_order_and_the_width_of_their_numbers() {
        let of = |received, current| difference(received, current, QueueType::Classic);
        let one = TableBuilder::new()
            .with("x-max-length", Value::I32(1))
            .with("x-overflow", "x")
            .finish();
        let two = TableBuilder::new()
            .with("x-overflow", "x")
            .with("x-max-length", Value::U8(1))
            .finish();
        assert_eq!(of(&one, &two), None);
        let three = TableBuilder::new()
            .with("x-overflow", "x")
            .with("x-max-length", Value::I32(2))
            .finish();
        let (name, received, current) = of(&three, &one).unwrap();
        assert_eq!(name, "x-max-length");
        assert_eq!((received.as_str(), current.as_str()), ("'2'", "'1'"));
        let (_, received, current) = of(&Table::default(), &one).unwrap();
        assert_eq!(received, "none");
        assert_eq!(current, "the value '1' of type 'signedint'");
    }

    #[test]
    fn arguments_without_a_meaning_for_the_type_are_not_compared() {
        let limited = TableBuilder::new()
            .with("x-delivery-limit", Value::I32(1))
            .finish();
        let unknown = TableBuilder::new().with("x-mine", "1").finish();
        assert_eq!(difference(&unknown, &Table::default(), QueueType::Quorum), None);
        assert_eq!(difference(&limited, &Table::default(), QueueType::Classic), None);
        assert!(difference(&limited, &unknown, QueueType::Quorum).is_some());
        let own = TableBuilder::new().with("x-stafett-durability", "os").finish();
        assert!(difference(&own, &Table::default(), QueueType::Classic).is_some());
    }
}
