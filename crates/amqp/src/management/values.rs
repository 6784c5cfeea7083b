//! JSON to tables of AMQP and back, as RabbitMQ converts them, and arguments as they are shown.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Map, Number, Value, json};
use stafett_amqp_wire::{Array, Table, TableBuilder, Value as AmqpValue};

use super::call::short;
use super::refusal::Refusal;

/// Nesting of arguments; tables of AMQP may be nested a little deeper.
const DEPTH_MAX: usize = 32;

/// Converts the arguments of a declaration. No arguments may also be an empty list, as PHP writes them.
pub(super) fn arguments(given: Option<&Value>) -> Result<Table, Refusal> {
    match given {
        None | Some(Value::Null) => Ok(Table::default()),
        Some(Value::Array(items)) if items.is_empty() => Ok(Table::default()),
        Some(Value::Object(fields)) => table(fields, 0),
        Some(_) => Err(Refusal::bad_request("arguments_not_an_object")),
    }
}

/// Converts an object.
pub(super) fn table(fields: &Map<String, Value>, depth: usize) -> Result<Table, Refusal> {
    let mut table = TableBuilder::new();
    for (name, value) in fields {
        table.push(short(name, "argument")?, &amqp(value, depth + 1)?);
    }
    Ok(table.finish())
}

fn amqp(value: &Value, depth: usize) -> Result<AmqpValue, Refusal> {
    if depth > DEPTH_MAX {
        return Err(Refusal::bad_request("nested_too_deep"));
    }
    Ok(match value {
        Value::Null => return Err(Refusal::bad_request("null_not_allowed")),
        Value::Bool(value) => AmqpValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => AmqpValue::I64(whole),
            None => AmqpValue::F64(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => AmqpValue::LongString(Bytes::copy_from_slice(text.as_bytes())),
        Value::Array(items) => {
            let items = items.iter().map(|item| amqp(item, depth + 1));
            AmqpValue::Array(items.collect::<Result<Array, Refusal>>()?)
        }
        Value::Object(fields) => AmqpValue::Table(table(fields, depth)?),
    })
}

/// Returns the fields of an object.
pub(super) fn fields(object: Value) -> Map<String, Value> {
    if let Value::Object(fields) = object {
        fields
    } else {
        Map::new()
    }
}

/// Shows a table.
pub(super) fn shown(table: &Table) -> Value {
    Value::Object(
        table
            .iter()
            .map(|(name, value)| (name.to_string(), json(&value)))
            .collect(),
    )
}

fn json(value: &AmqpValue) -> Value {
    let float = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match value {
        AmqpValue::Void => Value::Null,
        AmqpValue::Bool(value) => json!(value),
        AmqpValue::F32(number) => float(f64::from(*number)),
        AmqpValue::F64(number) => float(*number),
        AmqpValue::Decimal(places, digits) => float(f64::from(*digits) / 10_f64.powi(i32::from(*places))),
        AmqpValue::Timestamp(seconds) => json!(seconds),
        AmqpValue::LongString(bytes) | AmqpValue::Bytes(bytes) => json!(String::from_utf8_lossy(bytes)),
        AmqpValue::Array(items) => items.iter().map(|item| json(&item)).collect(),
        AmqpValue::Table(table) => shown(table),
        AmqpValue::I8(_)
        | AmqpValue::U8(_)
        | AmqpValue::I16(_)
        | AmqpValue::U16(_)
        | AmqpValue::I32(_)
        | AmqpValue::U32(_)
        | AmqpValue::I64(_) => json!(value.integer()),
    }
}

/// Shows stored arguments.
pub(super) fn stored(arguments: &Bytes) -> Value {
    shown(&Table::decode(arguments.clone()).unwrap_or_default())
}

/// Returns a short text that differs where arguments differ.
pub(super) fn digest(arguments: &[u8]) -> String {
    // FNV-1a of 32 bits.
    let hash = arguments.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    URL_SAFE_NO_PAD.encode(hash.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_as_they_were() {
        let given = json!({
            "text": "é", "whole": -7, "large": 12_345_678_901_234_i64, "float": 1.5, "is": true,
            "list": [1, "x", { "a": [] }], "table": { "b": "c" },
        });
        let table = arguments(Some(&given)).unwrap();
        assert_eq!(shown(&table), given);
        assert_eq!(stored(table.as_bytes()), given);
    }

    #[test]
    fn what_a_table_cannot_have_is_refused() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        for bad in [
            json!({ "a": null }),
            json!({ "a": [null] }),
            json!({ "a": deep }),
            json!({ "x".repeat(256): 1 }),
            json!("text"),
            json!(7),
            json!([1]),
        ] {
            assert!(arguments(Some(&bad)).is_err(), "{bad}");
        }
        for empty in [None, Some(&json!([])), Some(&json!({})), Some(&Value::Null)] {
            assert!(arguments(empty).unwrap().is_empty());
        }
    }
}
