//! Places in a partition, in requests: an offset, `earliest`, `latest`, `-N`, or a time.

use jiff::Timestamp;
use stafett_http::{Code, Problem};
use stafett_journal::Visibility;
use stafett_model::LogId;
use stafett_topics::{Bounds, TopicCatalog};

/// Place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Earliest,
    Latest,
    Offset(u64),
    /// This many offsets before the end.
    BeforeEnd(u64),
    /// The first record with this timestamp (milliseconds since 1970) or a later one.
    Time(i64),
}

/// Form of a position, for people.
pub(crate) const SHAPE: &str =
    "earliest, latest, an offset, -N (the last N records), or a time such as 2026-11-22T16:00:00Z";

impl Position {
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text {
            "earliest" => return Some(Self::Earliest),
            "latest" => return Some(Self::Latest),
            _ => {}
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(count) = text.strip_prefix('-').filter(|count| is_number(count)) {
            return count.parse().ok().map(Self::BeforeEnd);
        }
        if is_number(text) {
            return text.parse().ok().map(Self::Offset);
        }
        time(text).map(Self::Time)
    }

    /// Reads the key `name` of a query.
    pub(crate) fn of(name: &str, text: &str) -> Result<Self, Problem> {
        Self::read(text).ok_or_else(|| Problem::bad_request(format!("{name} is {SHAPE}, not {text:?}")))
    }

    /// Returns the offset in a partition, within its bounds except for that of an offset.
    pub(crate) async fn offset(
        self,
        catalog: &TopicCatalog,
        log: LogId,
        bounds: Bounds,
        end: u64,
    ) -> Result<u64, Problem> {
        let start = bounds.start.0;
        Ok(match self {
            Self::Earliest => start,
            Self::Latest => end,
            Self::Offset(offset) => offset,
            Self::BeforeEnd(count) => end.saturating_sub(count).max(start),
            Self::Time(time) => {
                let found = catalog.offset_at_time(log, time).await;
                let found = found.map_err(|why| Problem::new(Code::Unreadable, why))?;
                found.unwrap_or(end).clamp(start, end.max(start))
            }
        })
    }
}

/// Returns the end of a partition's visible records.
pub(crate) fn end(bounds: Bounds, visibility: Visibility) -> u64 {
    match visibility {
        Visibility::Stored => bounds.end.0,
        Visibility::Committed => bounds.stable.0,
    }
}

/// Reads a time (RFC 3339) as milliseconds since 1970.
pub(crate) fn time(text: &str) -> Option<i64> {
    Some(text.parse::<Timestamp>().ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_or_refused() {
        for (text, expected) in [
            ("earliest", Some(Position::Earliest)),
            ("latest", Some(Position::Latest)),
            ("0", Some(Position::Offset(0))),
            ("-10", Some(Position::BeforeEnd(10))),
            ("1970-01-01T00:00:01.5Z", Some(Position::Time(1500))),
            ("1970-01-01T01:00:00+01:00", Some(Position::Time(0))),
            ("-", None),
            ("", None),
            ("+1", None),
            ("--1", None),
            ("18446744073709551616", None),
            ("-18446744073709551616", None),
            ("yesterday", None),
        ] {
            assert_eq!(Position::read(text), expected, "{text}");
        }
    }
}
