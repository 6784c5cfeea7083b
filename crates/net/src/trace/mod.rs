//! The performance log: one line of JSON for each sampled request, with the time of each of its parts.
//!
//! - A counter decides, when the first byte of a request is seen, whether it is sampled: shares are exact, and
//!   a request that is not costs one addition.
//! - A thread of its own writes. What it cannot take in time is dropped and counted: the broker does not wait.
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
use std::thread::JoinHandle;
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
    share: u64,
    slow: Duration,
    count: AtomicU64,
    lines: SyncSender<Line>,
    written: Counter,
    dropped: Counter,
}

/// Writer of the log. It ends when the last [`Trace`] is dropped.
#[derive(Debug)]
pub struct Writer(JoinHandle<()>);

impl Writer {
    /// Waits until all lines are written.
    pub fn join(self) {
        // A panic of the writer has been reported.
        drop(self.0.join());
    }
}

impl Trace {
    /// Opens the first file, and starts the writer.
    ///
    /// # Errors
    /// If the folder cannot be made or written.
    pub fn start(settings: TraceSettings, registry: &mut Registry) -> io::Result<(Arc<Self>, Writer)> {
        let (lines, received) = sync_channel::<Line>(WAITING_MAX);
        let mut files = Files::open(&settings)?;
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
        let writer = std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            while let Ok(line) = received.recv() {
                let more = std::iter::from_fn(|| received.try_recv().ok());
                for line in std::iter::once(line).chain(more) {
                    if files.write(&line).is_err() {
                        failed.inc();
                    }
                }
                // A failure is that of the lines behind, too.
                drop(files.flush());
            }
        })?;
        let trace = Self {
            share: share_of_whole(settings.share),
            slow: settings.slow,
            count: AtomicU64::new(0),
            lines,
            written,
            dropped,
        };
        Ok((Arc::new(trace), Writer(writer)))
    }

    /// Decides whether the next request is sampled.
    #[inline]
    pub fn samples(&self) -> bool {
        let before = self.count.fetch_add(self.share, Ordering::Relaxed);
        before % WHOLE + self.share >= WHOLE
    }

    /// True if a request is written that is sampled or not, and took so long.
    #[inline]
    #[must_use]
    pub fn wants(&self, is_sampled: bool, took: Duration) -> bool {
        is_sampled || !self.slow.is_zero() && took > self.slow
    }

    /// Gives a line to the writer, or drops it if too many wait.
    pub fn write(&self, line: Line) {
        match self.lines.try_send(line) {
            Ok(()) => self.written.inc(),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => self.dropped.inc(),
        };
    }
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
            let (trace, writer) =
                Trace::start(settings(dir.clone(), share), &mut Registry::default()).unwrap();
            let sampled = (0..of).filter(|_| trace.samples()).count();
            assert_eq!(sampled, expected, "{share}");
            drop(trace);
            writer.join();
            std::fs::remove_dir_all(dir).unwrap();
        }
    }

    #[test]
    fn slow_requests_are_written_whatever_the_share_and_the_file_begins_with_the_settings() {
        let dir = folder("slow");
        let (trace, writer) = Trace::start(settings(dir.clone(), 0.0), &mut Registry::default()).unwrap();
        assert!(!trace.wants(false, Duration::from_millis(10)));
        assert!(trace.wants(false, Duration::from_millis(11)));
        trace.write(Line {
            took: Duration::from_millis(11),
            name: "a\"b".into(),
            ..Line::of("request")
        });
        drop(trace);
        writer.join();
        let files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
        let [file] = files.as_slice() else { panic!("{files:?}") };
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""durability":"sync""#), "{text}");
        assert!(lines[1].contains(r#""took_us":11000,"action":"request","name":"a\"b""#), "{text}");
        assert_eq!(lines.len(), 2);
        std::fs::remove_dir_all(dir).unwrap();
    }
}
