//! One line of the performance log.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A timed action.
#[derive(Debug, Clone)]
pub struct Line {
    /// Time of its end.
    pub at: SystemTime,
    pub took: Duration,
    /// `request`, `append` or `sync`.
    pub action: &'static str,
    pub name: Cow<'static, str>,
    pub result: Cow<'static, str>,
    /// The client's name or address. Empty: there is none.
    pub client: String,
    /// Open connections of the listener.
    pub connections: i64,
    pub parts: Parts,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// Messages of a batch; 0 if there is none.
    pub messages: u64,
    /// Number of an HTTP request, as in `Stafett-Request-Id`; 0 if there is none.
    pub request: u64,
}

/// Times of the parts of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// From its first byte to its last.
    pub receive: Duration,
    pub process: Duration,
    /// Waiting for storage.
    pub store: Duration,
    /// From the answer being ready to its last byte being with the system.
    pub send: Duration,
}

impl Line {
    /// Returns a line of an action that ends now.
    #[must_use]
    pub fn of(action: &'static str) -> Self {
        Self {
            at: SystemTime::now(),
            took: Duration::ZERO,
            action,
            name: Cow::Borrowed(""),
            result: Cow::Borrowed("ok"),
            client: String::new(),
            connections: 0,
            parts: Parts::default(),
            bytes_in: 0,
            bytes_out: 0,
            messages: 0,
            request: 0,
        }
    }

    /// Appends the line as JSON, with its end.
    pub(super) fn put(&self, out: &mut String) {
        out.push_str("{\"t\":\"");
        put_time(self.at, out);
        // Writing to a text does not fail.
        let _ = write!(
            out,
            "\",\"took_us\":{},\"action\":\"{}\"",
            self.took.as_micros(),
            self.action
        );
        put_text(",\"name\":", &self.name, out);
        put_text(",\"result\":", &self.result, out);
        if self.action == "request" {
            put_text(",\"client\":", &self.client, out);
            let Parts {
                receive,
                process,
                store,
                send,
            } = self.parts;
            let _ = write!(
                out,
                ",\"connections\":{},\"parts\":{{\"receive\":{},\"process\":{},\"store\":{},\"send\":{}}},\
                 \"bytes_in\":{},\"bytes_out\":{}",
                self.connections,
                receive.as_micros(),
                process.as_micros(),
                store.as_micros(),
                send.as_micros(),
                self.bytes_in,
                self.bytes_out
            );
        }
        if self.messages > 0 {
            let _ = write!(out, ",\"messages\":{}", self.messages);
        }
        if self.request > 0 {
            let _ = write!(out, ",\"request\":\"{:x}\"", self.request);
        }
        out.push_str("}\n");
    }
}

/// Appends a JSON text behind `before`.
pub(super) fn put_text(before: &str, text: &str, out: &mut String) {
    out.push_str(before);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

/// Appends a time as RFC 3339 in UTC, with milliseconds.
pub(super) fn put_time(at: SystemTime, out: &mut String) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let _ = write!(
        out,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    );
}

/// Returns the date of a day since 1970, in eras of 400 years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_164_799, "2024-02-28T23:59:59.000Z"),
            (1_795_363_200, "2026-11-22T16:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            let mut text = String::new();
            put_time(UNIX_EPOCH + Duration::from_secs(seconds), &mut text);
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_line_is_json_whatever_a_client_calls_itself() {
        let mut text = String::new();
        let line = Line {
            at: UNIX_EPOCH,
            client: "a\"\\\n\u{1}ü".to_owned(),
            name: "queues.receive".into(),
            messages: 3,
            request: 0x5f1c,
            ..Line::of("request")
        };
        line.put(&mut text);
        assert_eq!(
            text,
            "{\"t\":\"1970-01-01T00:00:00.000Z\",\"took_us\":0,\"action\":\"request\",\"name\":\"queues.receive\",\
             \"result\":\"ok\",\"client\":\"a\\\"\\\\\\u000a\\u0001ü\",\"connections\":0,\
             \"parts\":{\"receive\":0,\"process\":0,\"store\":0,\"send\":0},\"bytes_in\":0,\"bytes_out\":0,\
             \"messages\":3,\"request\":\"5f1c\"}\n"
        );
    }
}
