//! Log of a load: errors and their times. A line that is repeated is written a few times and counted.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_model::Lock;
use tokio::time::Instant;

/// Copies of one line.
const ALIKE_MAX: u64 = 3;
const LINES_MAX: usize = 1000;
/// Longer lines are cut off.
const LINE_BYTES_MAX: usize = 1000;

/// Place for lines. Cheap to clone; by default they are dropped.
#[derive(Debug, Clone, Default)]
pub struct Log(Option<Arc<(Instant, Lock<Lines>)>>);

#[derive(Debug, Default)]
struct Lines {
    kept: Vec<String>,
    /// Number of copies of each of them.
    times: BTreeMap<String, u64>,
    /// Lines that were not kept.
    left_out: u64,
}

impl Log {
    /// Creates a log that keeps its lines, with their time since now.
    pub fn kept() -> Self {
        Self(Some(Arc::new((Instant::now(), Lock::default()))))
    }

    pub fn say(&self, what: &str) {
        let Some(inside) = &self.0 else { return };
        let (started, lines) = &**inside;
        let (at, line) = (started.elapsed().as_secs_f64(), cut(what));
        let mut lines = lines.lock();
        let before = lines.times.get(&line).copied().unwrap_or(0);
        if before >= ALIKE_MAX || lines.kept.len() >= LINES_MAX {
            lines.left_out += 1;
            return;
        }
        let more = if before + 1 == ALIKE_MAX {
            " (and so on)"
        } else {
            ""
        };
        lines.kept.push(format!("{at:10.3} s  {line}{more}"));
        lines.times.insert(line, before + 1);
    }

    /// Takes the lines; the last one counts those that were left out.
    pub fn take(&self) -> Vec<String> {
        let Some(inside) = &self.0 else {
            return Vec::new();
        };
        let Lines {
            mut kept, left_out, ..
        } = std::mem::take(&mut *inside.1.lock());
        kept.extend((left_out > 0).then(|| format!("{left_out} lines more, alike or too many")));
        kept
    }
}

/// Returns one line of a length that can be read.
fn cut(text: &str) -> String {
    let printable = text
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char });
    let mut bytes = 0;
    let short = printable.take_while(|char| {
        bytes += char.len_utf8();
        bytes <= LINE_BYTES_MAX
    });
    short.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_said_often_is_said_three_times_and_counted() {
        let log = Log::kept();
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        for _ in 0..100 {
            log.say("producers: the connection\nended");
        }
        log.say("consumers: nothing");
        assert_eq!(
            log.take(),
            [
                "     1.500 s  producers: the connection ended",
                "     1.500 s  producers: the connection ended",
                "     1.500 s  producers: the connection ended (and so on)",
                "     1.500 s  consumers: nothing",
                "97 lines more, alike or too many",
            ]
        );
        assert!(log.take().is_empty());
    }

    #[test]
    fn a_log_takes_no_more_than_it_may_whatever_is_said() {
        let log = Log::kept();
        for number in 0..5000 {
            log.say(&format!("{number} {}", "x".repeat(5000)));
        }
        let lines = log.take();
        assert!(lines.iter().all(|line| line.len() < LINE_BYTES_MAX + 50));
        assert_eq!(lines.last().unwrap(), "4000 lines more, alike or too many");
        Log::default().say("nobody listens");
    }
}
