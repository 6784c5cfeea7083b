//! Names of parameters and systems, as they stand in figures and tables.

use serde_json::Value;

pub(crate) use crate::experiment::path::short;
use crate::experiment::{ByteCount, Span};

/// A value of a parameter.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_u64() {
            Some(whole) if whole >= 10_000 => super::numbers::plain(whole as f64, 0),
            _ => number.to_string(),
        },
        Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => compact(value),
    }
}

/// `{"uniform":[10,100]}` as `uniform 10, 100`.
fn compact(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name} {}", compact(value)));
            fields.collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) => values.iter().map(compact).collect::<Vec<_>>().join(", "),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Null | Value::Number(_) => value.to_string(),
    }
}

/// Returns the value on an axis that has an order: of a number, a size or a length of time.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => {
            let size = text.parse::<ByteCount>().map(|bytes| bytes.0 as f64);
            size.or_else(|_| text.parse::<Span>().map(|span| span.0.as_secs_f64()))
                .ok()
        }
        Value::Bool(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// As its makers write it.
pub(crate) fn system(name: &str) -> String {
    match name {
        "stafett" => "Stafett".to_owned(),
        "kafka" => "Apache Kafka".to_owned(),
        "rabbitmq" => "RabbitMQ".to_owned(),
        other => other.to_owned(),
    }
}

/// A colour of its own for each system, the same in every figure.
pub(crate) fn colour(name: &str, all: &[String]) -> usize {
    match name {
        "stafett" => 0,
        "kafka" => 1,
        "rabbitmq" => 2,
        other => {
            3 + all
                .iter()
                .filter(|name| !is_known(name))
                .position(|name| name == other)
                .unwrap_or(0)
        }
    }
}

fn is_known(name: &str) -> bool {
    matches!(name, "stafett" | "kafka" | "rabbitmq")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_have_the_shortest_name_that_tells_them_apart() {
        let all = [
            "roles.producers.batch",
            "roles.consumers.clients",
            "roles.producers.clients",
            "system.durability",
        ];
        let all = all.map(str::to_owned);
        let names: Vec<_> = all.iter().map(|path| short(path, &all)).collect();
        assert_eq!(
            names,
            ["batch", "consumers clients", "producers clients", "durability"]
        );
        assert_eq!(short("topics.main.length_max", &[]), "length max");
    }

    #[test]
    fn values_read_as_they_are_written() {
        assert_eq!(value(&json!("64KiB")), "64KiB");
        assert_eq!(value(&json!(2000)), "2000");
        assert_eq!(value(&json!(200_000)).replace('\u{202f}', " "), "200 000");
        assert_eq!(value(&json!({"uniform": [10, 100]})), "uniform 10, 100");
    }

    #[test]
    fn sizes_and_times_have_a_place_on_an_axis() {
        assert_eq!(number(&json!("64KiB")), Some(65_536.0));
        assert_eq!(number(&json!("250ms")), Some(0.25));
        assert_eq!(number(&json!("snappy")), None);
    }
}
