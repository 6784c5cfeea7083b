//! Times of day in which a sink leaves its store alone. Pure; the clock is an argument.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use stafett_expr::zone;

/// Wait after which the clock is looked at again: it may be set meanwhile, or go to summer time.
const LOOK_MS: u64 = 60_000;
const DAY_MS: i64 = 86_400_000;

/// A time of day, such as `22:00-06:00 Europe/Stockholm`. The end is not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quiet {
    from: Time,
    to: Time,
    zone: TimeZone,
}

impl Quiet {
    /// Reads `HH:MM-HH:MM`, with a zone behind it; the zone is UTC by default.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (times, name) = text.split_once(' ').unwrap_or((text, "UTC"));
        let (from, to) = times.split_once('-')?;
        let (from, to) = (time(from)?, time(to)?);
        let zone = zone(name.trim()).ok()?;
        (from != to).then_some(Self { from, to, zone })
    }

    /// Returns the time until it is over, at most a minute; 0 outside of it.
    fn left_ms(&self, at: Timestamp) -> u64 {
        let now = self.zone.to_datetime(at).time();
        let is_within = if self.from < self.to {
            self.from <= now && now < self.to
        } else {
            self.from <= now || now < self.to
        };
        if !is_within {
            return 0;
        }
        let left = (ms_of(self.to) - ms_of(now)).rem_euclid(DAY_MS);
        u64::try_from(left).unwrap_or(0).clamp(1, LOOK_MS)
    }
}

/// Returns the time for which a store is left alone, as of now: at most a minute, 0 for not at all.
pub(crate) fn left_ms(quiet: &[Quiet], wall_ms: i64) -> u64 {
    if quiet.is_empty() {
        return 0;
    }
    let Ok(at) = Timestamp::from_millisecond(wall_ms) else {
        return 0;
    };
    quiet.iter().map(|quiet| quiet.left_ms(at)).max().unwrap_or(0)
}

fn time(text: &str) -> Option<Time> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |text: &str| text.parse().ok().filter(|_| text.len() == 2);
    Time::new(digits(hour)?, digits(minute)?, 0, 0).ok()
}

fn ms_of(time: Time) -> i64 {
    let seconds = i64::from(time.hour()) * 3600 + i64::from(time.minute()) * 60 + i64::from(time.second());
    seconds * 1000 + i64::from(time.millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(quiet: &str, at: &str) -> u64 {
        let at: Timestamp = at.parse().unwrap();
        left_ms(&[Quiet::parse(quiet).unwrap()], at.as_millisecond())
    }

    #[test]
    fn a_time_of_day_is_quiet_in_its_zone_also_over_midnight() {
        for (quiet, at, expected) in [
            ("08:00-09:00", "2026-11-22T07:59:59.999Z", 0),
            ("08:00-09:00", "2026-11-22T08:00:00Z", 60_000),
            ("08:00-09:00", "2026-11-22T08:59:59.250Z", 750),
            ("08:00-09:00", "2026-11-22T09:00:00Z", 0),
            ("08:00-09:00 Europe/Stockholm", "2026-11-22T07:30:00Z", 60_000),
            ("08:00-09:00 Europe/Stockholm", "2026-07-22T07:30:00Z", 0),
            ("22:00-06:00", "2026-11-22T23:59:59Z", 60_000),
            ("22:00-06:00", "2026-11-22T05:59:50Z", 10_000),
            ("22:00-06:00", "2026-11-22T12:00:00Z", 0),
        ] {
            assert_eq!(left(quiet, at), expected, "{quiet} {at}");
        }
        assert_eq!(left_ms(&[], 0), 0);
    }

    #[test]
    fn other_texts_are_no_times_of_day() {
        for text in [
            "",
            "8:00-9:00",
            "08:00",
            "08:00-08:00",
            "08:00-24:30",
            "08:00-09:00 Mars",
            "08-09",
        ] {
            assert_eq!(Quiet::parse(text), None, "{text}");
        }
    }
}
