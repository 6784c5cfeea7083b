//! Values: their kinds, how they compare, and how they are written.

use std::borrow::Cow;
use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;

use crate::paths::Name;

/// A value of an expression.
#[derive(Debug, Clone)]
pub enum Value<'r> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Cow<'r, str>),
    Bytes(Cow<'r, [u8]>),
    /// A list that an expression made.
    List(Vec<Self>),
    /// An object or a list, as its JSON text.
    Json(Cow<'r, str>),
    Time(Timestamp),
    Duration(SignedDuration),
}

/// Two kinds of values without an order.
pub(crate) struct NoOrder;

/// Levels of objects and lists that are compared.
const COMPARED_DEPTH_MAX: usize = 32;

/// 2^63.
const INT_END: f64 = 9_223_372_036_854_775_808.0;

impl<'r> Value<'r> {
    /// Returns the value of sound JSON text. `None` if a text in it is no text, as with half a surrogate.
    pub fn of_json(json: &'r str) -> Option<Self> {
        Some(match json.as_bytes().first()? {
            b'"' => Self::Text(text_of(json)?),
            b'{' | b'[' => Self::Json(Cow::Borrowed(json)),
            b't' => Self::Bool(true),
            b'f' => Self::Bool(false),
            b'n' => Self::Null,
            _ => match json.parse() {
                Ok(number) => Self::Int(number),
                Err(_) => Self::Double(json.parse().ok().filter(|number: &f64| number.is_finite())?),
            },
        })
    }

    /// Returns the value of bytes: a text if they are one.
    pub fn of_bytes(bytes: &'r [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(Cow::Borrowed(text)),
            Err(_) => Self::Bytes(Cow::Borrowed(bytes)),
        }
    }

    /// Returns the time that is as many milliseconds after 1970; null for a negative number.
    pub fn of_millis(millis: i64) -> Self {
        let time = Timestamp::from_millisecond(millis).ok();
        time.filter(|_| millis >= 0).map_or(Self::Null, Self::Time)
    }

    /// Returns the kind with its article, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Int(_) => "a whole number",
            Self::Double(_) => "a fraction",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Json(json) if json.starts_with('[') => "a list",
            Self::Json(_) => "an object",
            Self::Time(_) => "a time",
            Self::Duration(_) => "a duration",
        }
    }

    /// Returns the bytes that have to be looked at.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Double(_)
            | Self::Time(_)
            | Self::Duration(_) => 1,
            Self::Text(text) | Self::Json(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(items) => items.iter().map(|item| item.weight() + 1).sum(),
        }
    }

    /// Returns the value as JSON. `None` for fractions that JSON does not have. Bytes are base64.
    pub fn to_json(&self) -> Option<String> {
        let quoted = |text: &str| serde_json::to_string(text).ok();
        match self {
            Self::Null => Some("null".to_owned()),
            Self::Bool(it) => Some(it.to_string()),
            Self::Int(number) => Some(number.to_string()),
            Self::Double(number) => number.is_finite().then(|| serde_json::to_string(number).ok())?,
            Self::Text(text) => quoted(text),
            Self::Bytes(bytes) => quoted(&STANDARD.encode(bytes)),
            Self::List(items) => {
                let items: Option<Vec<String>> = items.iter().map(Self::to_json).collect();
                Some(format!("[{}]", items?.join(",")))
            }
            Self::Json(json) => Some(json.clone().into_owned()),
            Self::Time(time) => quoted(&time.to_string()),
            Self::Duration(duration) => quoted(&seconds(*duration)),
        }
    }

    /// True if two values are equal. Values of different kinds are not, but numbers are by their worth.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        equal(self, other, 0)
    }

    /// Returns the order of two values, if their kinds have one. NaN is before and behind nothing.
    pub(crate) fn order(&self, other: &Self) -> Result<Option<Ordering>, NoOrder> {
        Ok(match (self, other) {
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Int(one), Self::Double(other)) => order_mixed(*one, *other),
            (Self::Double(one), Self::Int(other)) => order_mixed(*other, *one).map(Ordering::reverse),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            (Self::Bytes(one), Self::Bytes(other)) => Some(one.cmp(other)),
            (Self::Bool(one), Self::Bool(other)) => Some(one.cmp(other)),
            (Self::Time(one), Self::Time(other)) => Some(one.cmp(other)),
            (Self::Duration(one), Self::Duration(other)) => Some(one.cmp(other)),
            _ => return Err(NoOrder),
        })
    }
}

/// Returns a text out of its JSON, without a copy unless it has escapes.
fn text_of(json: &str) -> Option<Cow<'_, str>> {
    let inside = json.strip_prefix('"')?.strip_suffix('"')?;
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(json).ok().map(Cow::Owned)
}

/// Returns a duration as CEL writes it, in seconds.
pub(crate) fn seconds(duration: SignedDuration) -> String {
    let nanos = duration.subsec_nanos().unsigned_abs();
    let sign = if duration.is_negative() { "-" } else { "" };
    let whole = duration.as_secs().unsigned_abs();
    if nanos == 0 {
        return format!("{sign}{whole}s");
    }
    let fraction = format!("{nanos:09}");
    format!("{sign}{whole}.{}s", fraction.trim_end_matches('0'))
}

/// Returns the order of a whole number and a fraction, exactly.
fn order_mixed(int: i64, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double >= INT_END {
        return Some(Ordering::Less);
    }
    if double < -INT_END {
        return Some(Ordering::Greater);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is within the range of i64")]
    let whole = double.trunc() as i64;
    let fraction = double.fract();
    Some(
        int.cmp(&whole)
            .then_with(|| 0.0.partial_cmp(&fraction).unwrap_or(Ordering::Equal)),
    )
}

fn equal(one: &Value<'_>, other: &Value<'_>, depth: usize) -> bool {
    if let Ok(order) = one.order(other) {
        return order == Some(Ordering::Equal);
    }
    if depth > COMPARED_DEPTH_MAX {
        return false;
    }
    match (one, other) {
        (Value::Null, Value::Null) => true,
        (Value::List(_) | Value::Json(_), Value::List(_) | Value::Json(_)) => {
            match (fields(one), fields(other)) {
                (Some(one), Some(other)) => return equal_fields(&one, &other, depth),
                (None, None) => {}
                _ => return false,
            }
            let (Some(one), Some(other)) = (items(one), items(other)) else {
                return false;
            };
            one.len() == other.len()
                && one
                    .iter()
                    .zip(&other)
                    .all(|(one, other)| equal(one, other, depth + 1))
        }
        _ => false,
    }
}

type ByName<'v> = std::collections::BTreeMap<Cow<'v, str>, &'v RawValue>;

fn equal_fields(one: &ByName<'_>, other: &ByName<'_>, depth: usize) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).all(|((name, one), (other_name, other))| {
            let values = (Value::of_json(one.get()), Value::of_json(other.get()));
            name == other_name && matches!(values, (Some(one), Some(other)) if equal(&one, &other, depth + 1))
        })
}

/// Returns the fields of an object.
fn fields<'v>(value: &'v Value<'_>) -> Option<ByName<'v>> {
    struct Read<'v>(ByName<'v>);
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Read<'de>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = ByName::new();
            while let Some((Name(name), raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                fields.insert(name, raw);
            }
            Ok(Read(fields))
        }
    }
    impl<'de> serde::Deserialize<'de> for Read<'de> {
        fn deserialize<D: serde::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
            reader.deserialize_map(Visitor)
        }
    }
    let Value::Json(json) = value else { return None };
    let read: Read<'v> = serde_json::from_str(json).ok()?;
    Some(read.0)
}

/// Returns the items of a list.
pub(crate) fn items<'v>(value: &'v Value<'_>) -> Option<Vec<Value<'v>>> {
    match value {
        Value::List(items) => Some(items.iter().map(borrowed).collect()),
        Value::Json(json) if json.starts_with('[') => {
            let raws: Vec<&'v RawValue> = serde_json::from_str(json).ok()?;
            raws.into_iter().map(|raw| Value::of_json(raw.get())).collect()
        }
        _ => None,
    }
}

/// Returns true if an object has a field, and its number of fields.
pub(crate) fn has_field(value: &Value<'_>, name: &str) -> Option<(bool, usize)> {
    let fields = fields(value)?;
    Some((fields.contains_key(name), fields.len()))
}

fn borrowed<'v>(value: &'v Value<'_>) -> Value<'v> {
    match value {
        Value::Null => Value::Null,
        Value::Bool(it) => Value::Bool(*it),
        Value::Int(number) => Value::Int(*number),
        Value::Double(number) => Value::Double(*number),
        Value::Text(text) => Value::Text(Cow::Borrowed(text)),
        Value::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
        Value::List(items) => Value::List(items.iter().map(borrowed).collect()),
        Value::Json(json) => Value::Json(Cow::Borrowed(json)),
        Value::Time(time) => Value::Time(*time),
        Value::Duration(duration) => Value::Duration(*duration),
    }
}
