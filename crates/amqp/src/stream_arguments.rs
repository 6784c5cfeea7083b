//! Arguments of stream declarations and of stream consumers.

use std::time::Duration;

use bytes::Bytes;
use stafett_amqp_wire::methods::queue;
use stafett_amqp_wire::{Table, Value};
use stafett_messaging::readers::HeaderFilter;
use stafett_topics::StartPosition;
use stafett_topics::TopicSettings;

use crate::arguments::{Argument, QueueType};
use crate::exception::Exception;
use crate::{error, known_arguments};

/// Largest segment size that RabbitMQ accepts.
const SEGMENT_BYTES_MAX: u64 = 3_000_000_000;
/// Sizes that RabbitMQ accepts for its filter per chunk.
const FILTER_BYTES: std::ops::RangeInclusive<u64> = 16..=255;
/// Header that consumers filter by.
const FILTER_VALUE: &str = "x-stream-filter-value";

/// Returns the settings of a stream's topic. Without limits, everything is retained.
pub(crate) fn settings(arguments: &Table, what: &str) -> Result<TopicSettings, Exception> {
    known_arguments::check(arguments, QueueType::Stream, what)?;
    let mut settings = TopicSettings {
        retention_age: Some(None),
        retention_bytes: Some(None),
        ..TopicSettings::default()
    };
    for (name, value) in arguments.iter() {
        let argument = Argument {
            name: &name,
            value: &value,
            what,
        };
        match name.as_ref() {
            "x-max-length-bytes" => settings.retention_bytes = Some(Some(argument.number(0)?)),
            "x-max-age" => settings.retention_age = Some(Some(age(&argument)?)),
            "x-stream-max-segment-size-bytes" => check_segments(&argument)?,
            "x-stream-filter-size-bytes" => check_filter(&argument)?,
            "x-stafett-topic" => return Err(not_of_streams(&name, what)),
            _ => argument.check_without_effect()?,
        }
    }
    Ok(settings)
}

fn check_segments(argument: &Argument<'_>) -> Result<(), Exception> {
    if argument.number(0)? <= SEGMENT_BYTES_MAX {
        return Ok(());
    }
    let text = "Exceeded max value for x-stream-max-segment-size-bytes";
    Err(Exception::precondition(text))
}

/// Checks the filter size. It has no effect, because messages are compared one by one.
fn check_filter(argument: &Argument<'_>) -> Result<(), Exception> {
    if FILTER_BYTES.contains(&argument.number(0)?) {
        return Ok(());
    }
    let text = "Invalid value for  x-stream-filter-size-bytes";
    Err(Exception::precondition(text))
}

fn not_of_streams(argument: &str, what: &str) -> Exception {
    known_arguments::of_another_type(argument, QueueType::Stream, what)
}

/// Refuses properties that streams do not support.
pub(crate) fn check_properties(method: &queue::Declare, what: &str) -> Result<(), Exception> {
    let wrong = [
        ("auto-delete", method.auto_delete),
        ("exclusive-owner", method.exclusive),
        ("non-durable", !method.durable),
    ];
    match wrong.iter().find(|(_, is_wrong)| *is_wrong) {
        Some((property, _)) => Err(Exception::precondition(format!(
            "invalid property '{property}' for {what}"
        ))),
        None => Ok(()),
    }
}

/// Checks the limits of a declaration against those of a topic that was not created by a declaration.
pub(crate) fn check_retention(
    said: &TopicSettings,
    kept: stafett_topics::Retention,
    what: &str,
) -> Result<(), Exception> {
    let told = |value: Option<u128>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    let ms = |age: Option<Duration>| age.map(|age| age.as_millis());
    let bytes = |bytes: Option<u64>| bytes.map(u128::from);
    let pairs = [
        ("x-max-age", ms(said.retention_age.flatten()), ms(kept.age)),
        (
            "x-max-length-bytes",
            bytes(said.retention_bytes.flatten()),
            bytes(kept.bytes),
        ),
    ];
    // Limits that are not given always match.
    let wrong = pairs
        .into_iter()
        .find(|(_, said, kept)| said.is_some() && said != kept);
    match wrong {
        Some((name, said, kept)) => Err(error::inequivalent(&(name.into(), told(said), told(kept)), what)),
        None => Ok(()),
    }
}

/// Returns the position at which a consumer begins.
pub(crate) fn start(arguments: &Table, now_ms: i64, what: &str) -> Result<StartPosition, Exception> {
    if arguments.get("x-priority").is_some() {
        return Err(not_of_streams("x-priority", what));
    }
    let Some(value) = arguments.get("x-stream-offset") else {
        return Ok(StartPosition::Next);
    };
    let argument = Argument {
        name: "x-stream-offset",
        value: &value,
        what,
    };
    if let Value::Timestamp(seconds) = value {
        let ms = i64::try_from(seconds)
            .ok()
            .and_then(|seconds| seconds.checked_mul(1000));
        return Ok(StartPosition::Time(ms.unwrap_or(i64::MAX)));
    }
    match (value.text(), value.integer()) {
        (Some("first"), _) => Ok(StartPosition::First),
        (Some("last"), _) => Ok(StartPosition::Last),
        (Some("next"), _) => Ok(StartPosition::Next),
        (Some(text), _) => match interval(text) {
            Some(ago) => {
                let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                Ok(StartPosition::Time(now_ms.saturating_sub(ago).max(0)))
            }
            None => Err(argument.wrong(&format!(
                "{{invalid_stream_offset_arg,{{longstr,<<\"{text}\">>}}}}"
            ))),
        },
        (None, Some(offset)) => Ok(StartPosition::Offset(u64::try_from(offset).unwrap_or(0))),
        (None, None) => Err(argument.wrong(&format!(
            "{{invalid_stream_offset_arg,{{{},…}}}}",
            value.type_name()
        ))),
    }
}

/// Returns the filter of a consumer. Values other than texts are ignored, as in RabbitMQ.
pub(crate) fn wanted(arguments: &Table) -> Option<HeaderFilter> {
    // Copied, because they outlive the frame that they arrived in.
    let text = |value: Value| {
        let Value::LongString(text) = value else {
            return None;
        };
        Some(Bytes::copy_from_slice(&text))
    };
    let filter = arguments.get("x-stream-filter")?;
    let values: Vec<Bytes> = if let Value::Array(values) = filter {
        values.iter().filter_map(text).collect()
    } else {
        vec![text(filter)?]
    };
    let also_without = arguments.get("x-stream-match-unfiltered") == Some(Value::Bool(true));
    Some(HeaderFilter::new(FILTER_VALUE, values, also_without))
}

/// Returns the requested partition. `None` if none is given.
pub(crate) fn partition(arguments: &Table, partitions: u32, what: &str) -> Result<Option<u32>, Exception> {
    let Some(value) = arguments.get("x-stafett-partition") else {
        return Ok(None);
    };
    let argument = Argument {
        name: "x-stafett-partition",
        value: &value,
        what,
    };
    let number = argument.number(0)?;
    match u32::try_from(number) {
        Ok(number) if number < partitions => Ok(Some(number)),
        Ok(_) | Err(_) => Err(argument.wrong(&format!("there are {partitions} partitions, from 0 on"))),
    }
}

fn age(argument: &Argument<'_>) -> Result<Duration, Exception> {
    let Some(text) = argument.value.text() else {
        let kind = argument.value.type_name();
        return Err(argument.wrong(&format!("{{unacceptable_type,{kind}}}")));
    };
    interval(text).ok_or_else(|| argument.wrong("invalid_max_age"))
}

/// Parses a time with RabbitMQ's units: a year has 365 days, a month 30.
fn interval(text: &str) -> Option<Duration> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "Y" => 365 * 86_400,
        "M" => 30 * 86_400,
        "D" => 86_400,
        "h" => 3600,
        "m" => 60,
        "s" => 1,
        _ => return None,
    };
    let number: u64 = number.parse().ok().filter(|number| *number > 0)?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use stafett_amqp_wire::TableBuilder;

    use super::*;

    const WHAT: &str = "queue 's' in vhost '/'";

    #[test]
    fn arguments_become_the_settings_of_a_topic() {
        let table = TableBuilder::new()
            .with("x-queue-type", "stream")
            .with("x-max-age", "7D")
            .with("x-max-length-bytes", Value::I32(1_000_000))
            .with("x-stream-max-segment-size-bytes", Value::I32(500))
            .with("x-initial-cluster-size", Value::I32(1))
            .with("x-stream-filter-size-bytes", Value::I32(26))
            .finish();
        let settings = settings(&table, WHAT).unwrap();
        assert_eq!(settings.retention_age, Some(Some(Duration::from_hours(7 * 24))));
        assert_eq!(settings.retention_bytes, Some(Some(1_000_000)));
    }

    #[test]
    fn what_says_nothing_keeps_everything() {
        let settings = settings(&Table::default(), WHAT).unwrap();
        assert_eq!(
            (settings.retention_age, settings.retention_bytes),
            (Some(None), Some(None))
        );
    }

    #[test]
    fn intervals_have_a_number_and_a_unit() {
        let seconds = |text| interval(text).map(|interval| interval.as_secs());
        assert_eq!(
            ["1Y", "2M", "3D", "4h", "5m", "6s"].map(seconds),
            [31_536_000, 5_184_000, 259_200, 14_400, 300, 6].map(Some)
        );
        assert_eq!(
            ["", "h", "0h", "1", "1H", "1hh", "-1h", "99999999999999999999s"].map(seconds),
            [None; 8]
        );
    }

    #[test]
    fn what_streams_have_not_is_refused() {
        for (name, value) in [
            ("x-message-ttl", Value::I32(1)),
            ("x-max-length", Value::I32(1)),
            ("x-max-age", Value::from("7")),
            ("x-max-age", Value::I32(7)),
            ("x-max-length-bytes", Value::I32(-1)),
            ("x-stream-max-segment-size-bytes", Value::I64(3_000_000_001)),
            ("x-stream-filter-size-bytes", Value::I32(15)),
            ("x-stream-filter-size-bytes", Value::I32(256)),
        ] {
            let table = TableBuilder::new().with(name, value).finish();
            assert!(settings(&table, WHAT).is_err(), "{name}");
        }
    }

    #[test]
    fn consumers_choose_by_texts() {
        let text = |text: &'static str| Bytes::from_static(text.as_bytes());
        let from = |filter: Value, unfiltered: Value| {
            let table = TableBuilder::new()
                .with("x-stream-filter", filter)
                .with("x-stream-match-unfiltered", unfiltered)
                .finish();
            wanted(&table)
        };
        let one = |values: &[&'static str], also_without| {
            Some(HeaderFilter::new(
                FILTER_VALUE,
                values.iter().map(|value| text(value)),
                also_without,
            ))
        };
        assert_eq!(wanted(&Table::default()), None);
        assert_eq!(from("eu".into(), Value::Void), one(&["eu"], false));
        assert_eq!(from("eu".into(), Value::Bool(true)), one(&["eu"], true));
        assert_eq!(from("eu".into(), "true".into()), one(&["eu"], false));
        assert_eq!(from(Value::I32(1), Value::Bool(true)), None);
        let array = ["us".into(), Value::I32(1), "eu".into(), "us".into()];
        let array = Value::Array(array.into_iter().collect());
        assert_eq!(from(array, Value::Bool(false)), one(&["eu", "us"], false));
    }

    #[test]
    fn consumers_begin_where_they_say() {
        let from = |value: Value| {
            let table = TableBuilder::new().with("x-stream-offset", value).finish();
            start(&table, 5_000_000, WHAT).map_err(|exception| exception.text)
        };
        assert_eq!(from("first".into()), Ok(StartPosition::First));
        assert_eq!(from("last".into()), Ok(StartPosition::Last));
        assert_eq!(from("next".into()), Ok(StartPosition::Next));
        assert_eq!(from(Value::I64(7)), Ok(StartPosition::Offset(7)));
        assert_eq!(from(Value::Timestamp(7)), Ok(StartPosition::Time(7000)));
        assert_eq!(from("1h".into()), Ok(StartPosition::Time(1_400_000)));
        assert_eq!(start(&Table::default(), 0, WHAT), Ok(StartPosition::Next));
        assert!(from("soon".into()).unwrap_err().contains("x-stream-offset"));
        assert!(from(Value::Bool(true)).is_err());
    }
}
