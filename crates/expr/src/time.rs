//! Parts of times, in a zone.

use jiff::civil::{DateTime, Weekday};
use jiff::tz::{Offset, TimeZone};

use crate::error::Fault;

/// A part of a time, as CEL counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Year,
    /// From 0.
    Month,
    /// Of the month, from 0.
    DayOfMonth,
    /// Of the month, from 1.
    Date,
    /// Sunday is 0.
    DayOfWeek,
    /// From 0.
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

impl Part {
    pub(crate) fn of(self, time: DateTime) -> i64 {
        match self {
            Self::Year => time.year().into(),
            Self::Month => i64::from(time.month()) - 1,
            Self::DayOfMonth => i64::from(time.day()) - 1,
            Self::Date => time.day().into(),
            Self::DayOfWeek => time.weekday().since(Weekday::Sunday).into(),
            Self::DayOfYear => i64::from(time.day_of_year()) - 1,
            Self::Hours => time.hour().into(),
            Self::Minutes => time.minute().into(),
            Self::Seconds => time.second().into(),
            Self::Milliseconds => time.millisecond().into(),
        }
    }
}

/// A local time or its bucket, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// `2026-11-22T16:00:00`.
    Time,
    /// `2026-11-22`.
    Day,
    /// `2026-W47`, as in ISO 8601.
    Week,
    /// `2026-11`.
    Month,
}

impl Local {
    pub(crate) fn of(self, time: DateTime) -> String {
        match self {
            Self::Time => time.to_string(),
            Self::Day => time.date().to_string(),
            Self::Week => {
                let week = time.date().iso_week_date();
                format!("{:04}-W{:02}", week.year(), week.week())
            }
            Self::Month => format!("{:04}-{:02}", time.year(), time.month()),
        }
    }
}

/// Returns a time zone by its name (`Europe/Stockholm`), or by its offset (`+01:00`).
pub fn zone(name: &str) -> Result<TimeZone, Fault> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let digits = name.strip_prefix(['+', '-']).unwrap_or(name);
    if let Some((hours, minutes)) = digits.split_once(':') {
        let whole = |text: &str, max: i32| {
            let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<i32>()
                .ok()
                .filter(|number| is_plain && *number <= max)
        };
        let (hours, minutes) = whole(hours, 23).zip(whole(minutes, 59)).ok_or(Fault::Zone)?;
        let seconds = (hours * 60 + minutes) * 60;
        let signed = if name.starts_with('-') { -seconds } else { seconds };
        let offset = Offset::from_seconds(signed).map_err(|_| Fault::Zone)?;
        return Ok(TimeZone::fixed(offset));
    }
    TimeZone::get(name).map_err(|_| Fault::Zone)
}
