//! Reads standard input in pieces, on its own thread, and splits it into records.
//!
//! Memory is bounded: few pieces wait, and records that are too long are skipped.

use std::io::{self, Read};
use std::ops::Range;
use std::thread;

use memchr::memmem::Finder;
use tokio::sync::mpsc;

const PIECE_BYTES: usize = 256 * 1024;
const PIECES_MAX: usize = 8;

/// Returns pieces of standard input as they arrive, until its end or an error.
pub(super) fn pieces() -> mpsc::Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let read = match input.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => {
                    piece.truncate(count);
                    Ok(piece)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
            let failed = read.is_err();
            if sender.blocking_send(read).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// One record of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    Whole(&'a [u8]),
    /// A record longer than the limit; it was skipped.
    TooLong,
}

/// Cuts pieces into records.
pub(super) struct Splitter {
    /// `None` if all of the input is one record.
    finder: Option<Finder<'static>>,
    record_bytes_max: usize,
    buffer: Vec<u8>,
    /// Start of the next record.
    start: usize,
    /// No delimiter begins before this position.
    searched: usize,
    /// The beginning of the current record was discarded.
    skipping: bool,
    ended: bool,
}

impl Splitter {
    pub(super) fn new(delimiter: Option<&[u8]>, record_bytes_max: usize) -> Self {
        Self {
            finder: delimiter.map(|delimiter| Finder::new(delimiter).into_owned()),
            record_bytes_max,
            buffer: Vec::new(),
            start: 0,
            searched: 0,
            skipping: false,
            ended: false,
        }
    }

    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.start);
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// Marks the end of the input: the rest is the last record.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Returns the next complete record.
    pub(super) fn next(&mut self) -> Option<Found<'_>> {
        let range = self.find()?;
        if std::mem::take(&mut self.skipping) || range.len() > self.record_bytes_max {
            return Some(Found::TooLong);
        }
        self.buffer.get(range).map(Found::Whole)
    }

    fn find(&mut self) -> Option<Range<usize>> {
        let start = self.start;
        if let Some(finder) = &self.finder {
            let width = finder.needle().len();
            if let Some(at) = self
                .buffer
                .get(self.searched..)
                .and_then(|rest| finder.find(rest))
            {
                let end = self.searched + at;
                self.start = end + width;
                self.searched = self.start;
                return Some(start..end);
            }
            self.searched = self.buffer.len().saturating_sub(width - 1).max(start);
        }
        let left = self.buffer.len() - start;
        if self.ended && (left > 0 || self.skipping) {
            self.start = self.buffer.len();
            self.searched = self.start;
            return Some(start..start + left);
        }
        if left > self.record_bytes_max {
            // Keep only bytes that may be the beginning of a delimiter.
            self.start = self.searched.max(start).min(self.buffer.len());
            if self.finder.is_none() {
                self.start = self.buffer.len();
            }
            self.searched = self.start;
            self.skipping = true;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts `input`, fed in pieces of `size`, into records.
    fn cut(input: &[u8], delimiter: Option<&[u8]>, size: usize, max: usize) -> Vec<Option<Vec<u8>>> {
        let mut splitter = Splitter::new(delimiter, max);
        let mut found = Vec::new();
        let mut take = |splitter: &mut Splitter| {
            while let Some(record) = splitter.next() {
                found.push(match record {
                    Found::Whole(bytes) => Some(bytes.to_vec()),
                    Found::TooLong => None,
                });
            }
        };
        for piece in input.chunks(size) {
            splitter.feed(piece);
            take(&mut splitter);
        }
        splitter.end();
        take(&mut splitter);
        found
    }

    fn whole(records: &[&str]) -> Vec<Option<Vec<u8>>> {
        records
            .iter()
            .map(|record| Some(record.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn records_are_the_same_however_the_pieces_are_cut() {
        for size in 1..20 {
            let lines = cut(b"one\n\ntwo\r\nthree", Some(b"\n"), size, 100);
            assert_eq!(lines, whole(&["one", "", "two\r", "three"]), "{size}");
            let lines = cut(b"a--b---c--", Some(b"--"), size, 100);
            assert_eq!(lines, whole(&["a", "b", "-c"]), "{size}");
            assert_eq!(cut(b"a\nb\n", None, size, 100), whole(&["a\nb\n"]), "{size}");
            assert_eq!(cut(b"", Some(b"\n"), size, 100), whole(&[]), "{size}");
        }
    }

    #[test]
    fn a_record_that_is_too_long_is_passed_over_and_the_next_one_is_found() {
        for size in 1..30 {
            let lines = cut(b"ok\n0123456789abcdef\nfine\n0123456789", Some(b"\n"), size, 6);
            let expected = [Some(b"ok".to_vec()), None, Some(b"fine".to_vec()), None];
            assert_eq!(lines, expected, "{size}");
            assert_eq!(cut(b"0123456789", None, size, 6), [None], "{size}");
        }
    }
}
