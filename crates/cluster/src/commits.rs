//! Commits of segments, in the order of writing.
//!
//! ```text
//! written ──take──▶ extent, inline ─────────────────▶ row ── committed
//!              └──▶ extent, to be put ──put──▶ object ─┘
//! ```
//!
//! A commit takes everything that was written to any segment so far. So the rows are in the order of writing,
//! whichever file a sync was called for, and a new owner finds a prefix of that. Several commits may be under
//! way: their puts run at the same time, their rows are inserted one after the other, and inline extents that
//! gathered meanwhile are one row.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::database::{Body, Link, ROW_BYTES_MAX, Row, nonce};
use crate::file::SharedFile;
use crate::objects::{Name, OBJECT_BYTES_MAX, Part};
use crate::transfer::at_once;
use crate::uplink::Uplink;

/// Commits under way at a time, if they put objects.
pub(crate) const COMMITS_MAX: usize = 8;
/// Seconds of the inline budget that may be used at once.
const BURST_SECONDS: u64 = 4;

/// Extents that are taken and not committed, in the order of writing.
#[derive(Debug)]
pub(crate) struct CommitQueue {
    /// The owner's last row.
    last: Link,
    extents: VecDeque<Extent>,
    /// Number of the first extent.
    first: u64,
    is_committing: bool,
    /// Newest segment that has a row.
    newest: Option<String>,
}

/// Bytes that were written to a segment in one piece.
#[derive(Debug)]
struct Extent {
    file: Arc<SharedFile>,
    name: String,
    from: u64,
    to: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Inline,
    ToBePut,
    /// The name is held until the database refers to it.
    Put(Part, #[expect(dead_code, reason = "held")] Name),
}

/// The next row.
struct NextRow {
    file: Arc<SharedFile>,
    name: String,
    from: u64,
    to: u64,
    part: Option<Part>,
    extents: usize,
}

/// When puts of commits begin.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    last_put: Option<Instant>,
    /// True if the last commit put objects.
    is_slow: bool,
}

/// Bytes that may be committed within the database.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: u64,
    bytes: u64,
    at: Instant,
}

impl Budget {
    pub(crate) fn new(per_second: u64) -> Self {
        Self {
            per_second,
            bytes: per_second.saturating_mul(BURST_SECONDS),
            at: Instant::now(),
        }
    }

    fn fill(&mut self) {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let more = self.per_second.saturating_mul(passed) / 1000;
        if more > 0 {
            let most = self.per_second.saturating_mul(BURST_SECONDS);
            self.bytes = self.bytes.saturating_add(more).min(most);
            self.at = now;
        }
    }

    fn has(&mut self, bytes: u64) -> bool {
        self.fill();
        self.bytes >= bytes
    }

    fn take(&mut self, bytes: u64) -> bool {
        let has = self.has(bytes);
        if has {
            self.bytes -= bytes;
        }
        has
    }
}

impl CommitQueue {
    pub(crate) fn new(fence: Link) -> Self {
        Self {
            last: fence,
            extents: VecDeque::new(),
            first: 0,
            is_committing: false,
            newest: None,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.extents.clear();
    }

    /// Returns the newest segment that has a row: no earlier one is written any more.
    pub(crate) fn newest(&self) -> Option<&str> {
        self.newest.as_deref()
    }

    /// Returns the number behind the last extent.
    fn end(&self) -> u64 {
        self.first + self.extents.len() as u64
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Extent> {
        let index = number.checked_sub(self.first)?;
        self.extents.get_mut(usize::try_from(index).ok()?)
    }

    /// Adds bytes of a segment, in pieces.
    fn push(&mut self, file: &Arc<SharedFile>, name: &str, from: u64, to: u64, is_inline: bool) {
        let most = if is_inline {
            ROW_BYTES_MAX
        } else {
            OBJECT_BYTES_MAX
        } as u64;
        let mut at = from;
        while at < to {
            let end = to.min(at + most);
            self.extents.push_back(Extent {
                file: Arc::clone(file),
                name: name.to_owned(),
                from: at,
                to: end,
                place: if is_inline { Place::Inline } else { Place::ToBePut },
            });
            at = end;
        }
    }

    /// Returns the next row, if its bytes can be committed: inline extents that follow each other are one.
    fn next_row(&self) -> Option<NextRow> {
        let first = self.extents.front()?;
        let mut row = NextRow {
            file: Arc::clone(&first.file),
            name: first.name.clone(),
            from: first.from,
            to: first.to,
            part: None,
            extents: 1,
        };
        match &first.place {
            Place::ToBePut => return None,
            Place::Put(part, _) => row.part = Some(part.clone()),
            Place::Inline => {
                for next in self.extents.iter().skip(1) {
                    let follows = matches!(next.place, Place::Inline)
                        && Arc::ptr_eq(&next.file, &first.file)
                        && next.from == row.to
                        && next.to - row.from <= ROW_BYTES_MAX as u64;
                    if !follows {
                        break;
                    }
                    row.to = next.to;
                    row.extents += 1;
                }
            }
        }
        Some(row)
    }

    /// Takes out the extents of a row that was committed.
    fn on_committed(&mut self, row: &NextRow, link: Link) {
        self.last = link;
        self.first += row.extents as u64;
        self.extents.drain(..row.extents.min(self.extents.len()));
        if self.newest.as_deref() != Some(&row.name) {
            self.newest = Some(row.name.clone());
        }
    }
}

impl Uplink {
    /// Commits everything that was written to segments.
    pub(crate) fn commit(&self) -> io::Result<()> {
        self.check()?;
        let (begin, end) = self.take_written();
        // Else later commits would wait for these rows.
        self.put_extents(begin, end)
            .map_err(|error| self.fail(error.to_string()))?;
        self.commit_until(end)
    }

    /// Takes all written bytes, and returns the numbers of their extents. Behind them is the end of all that
    /// this commit has to wait for.
    fn take_written(&self) -> (u64, u64) {
        let mut queue = self.queue.lock();
        let files = std::mem::take(&mut *self.waiting.lock());
        let mut pieces = Vec::with_capacity(files.len());
        let mut bytes = 0;
        for file in files {
            if let Some((name, from, to)) = file.take_written() {
                bytes += to - from;
                pieces.push((file, name, from, to));
            }
        }
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let is_inline = self.settings.objects.is_none()
            || bytes <= self.settings.inline_bytes_max as u64 && self.budget.lock().take(bytes);
        if bytes > 0 {
            let mut pace = self.pace.lock();
            pace.is_slow = !is_inline;
            if !is_inline {
                pace.last_put = Some(Instant::now());
            }
        }
        let begin = queue.end();
        for (file, name, from, to) in pieces {
            queue.push(&file, &name, from, to, is_inline);
        }
        (begin, queue.end())
    }

    /// Puts those of the extents that are not inline.
    fn put_extents(&self, begin: u64, end: u64) -> io::Result<()> {
        let mut wanted = Vec::new();
        {
            let mut queue = self.queue.lock();
            for number in begin..end {
                if let Some(extent) = queue.get_mut(number)
                    && matches!(extent.place, Place::ToBePut)
                {
                    wanted.push((number, Arc::clone(&extent.file), extent.from, extent.to));
                }
            }
        }
        at_once(self.settings.requests_max, &wanted, |(number, file, from, to)| {
            // A segment that cannot be read back would leave a hole among the rows.
            let body = file
                .written(*from, *to)
                .map_err(|error| self.fail(error.to_string()))?;
            let (name, part) = self.put(*from, body)?;
            if let Some(extent) = self.queue.lock().get_mut(*number) {
                extent.place = Place::Put(part, name);
            }
            self.turned.notify_all();
            Ok(())
        })
    }

    /// Inserts rows until all extents before a number are committed, or waits for another thread that does.
    fn commit_until(&self, end: u64) -> io::Result<()> {
        let mut queue = self.queue.lock();
        loop {
            self.check()?;
            if queue.first >= end {
                return Ok(());
            }
            let row = if queue.is_committing {
                None
            } else {
                queue.next_row()
            };
            let Some(row) = row else {
                queue = self.turned.wait(queue);
                continue;
            };
            queue.is_committing = true;
            let last = queue.last;
            drop(queue);
            let committed = self.commit_row(&row, last);
            queue = self.queue.lock();
            queue.is_committing = false;
            let link = match committed {
                Ok(link) => link,
                Err(error) => {
                    drop(queue);
                    self.turned.notify_all();
                    return Err(error);
                }
            };
            queue.on_committed(&row, link);
            self.turned.notify_all();
        }
    }

    fn commit_row(&self, next: &NextRow, last: Link) -> io::Result<Link> {
        let inline = if next.part.is_some() {
            Vec::new()
        } else {
            let written = next.file.written(next.from, next.to);
            written.map_err(|error| self.fail(error.to_string()))?
        };
        let body = next.part.as_ref().map_or(Body::Inline(&inline), Body::Object);
        let link = Link {
            seq: last.seq + 1,
            nonce: nonce(),
        };
        let row = Row {
            epoch: self.epoch,
            link,
            previous: last.nonce,
            name: Some(&next.name),
            at: next.from,
            body,
        };
        // After a lost answer, the row at the place tells whether it was committed.
        let is_committed = self.until_answered(|| {
            Ok(self.database.commit(&row)? || self.database.nonce_at(link.seq)? == Some(link.nonce))
        })?;
        if !is_committed {
            return Err(self.fenced());
        }
        let metrics = &self.settings.metrics;
        metrics.commits.inc();
        let bytes = if next.part.is_some() {
            &metrics.object_bytes
        } else {
            &metrics.inline_bytes
        };
        bytes.inc_by(body.bytes());
        next.file.on_committed(next.to, next.part.clone());
        Ok(link)
    }

    /// Returns the number of commits that may be under way now. While one is within the database, more
    /// gather.
    pub(crate) fn commits_max(&self) -> usize {
        if self.pace.lock().is_slow { COMMITS_MAX } else { 1 }
    }

    /// Waits until the next commit may begin: at once if it is small, else a linger after the last put.
    pub(crate) fn gather(&self) {
        if self.settings.objects.is_none() {
            return;
        }
        let bytes = || self.waiting_bytes.load(Ordering::Relaxed);
        if bytes() <= self.settings.inline_bytes_max as u64 && self.budget.lock().has(bytes()) {
            return;
        }
        let mut pace = self.pace.lock();
        pace.is_slow = true;
        let left = pace.last_put.map_or(Duration::ZERO, |last| {
            self.settings.linger.saturating_sub(last.elapsed())
        });
        let is_early = |_: &mut Pace| bytes() < OBJECT_BYTES_MAX as u64 && self.check().is_ok();
        drop(self.gathered.wait_timeout_while(pace, left, is_early));
    }

    /// Notes bytes that were written.
    pub(crate) fn on_written(&self, bytes: u64) {
        let before = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let most = OBJECT_BYTES_MAX as u64;
        if before < most && before + bytes >= most {
            drop(self.pace.lock());
            self.gathered.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_and_fills_again() {
        let mut budget = Budget::new(1000);
        assert!(budget.take(4000));
        assert!(!budget.take(100));
        budget.at -= Duration::from_millis(200);
        assert!(budget.has(200));
        assert!(budget.take(200));
        assert!(!budget.has(100));
        budget.at -= Duration::from_mins(1);
        assert!(budget.take(4000), "no more than the burst");
        assert!(!budget.take(100));
        assert!(!Budget::new(0).take(1));
    }
}
