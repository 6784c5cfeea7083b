//! Lines for people about a load: what went wrong, and when. What is said many times is said a few times.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_model::Lock;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The same is said so often.
const ALIKE_MAX: u64 = 3;
/// Different things of which it is known how often they were said.
const DIFFERENT_MAX: usize = 1000;
/// Longer lines are cut off.
const LINE_BYTES_MAX: usize = 1000;

/// Where lines go. Cheap to clone; by default nobody listens.
#[derive(Debug, Clone, Default)]
pub struct Log(Option<Arc<Inside>>);

#[derive(Debug)]
struct Inside {
    started: Instant,
    to: mpsc::Sender<String>,
    books: Lock<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// How often each was said.
    said: BTreeMap<String, u64>,
    /// How many lines nobody took.
    untold: u64,
}

impl Log {
    /// Lines go to `to` as long as there is room.
    pub fn new(to: mpsc::Sender<String>) -> Self {
        Self(Some(Arc::new(Inside {
            started: Instant::now(),
            to,
            books: Lock::default(),
        })))
    }

    /// Says what went on, since the log was made.
    pub fn say(&self, what: &str) {
        let Some(inside) = &self.0 else { return };
        let line = cut(what);
        let mut books = inside.books.lock();
        if books.said.len() >= DIFFERENT_MAX && !books.said.contains_key(&line) {
            books.untold += 1;
            return;
        }
        let at = inside.started.elapsed().as_secs_f64();
        let mut told = format!("{at:10.3} s  {line}");
        let times = books.said.entry(line).or_default();
        *times += 1;
        if *times > ALIKE_MAX {
            return;
        }
        if *times == ALIKE_MAX {
            told.push_str(" (and so on)");
        }
        if inside.to.try_send(told).is_err() {
            books.untold += 1;
        }
    }

    /// The last line: what was not said one by one.
    pub fn end(&self) {
        let Some(inside) = &self.0 else { return };
        let untold = {
            let books = inside.books.lock();
            let alike = books.said.values().map(|times| times.saturating_sub(ALIKE_MAX));
            books.untold + alike.sum::<u64>()
        };
        if untold > 0 {
            // With the way full there are lines enough.
            let _ = inside
                .to
                .try_send(format!("{untold} lines more, alike or too many"));
        }
    }
}

/// One line of a length that can be read.
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
        let (to, mut lines) = mpsc::channel(10);
        let log = Log::new(to);
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        for _ in 0..100 {
            log.say("producers: the connection\nended");
        }
        log.say("consumers: nothing");
        log.end();
        let mut said = Vec::new();
        while let Ok(line) = lines.try_recv() {
            said.push(line);
        }
        assert_eq!(
            said,
            [
                "     1.500 s  producers: the connection ended",
                "     1.500 s  producers: the connection ended",
                "     1.500 s  producers: the connection ended (and so on)",
                "     1.500 s  consumers: nothing",
                "97 lines more, alike or too many",
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_takes_no_more_than_it_may_whatever_is_said() {
        let (to, mut lines) = mpsc::channel(5);
        let log = Log::new(to);
        for number in 0..5000 {
            log.say(&format!("{number} {}", "x".repeat(5000)));
        }
        assert!(
            lines
                .recv()
                .await
                .is_some_and(|line| line.len() < LINE_BYTES_MAX + 50)
        );
        log.end();
        while lines.len() > 1 {
            lines.recv().await;
        }
        assert_eq!(lines.recv().await.unwrap(), "4995 lines more, alike or too many");
        Log::default().say("nobody listens");
    }
}
