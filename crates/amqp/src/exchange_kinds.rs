//! Exchange types, arguments and predeclared exchanges of AMQP, and the arguments of headers bindings.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::methods::exchange;
use stafett_amqp_wire::{Table, TableBuilder, Value};
use stafett_broker::Broker;
use stafett_messaging::NewExchange;
use stafett_messaging::exchanges::{Difference, Exchange};
use stafett_model::Namespace;
use stafett_routing::{ExchangeKind, Filter, HashOn, HeaderMatch, HeaderValue, Mode, Property};

use crate::arguments;
use crate::exception::Exception;

const DELAYED: &str = "x-delayed-message";
const DELAYED_TYPE: &str = "x-delayed-type";
const HASH: &str = "x-consistent-hash";
const ALTERNATE: &str = "alternate-exchange";

/// Exchanges of every virtual host: name, kind, internal.
const PREDECLARED: [(&str, ExchangeKind, bool); 7] = [
    ("amq.direct", ExchangeKind::Direct, false),
    ("amq.fanout", ExchangeKind::FanOut, false),
    ("amq.topic", ExchangeKind::Topic, false),
    ("amq.headers", ExchangeKind::Headers, false),
    ("amq.match", ExchangeKind::Headers, false),
    ("amq.rabbitmq.trace", ExchangeKind::Topic, true),
    ("amq.rabbitmq.log", ExchangeKind::Topic, true),
];

/// Declares the exchanges that clients expect to exist.
pub(crate) fn predeclare(broker: &Broker, namespace: &Namespace) {
    for (name, kind, internal) in PREDECLARED {
        if broker.messaging().exchanges().get(namespace, name).is_some() {
            continue;
        }
        let new = NewExchange {
            internal,
            arguments: arguments::canonical(&Table::default()),
            ..NewExchange::new(kind)
        };
        // Not awaited: later declarations find the exchange, and if it cannot be stored, nothing can.
        match broker.messaging().exchanges().declare(namespace, name, new) {
            Ok((_, stored)) => drop(stored),
            Err(error) => tracing::warn!(%error, name, "an exchange cannot be predeclared"),
        }
    }
}

/// Converts a declaration.
pub(crate) fn new_exchange(method: &exchange::Declare, what: &str) -> Result<NewExchange, Exception> {
    let delays = method.kind == DELAYED;
    let kind = if delays {
        let inner = method.arguments.get(DELAYED_TYPE);
        let inner = inner.as_ref().and_then(Value::text).unwrap_or_default();
        if inner == DELAYED {
            return Err(unknown_kind(inner));
        }
        kind(inner, &method.arguments)?
    } else {
        kind(&method.kind, &method.arguments)?
    };
    let alternate = match method.arguments.get(ALTERNATE) {
        None => None,
        Some(Value::LongString(name)) => Some(std::str::from_utf8(&name).map(Arc::from).unwrap_or_default()),
        Some(value) => {
            let text = format!(
                "invalid type '{}' for arg '{ALTERNATE}' in {what}",
                value.type_name()
            );
            return Err(Exception::precondition(text));
        }
    };
    Ok(NewExchange {
        kind,
        delays,
        durable: method.durable,
        auto_delete: method.auto_delete,
        internal: method.internal,
        alternate,
        arguments: arguments::canonical(&method.arguments),
    })
}

fn kind(name: &str, arguments: &Table) -> Result<ExchangeKind, Exception> {
    Ok(match name {
        "direct" => ExchangeKind::Direct,
        "fanout" => ExchangeKind::FanOut,
        "topic" => ExchangeKind::Topic,
        "headers" => ExchangeKind::Headers,
        HASH => ExchangeKind::Hashed(hash_on(arguments)?),
        other => return Err(unknown_kind(other)),
    })
}

fn unknown_kind(name: &str) -> Exception {
    if name.is_empty() {
        return Exception::precondition(
            "invalid argument, 'x-delayed-type' must be an existing exchange type",
        );
    }
    Exception::precondition(format!("invalid exchange type '{name}'"))
}

fn hash_on(arguments: &Table) -> Result<HashOn, Exception> {
    let text = |name| {
        arguments
            .get(name)
            .and_then(|value| value.text().map(str::to_owned))
    };
    let (header, property) = (text("hash-header"), text("hash-property"));
    match (header, property) {
        (Some(_), Some(_)) => Err(Exception::precondition(
            "Only one of hash-header and hash-property can be used",
        )),
        (Some(header), None) => Ok(HashOn::Header(header.into())),
        (None, Some(property)) => match property.as_str() {
            "message_id" => Ok(HashOn::Property(Property::MessageId)),
            "correlation_id" => Ok(HashOn::Property(Property::CorrelationId)),
            "timestamp" => Ok(HashOn::Property(Property::Timestamp)),
            other => Err(Exception::precondition(format!("Unsupported property: {other}"))),
        },
        (None, None) => Ok(HashOn::Key),
    }
}

/// Returns the name of an exchange's type.
pub(crate) fn type_name(is: &NewExchange) -> &'static str {
    if is.delays {
        return DELAYED;
    }
    match is.kind {
        ExchangeKind::ByName | ExchangeKind::Direct => "direct",
        ExchangeKind::FanOut => "fanout",
        ExchangeKind::Topic => "topic",
        ExchangeKind::Headers => "headers",
        ExchangeKind::Hashed(_) => HASH,
    }
}

/// Takes the arguments of the existing exchange: on a repeated declaration, RabbitMQ compares the alternate
/// exchange only.
pub(crate) fn adopt_arguments(new: &mut NewExchange, existing: &NewExchange) {
    if type_name(new) == type_name(existing) {
        new.kind = existing.kind.clone();
    }
}

/// Returns the argument in which a declaration differs, the received value and the current value.
pub(crate) fn difference(
    method: &exchange::Declare,
    exchange: &Exchange,
    difference: Difference,
) -> (&'static str, String, String) {
    let is = &exchange.is;
    let both = |received: bool, current: bool| (format!("'{received}'"), format!("'{current}'"));
    let (name, (received, current)) = match difference {
        Difference::Kind => (
            "type",
            (format!("'{}'", method.kind), format!("'{}'", type_name(is))),
        ),
        Difference::Durable => ("durable", both(method.durable, is.durable)),
        Difference::AutoDelete => ("auto_delete", both(method.auto_delete, is.auto_delete)),
        Difference::Internal => ("internal", both(method.internal, is.internal)),
        Difference::Alternate => {
            let told = |name: Option<String>| {
                name.map_or_else(
                    || "none".to_owned(),
                    |name| format!("the value '{name}' of type 'longstr'"),
                )
            };
            let received = method.arguments.get(ALTERNATE);
            let received = received.and_then(|value| value.text().map(str::to_owned));
            (
                ALTERNATE,
                (told(received), told(is.alternate.as_deref().map(str::to_owned))),
            )
        }
    };
    (name, received, current)
}

/// Argument of a binding or a consumer: a condition on the content of messages.
const FILTER: &str = "x-stafett-filter";

/// Converts the arguments of a binding: those of a headers exchange, and the filter. Other exchanges take any
/// `x-match`.
pub(crate) fn header_match(of: &ExchangeKind, arguments: &Table) -> Result<HeaderMatch, Exception> {
    let kind = arguments.get("x-match");
    let (mode, with_x) = match kind.as_ref().map(|value| value.text()) {
        None | Some(Some("all")) => (Mode::All, false),
        Some(Some("any")) => (Mode::Any, false),
        Some(Some("all-with-x")) => (Mode::All, true),
        Some(Some("any-with-x")) => (Mode::Any, true),
        Some(_) if *of != ExchangeKind::Headers => (Mode::All, false),
        Some(_) => {
            return Err(Exception::precondition(
                "Invalid x-match field value; expected all, any, all-with-x, or any-with-x",
            ));
        }
    };
    let mut pairs = Vec::new();
    for (name, value) in arguments.iter() {
        if name == "x-match" || name == FILTER || (!with_x && name.starts_with("x-")) {
            continue;
        }
        let wanted = (value != Value::Void).then(|| header_value(&value));
        pairs.push((name.into_bytes(), wanted));
    }
    let filter = filter(arguments)?.map(Arc::new);
    Ok(HeaderMatch { mode, pairs, filter })
}

/// Returns the condition on the content of messages, of a binding or a consumer.
pub(crate) fn filter(arguments: &Table) -> Result<Option<Filter>, Exception> {
    let Some(value) = arguments.get(FILTER) else {
        return Ok(None);
    };
    let refused = |why: String| Exception::precondition(format!("{FILTER}: {why}"));
    let source = value
        .text()
        .ok_or_else(|| refused("it has to be a text".to_owned()))?;
    let compiled = Filter::compile(source);
    compiled.map(Some).map_err(|why| refused(why.to_string()))
}

/// Converts a value for comparison in routing: integers of all widths are one kind, and so are both kinds of
/// floats.
pub(crate) fn header_value(value: &Value) -> HeaderValue {
    match value {
        Value::Void => HeaderValue::Nothing,
        Value::Bool(value) => HeaderValue::Bool(*value),
        Value::I8(_)
        | Value::U8(_)
        | Value::I16(_)
        | Value::U16(_)
        | Value::I32(_)
        | Value::U32(_)
        | Value::I64(_) => HeaderValue::Integer(value.integer().unwrap_or_default().into()),
        Value::Timestamp(seconds) => HeaderValue::Integer((*seconds).into()),
        Value::F32(number) => HeaderValue::Float(f64::from(*number).to_bits()),
        Value::F64(number) => HeaderValue::Float(number.to_bits()),
        Value::LongString(bytes) | Value::Bytes(bytes) => HeaderValue::Text(bytes.clone()),
        Value::Decimal(..) | Value::Array(_) | Value::Table(_) => HeaderValue::Other(encoded(value)),
    }
}

fn encoded(value: &Value) -> Bytes {
    let mut table = TableBuilder::new();
    table.push("", value);
    BytesMut::from(table.finish().as_bytes().as_ref()).freeze()
}

#[cfg(test)]
mod tests {
    use stafett_amqp_wire::ReplyCode;

    use super::*;

    #[test]
    fn bindings_of_headers_leave_out_what_is_not_asked_for() {
        let table = TableBuilder::new()
            .with("x-match", "any")
            .with("x-kind", "a")
            .with("format", "pdf")
            .with("there", Value::Void)
            .finish();
        let found = header_match(&ExchangeKind::Headers, &table).unwrap();
        assert_eq!(found.mode, Mode::Any);
        let text = HeaderValue::Text(Bytes::from_static(b"pdf"));
        let expected = [
            (Bytes::from_static(b"format"), Some(text)),
            (Bytes::from_static(b"there"), None),
        ];
        assert_eq!(found.pairs, expected);
        let with_x = TableBuilder::new()
            .with("x-match", "all-with-x")
            .with("x-kind", "a")
            .finish();
        assert_eq!(
            header_match(&ExchangeKind::Headers, &with_x).unwrap().pairs.len(),
            1
        );
        let odd = TableBuilder::new().with("x-match", "most").finish();
        assert!(header_match(&ExchangeKind::Headers, &odd).is_err());
        assert!(header_match(&ExchangeKind::Topic, &odd).is_ok());
    }

    #[test]
    fn whole_numbers_of_all_widths_are_equal() {
        assert_eq!(header_value(&Value::U8(7)), header_value(&Value::I64(7)));
        assert_ne!(header_value(&Value::U8(7)), header_value(&"7".into()));
    }

    #[test]
    fn declared_again_an_exchange_keeps_its_arguments() {
        let hashed = |on| NewExchange::new(ExchangeKind::Hashed(on));
        let existing = hashed(HashOn::Header("who".into()));
        let mut new = hashed(HashOn::Key);
        adopt_arguments(&mut new, &existing);
        assert_eq!(existing.difference(&new), None);
        let mut other = NewExchange::new(ExchangeKind::Topic);
        adopt_arguments(&mut other, &existing);
        assert_eq!(existing.difference(&other), Some(Difference::Kind));
    }

    #[test]
    fn types_and_arguments_make_an_exchange() {
        let declare = |kind: &str, arguments: Table| {
            let method = exchange::Declare {
                exchange: "e".into(),
                kind: kind.into(),
                arguments,
                ..exchange::Declare::default()
            };
            new_exchange(&method, "exchange 'e' in vhost '/'")
        };
        let delayed = TableBuilder::new().with(DELAYED_TYPE, "topic").finish();
        let delayed = declare(DELAYED, delayed).unwrap();
        assert_eq!((delayed.kind, delayed.delays), (ExchangeKind::Topic, true));
        let hashed = TableBuilder::new().with("hash-header", "who").finish();
        assert_eq!(
            declare(HASH, hashed).unwrap().kind,
            ExchangeKind::Hashed(HashOn::Header("who".into()))
        );
        assert_eq!(
            declare("heap", Table::default()).unwrap_err().code,
            ReplyCode::PreconditionFailed
        );
        assert!(declare(DELAYED, Table::default()).is_err());
        let alternate = TableBuilder::new().with(ALTERNATE, Value::I32(1)).finish();
        assert!(declare("direct", alternate).is_err());
    }
}
