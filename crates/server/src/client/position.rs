//! Positions in a topic, as given on the command line.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use stafett_kafka_client::{Client, ClientError, Place, Topic};

use stafett_model::quantity;

/// A position in each partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Earliest,
    Latest,
    Offset(i64),
    /// The first record with this timestamp (milliseconds since 1970) or a later one.
    Time(i64),
    /// This many records before the end.
    BeforeEnd(i64),
}

/// Short form of the syntax, for help texts.
pub(crate) const SHAPE: &str = "earliest|latest|OFFSET|-N|TIME";

/// Parses a position; `now` is in milliseconds since 1970.
pub(crate) fn read(text: &str, now: i64) -> Result<Position, String> {
    match text {
        "earliest" => return Ok(Position::Earliest),
        "latest" => return Ok(Position::Latest),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Ok(if number < 0 {
            Position::BeforeEnd(number.saturating_neg())
        } else {
            Position::Offset(number)
        });
    }
    time(text, now).map(Position::Time).ok_or_else(|| {
        "expected earliest, latest, an offset, -N (the last N records), a time such as 2026-11-21T14:00:00Z or \
         2026-11-21, or an age such as '10m ago'"
            .to_owned()
    })
}

/// Returns a time (RFC 3339, or a date in UTC) or an age as milliseconds since 1970.
pub(crate) fn time(text: &str, now: i64) -> Option<i64> {
    if text == "now" {
        return Some(now);
    }
    if let Some(age) = text.strip_suffix("ago") {
        let age = quantity::milliseconds(age.trim_end())?;
        return now.checked_sub(i64::try_from(age).ok()?);
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time.as_millisecond());
    }
    let date: Date = text.parse().ok()?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// Returns the current time in milliseconds since 1970.
pub(crate) fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Start and end offsets of a topic's partitions, by partition.
pub(crate) type Bounds = BTreeMap<i32, (i64, i64)>;

pub(crate) async fn bounds(client: &Client, topic: &Topic) -> Result<Bounds, ClientError> {
    bounds_to(client, topic, Place::End).await
}

/// Returns the bounds of a topic's partitions, up to `end`.
pub(crate) async fn bounds_to(client: &Client, topic: &Topic, end: Place) -> Result<Bounds, ClientError> {
    let starts = client.offsets(&[topic], Place::Start).await?;
    let ends = client.offsets(&[topic], end).await?;
    let numbers = topic.partitions.iter().map(|partition| partition.index);
    let starts = starts.into_iter().flatten().map(|offset| offset.unwrap_or(0));
    let ends = ends.into_iter().flatten().map(|offset| offset.unwrap_or(0));
    Ok(numbers.zip(starts.zip(ends)).collect())
}

/// Returns the offsets of `position` in the partitions of a topic, within their bounds.
pub(crate) async fn offsets(
    client: &Client,
    topic: &Topic,
    position: Position,
    bounds: &Bounds,
) -> Result<BTreeMap<i32, i64>, ClientError> {
    let by_time = match position {
        Position::Time(time) => client.offsets(&[topic], Place::Time(time)).await?,
        Position::Earliest | Position::Latest | Position::Offset(_) | Position::BeforeEnd(_) => Vec::new(),
    };
    let numbers = topic.partitions.iter().map(|partition| partition.index);
    let by_time: BTreeMap<i32, Option<i64>> = numbers.zip(by_time.into_iter().flatten()).collect();
    let offset = |(number, (start, end)): (&i32, &(i64, i64))| {
        let offset = match position {
            Position::Earliest => *start,
            Position::Latest => *end,
            Position::Offset(offset) => offset,
            Position::BeforeEnd(count) => end.saturating_sub(count),
            Position::Time(_) => by_time.get(number).copied().flatten().unwrap_or(*end),
        };
        (*number, offset.clamp(*start, (*end).max(*start)))
    };
    Ok(bounds.iter().map(offset).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let now = 1_763_733_600_000;
        for (text, position) in [
            ("earliest", Position::Earliest),
            ("latest", Position::Latest),
            ("0", Position::Offset(0)),
            ("-10", Position::BeforeEnd(10)),
            ("10m ago", Position::Time(now - 600_000)),
            ("2h ago", Position::Time(now - 7_200_000)),
            ("2025-11-21T14:00:00Z", Position::Time(now)),
            ("2025-11-21T15:00:00.5+01:00", Position::Time(now + 500)),
            ("2025-11-21", Position::Time(now - 14 * 3_600_000)),
        ] {
            assert_eq!(read(text, now), Ok(position), "{text}");
        }
        for text in ["", "soon", "10 m", "ago", "-", "1.5", "2025-13-01"] {
            assert!(
                read(text, now).unwrap_err().starts_with("expected earliest"),
                "{text}"
            );
        }
    }
}
