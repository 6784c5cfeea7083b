//! Conversion of text to values. Each kind of setting is a type here.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use stafett_groups::Migration;
use stafett_model::Durability;
use tracing_subscriber::filter::{LevelFilter, Targets};

use stafett_model::quantity;

type Range = Option<(u64, u64)>;

/// One kind of setting.
pub(crate) trait Kind {
    type Value;
    /// Short description of valid values.
    const SHAPE: &'static str;
    /// Formats a number of the range.
    const WRITE: fn(u64) -> String = |number| number.to_string();
    /// Returns a given text without secrets.
    const SHOW: fn(&str) -> String = str::to_owned;

    /// Parses a value. The error says what was expected.
    fn read(text: &str, range: Range) -> Result<Self::Value, String>;
}

/// Returns the number if it is within the range.
fn within<K: Kind>(number: Option<u64>, range: Range) -> Result<u64, String> {
    let (min, max) = range.unwrap_or((0, u64::MAX));
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        Some(_) => Err(format!("expected {} to {}", K::WRITE(min), K::WRITE(max))),
        None => Err(format!("expected {}", K::SHAPE)),
    }
}

/// `true` or `false`.
pub(crate) struct Switch;

impl Kind for Switch {
    type Value = bool;
    const SHAPE: &'static str = "true or false";

    fn read(text: &str, _: Range) -> Result<bool, String> {
        text.parse().map_err(|_| format!("expected {}", Self::SHAPE))
    }
}

/// A count.
pub(crate) struct Count;

impl Kind for Count {
    type Value = u64;
    const SHAPE: &'static str = "number";

    fn read(text: &str, range: Range) -> Result<u64, String> {
        within::<Self>(text.parse().ok(), range)
    }
}

/// A count, or `auto`.
pub(crate) struct AutoCount;

impl Kind for AutoCount {
    type Value = Option<u64>;
    const SHAPE: &'static str = "number or auto";

    fn read(text: &str, range: Range) -> Result<Option<u64>, String> {
        if text == "auto" {
            Ok(None)
        } else {
            within::<Self>(text.parse().ok(), range).map(Some)
        }
    }
}

/// A number of bytes.
pub(crate) struct Bytes;

impl Kind for Bytes {
    type Value = u64;
    const SHAPE: &'static str = "size";
    const WRITE: fn(u64) -> String = quantity::write_size;

    fn read(text: &str, range: Range) -> Result<u64, String> {
        within::<Self>(quantity::size(text), range)
    }
}

/// A number of bytes, or -1 for no limit.
pub(crate) struct BytesLimit;

impl Kind for BytesLimit {
    type Value = Option<u64>;
    const SHAPE: &'static str = "size or -1";
    const WRITE: fn(u64) -> String = quantity::write_size;

    fn read(text: &str, range: Range) -> Result<Option<u64>, String> {
        if text == "-1" {
            Ok(None)
        } else {
            within::<Self>(quantity::size(text), range).map(Some)
        }
    }
}

/// A duration.
pub(crate) struct Time;

impl Kind for Time {
    type Value = Duration;
    const SHAPE: &'static str = "duration";
    const WRITE: fn(u64) -> String = quantity::write_milliseconds;

    fn read(text: &str, range: Range) -> Result<Duration, String> {
        within::<Self>(quantity::milliseconds(text), range).map(Duration::from_millis)
    }
}

/// A duration, or -1 for no limit.
pub(crate) struct TimeLimit;

impl Kind for TimeLimit {
    type Value = Option<Duration>;
    const SHAPE: &'static str = "duration or -1";
    const WRITE: fn(u64) -> String = quantity::write_milliseconds;

    fn read(text: &str, range: Range) -> Result<Option<Duration>, String> {
        if text == "-1" {
            Ok(None)
        } else {
            within::<Self>(quantity::milliseconds(text), range)
                .map(Duration::from_millis)
                .map(Some)
        }
    }
}

/// A folder.
pub(crate) struct Folder;

impl Kind for Folder {
    type Value = PathBuf;
    const SHAPE: &'static str = "dir";

    fn read(text: &str, _: Range) -> Result<PathBuf, String> {
        if text.is_empty() {
            Err("expected the path of a folder".to_owned())
        } else {
            Ok(text.into())
        }
    }
}

/// A text, which may be empty.
pub(crate) struct Words;

impl Kind for Words {
    type Value = String;
    const SHAPE: &'static str = "text";

    fn read(text: &str, _: Range) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// A folder, or empty.
pub(crate) struct OptionalFolder;

impl Kind for OptionalFolder {
    type Value = Option<PathBuf>;
    const SHAPE: &'static str = "dir or empty";

    fn read(text: &str, _: Range) -> Result<Self::Value, String> {
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// `HOST:PORT`, where the port may be 0.
pub(crate) struct Listen;

impl Kind for Listen {
    type Value = String;
    const SHAPE: &'static str = "host:port";

    fn read(text: &str, _: Range) -> Result<String, String> {
        host_port(text).map(|_| text.to_owned())
    }
}

/// `HOST:PORT`, or empty.
pub(crate) struct OptionalListen;

impl Kind for OptionalListen {
    type Value = Option<String>;
    const SHAPE: &'static str = "host:port or empty";

    fn read(text: &str, range: Range) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        Listen::read(text, range).map(Some)
    }
}

/// `HOST:PORT` for clients to connect to, or empty.
pub(crate) struct Advertised;

impl Kind for Advertised {
    type Value = Option<(String, u16)>;
    const SHAPE: &'static str = "host:port or empty";

    fn read(text: &str, _: Range) -> Result<Self::Value, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let (host, port) = host_port(text)?;
        if port == 0 {
            return Err("clients cannot connect to port 0".to_owned());
        }
        Ok(Some((host, port)))
    }
}

/// Splits `HOST:PORT`; an IPv6 address loses its brackets.
pub(crate) fn host_port(text: &str) -> Result<(String, u16), String> {
    let expected = || "expected HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let port = port.parse().map_err(|_| expected())?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bare.unwrap_or(host) {
        "" => Err(expected()),
        host if bare.is_none() && host.contains(':') => Err(expected()),
        host if host.contains(char::is_whitespace) => Err(expected()),
        host => Ok((host.to_owned(), port)),
    }
}

/// A durability level.
pub(crate) struct Level;

impl Kind for Level {
    type Value = Durability;
    const SHAPE: &'static str = "level";

    fn read(text: &str, _: Range) -> Result<Durability, String> {
        text.parse()
            .map_err(|_| "expected memory, os, interval:RECORDS,MILLISECONDS or sync".to_owned())
    }
}

/// Policy for groups that move between protocols.
pub(crate) struct MigrationPolicy;

impl Kind for MigrationPolicy {
    type Value = Migration;
    const SHAPE: &'static str = "policy";

    fn read(text: &str, _: Range) -> Result<Migration, String> {
        let named = Migration::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| "expected bidirectional, upgrade, downgrade or disabled".to_owned())
    }
}

/// Behaviour of a listener under overload. True: it sheds load.
pub(crate) struct OnOverload;

impl Kind for OnOverload {
    type Value = bool;
    const SHAPE: &'static str = "backpressure or shed";

    fn read(text: &str, _: Range) -> Result<bool, String> {
        match text {
            "backpressure" => Ok(false),
            "shed" => Ok(true),
            _ => Err("expected backpressure or shed".to_owned()),
        }
    }
}

/// A part of a whole.
pub(crate) struct Share;

impl Kind for Share {
    type Value = f64;
    const SHAPE: &'static str = "0 to 1";

    fn read(text: &str, _: Range) -> Result<f64, String> {
        let share = text.parse().ok();
        share
            .filter(|share| (0.0..=1.0).contains(share))
            .ok_or_else(|| "expected 0 to 1".to_owned())
    }
}

/// Filter of log targets and levels.
pub(crate) struct LogFilter;

impl Kind for LogFilter {
    type Value = String;
    const SHAPE: &'static str = "filter";

    fn read(text: &str, _: Range) -> Result<String, String> {
        // A bare word that is not a level would be taken for a log target.
        let known = |item: &str| item.contains('=') || LevelFilter::from_str(item.trim()).is_ok();
        if text.split(',').all(known) && Targets::from_str(text).is_ok() {
            Ok(text.to_owned())
        } else {
            Err(
                "expected off, error, warn, info, debug or trace, or such as info,stafett_net=debug"
                    .to_owned(),
            )
        }
    }
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl Kind for LogFormat {
    type Value = Self;
    const SHAPE: &'static str = "text or json";

    fn read(text: &str, _: Range) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected text or json".to_owned()),
        }
    }
}
