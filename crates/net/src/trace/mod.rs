//! The performance log: one line of JSON for each sampled request, with the time of each of its parts.
//!
//! - A counter decides, when the first byte of a request is seen, whether it is sampled: shares are exact,
//!   and a request that is not costs one addition.
//! - A thread of its own writes. Lines that it cannot take in time are dropped and counted: the broker does
//!   not wait.
//! - Each file begins with the settings that matter. The oldest files go when all together are too large.
//!
//! ```text
//! {"t":"2026-11-22T16:00:00.123Z","took_us":132,"action":"request","name":"Produce","result":"ok","client":"127.0.0.1:4242",
//!  "connections":10,"parts":{"receive":4,"process":93,"store":26,"send":9},"bytes_in":120,"bytes_out":48,"request":"5f1c"}
//! ```

mod files;
mod line;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use self::files::Files;
pub use self::line::{Line, Parts};

/// Lines that may wait for the writer.
const WAITING_MAX: usize = 8192;
/// Denominator of shares.
const WHOLE: u64 = 1_000_000;

#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    pub dir: PathBuf,
    /// Part of the requests that is written, 0 to 1.
    pub share: f64,
    /// Requests that took longer are written in any case. Zero: not.
    pub slow: Duration,
    /// Bytes of all files together.
    pub bytes_max: u64,
    /// Settings for the first line of each file: names and values.
    pub head: Vec<(String, String)>,
}

/// The performance log.
#[derive(Debug)]
pub struct Trace {
    /// Share of the requests, of [`WHOLE`].
    share: AtomicU64,
    /// Time in microseconds. 0: none is slow.
    slow_us: AtomicU64,
    count: AtomicU64,
    entries: SyncSender<Entry>,
    written: Counter,
    dropped: Counter,
}

/// Input of the writer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "almost all are lines")]
enum Entry {
    Line(Line),
    /// Everything before it is written when this is dropped.
    Flush(SyncSender<()>),
}

impl Trace {
    /// Opens the first file, and starts the writer.
    ///
    /// # Errors
    /// If the folder cannot be made or written.
    pub fn start(settings: &TraceSettings, registry: &mut Registry) -> io::Result<Arc<Self>> {
        let (entries, received) = sync_channel::<Entry>(WAITING_MAX);
        let files = Files::open(settings)?;
        let failed = Counter::default();
        let registry = registry.sub_registry_with_prefix("trace");
        let (written, dropped) = (Counter::default(), Counter::default());
        registry.register("lines", "Lines for the performance log", written.clone());
        registry.register(
            "dropped_lines",
            "Lines that the writer of the performance log could not take in time",
            dropped.clone(),
        );
        registry.register(
            "failed_lines",
            "Lines that could not be written, as when the disk is full",
            failed.clone(),
        );
        let mut writer = Writer { files, failed };
        std::thread::Builder::new()
            .name("trace".to_owned())
            .spawn(move || {
                while let Ok(first) = received.recv() {
                    writer.write(first);
                    for entry in received.try_iter() {
                        writer.write(entry);
                    }
                    writer.flush();
                }
            })?;
        let trace = Self {
            share: AtomicU64::new(share_of_whole(settings.share)),
            slow_us: AtomicU64::new(micros(settings.slow)),
            count: AtomicU64::new(0),
            entries,
            written,
            dropped,
        };
        Ok(Arc::new(trace))
    }

    /// Decides whether the next request is sampled.
    #[inline]
    pub fn samples(&self) -> bool {
        let share = self.share.load(Ordering::Relaxed);
        let before = self.count.fetch_add(share, Ordering::Relaxed);
        before % WHOLE + share >= WHOLE
    }

    /// Changes the share of the requests that is written, and the time from which on a request is slow.
    pub fn set(&self, share: f64, slow: Duration) {
        self.share.store(share_of_whole(share), Ordering::Relaxed);
        self.slow_us.store(micros(slow), Ordering::Relaxed);
    }

    /// True if a request is written that is sampled or not, and took so long.
    #[inline]
    #[must_use]
    pub fn wants(&self, is_sampled: bool, took: Duration) -> bool {
        if is_sampled {
            return true;
        }
        let slow_us = self.slow_us.load(Ordering::Relaxed);
        slow_us > 0 && micros(took) > slow_us
    }

    /// Gives a line to the writer, or drops it if too many wait.
    pub fn write(&self, line: Line) {
        match self.entries.try_send(Entry::Line(line)) {
            Ok(()) => self.written.inc(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.dropped.inc(),
        };
    }

    /// Waits until the lines given so far are with the system, up to a time.
    pub fn flush(&self, limit: Duration) {
        let (done, waits) = sync_channel(1);
        if self.entries.try_send(Entry::Flush(done)).is_ok() {
            // Nothing is ever sent: the other end is dropped when it is done.
            let _ = waits.recv_timeout(limit);
        }
    }
}

/// The part of the log that runs on a thread of its own. It ends with the last [`Trace`].
#[derive(Debug)]
struct Writer {
    files: Files,
    failed: Counter,
}

impl Writer {
    fn write(&mut self, entry: Entry) {
        match entry {
            Entry::Line(line) => {
                if self.files.write(&line).is_err() {
                    self.failed.inc();
                }
            }
            Entry::Flush(done) => {
                self.flush();
                drop(done);
            }
        }
    }

    fn flush(&mut self) {
        // Lines that cannot be written are counted when the next one comes.
        drop(self.files.flush());
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share is 0 to 1"
)]
fn share_of_whole(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * WHOLE as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: PathBuf, share: f64) -> TraceSettings {
        TraceSettings {
            dir,
            share,
            slow: Duration::from_millis(10),
            bytes_max: 1 << 20,
            head: vec![("durability".to_owned(), "\"sync\"".to_owned())],
        }
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("stafett-trace-{name}-{}", std::process::id()))
    }

    #[test]
    fn shares_are_exact() {
        for (share, of, expected) in [
            (0.01, 10_000, 100),
            (1.0, 100, 100),
            (0.0, 1000, 0),
            (0.3, 1000, 300),
            (1.0 / 3.0, 3_000_000, 999_999),
            (7.0, 10, 10),
        ] {
            let dir = folder(&format!("share-{share}"));
            let trace = Trace::start(&settings(dir.clone(), share), &mut Registry::default()).unwrap();
            let sampled = (0..of).filter(|_| trace.samples()).count();
            assert_eq!(sampled, expected, "{share}");
            trace.flush(Duration::from_secs(30));
            std::fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn slow_requests_are_written_whatever_the_share_and_the_file_begins_with_the_settings() {
        let dir = folder("slow");
        let trace = Trace::start(&settings(dir.clone(), 0.0), &mut Registry::default()).unwrap();
        assert!(!trace.wants(false, Duration::from_millis(10)));
        assert!(trace.wants(false, Duration::from_millis(11)));
        trace.set(0.5, Duration::ZERO);
        assert!(!trace.wants(false, Duration::from_millis(11)));
        assert_eq!((0..10).filter(|_| trace.samples()).count(), 5);
        trace.write(Line {
            took: Duration::from_millis(11),
            name: "a\"b".into(),
            ..Line::of("request")
        });
        trace.flush(Duration::from_secs(30));
        let files: Vec<_> = std::fs::read_dir(&dir)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        let [file] = files.as_slice() else {
            panic!("{files:?}")
        };
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""durability":"sync""#), "{text}");
        assert!(
            lines[1].contains(r#""took_us":11000,"action":"request","name":"a\"b""#),
            "{text}"
        );
        assert_eq!(lines.len(), 2);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
