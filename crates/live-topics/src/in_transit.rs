//! Messages of logs that a connection has taken and not written yet: so a client that leaves, or is taken
//! over, has been given exactly the messages that are written.
//!
//! ```text
//! the connection's output:  ▓▓▓▓▓▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░░░░░░░░░░░░░
//!                                        ▲ written
//! pieces:                   │ a │  b  │   c   │    d    │ answers │
//!                             gone      begun   may still be taken back
//! ```
//!
//! A piece that was begun cannot be taken back: the connection could not continue after half of it.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};

use super::clients::ClientNumber;
use super::log_state::LogPosition;

/// Pieces of a connection's output, by their ranges.
#[derive(Debug, Default)]
pub(super) struct InTransit {
    pieces: VecDeque<Piece>,
    written: usize,
    is_to_be_cut: bool,
}

#[derive(Debug)]
struct Piece {
    log_position: LogPosition,
    start: usize,
    end: usize,
    is_taken_back: bool,
}

impl InTransit {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds a taken piece, at `start..end` of the output to be written from here on.
    pub(super) fn add(&mut self, log_position: LogPosition, start: usize, end: usize) {
        self.pieces.push_back(Piece {
            log_position,
            start: self.written + start,
            end: self.written + end,
            is_taken_back: false,
        });
    }

    /// Moves all pieces back by `bytes`, behind other output.
    pub(super) fn move_back(&mut self, bytes: usize) {
        for piece in &mut self.pieces {
            piece.start += bytes;
            piece.end += bytes;
        }
    }

    /// Writes the rest of the output once, without the pieces taken back.
    pub(super) fn write<E>(
        &mut self,
        output: &mut BytesMut,
        write: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        if std::mem::take(&mut self.is_to_be_cut) {
            self.cut(output);
        }
        if output.is_empty() {
            return Ok(0);
        }
        let count = write(output)?;
        output.advance(count);
        self.written += count;
        while self.pieces.front().is_some_and(|piece| piece.end <= self.written) {
            self.pieces.pop_front();
        }
        Ok(count)
    }

    /// Forgets all pieces: everything is written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes back the unwritten pieces of a client that leaves, and adds their positions to `unsent`. A piece
    /// that was begun is still written, unless the connection `is_gone`: then it counts as unsent.
    pub(super) fn leave(&mut self, client: ClientNumber, is_gone: bool, unsent: &mut Vec<LogPosition>) {
        let written = self.written;
        for piece in &mut self.pieces {
            let is_begun = piece.start < written;
            if piece.log_position.client != client.0 || piece.is_taken_back || (is_begun && !is_gone) {
                continue;
            }
            piece.is_taken_back = true;
            self.is_to_be_cut |= !is_gone;
            unsent.push(piece.log_position);
        }
    }

    fn cut(&mut self, output: &mut BytesMut) {
        let mut left = BytesMut::with_capacity(output.len());
        let (mut at, mut cut) = (self.written, 0);
        for mut piece in std::mem::take(&mut self.pieces) {
            if piece.is_taken_back {
                let kept = at - self.written..piece.start.saturating_sub(self.written);
                left.extend_from_slice(output.get(kept).unwrap_or_default());
                at = piece.end;
                cut += piece.end - piece.start;
            } else {
                piece.start = piece.start.saturating_sub(cut);
                piece.end -= cut;
                self.pieces.push_back(piece);
            }
        }
        left.extend_from_slice(output.get(at - self.written..).unwrap_or_default());
        *output = left;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use stafett_model::Offset;

    use super::*;

    fn log_position(client: u32, offset: u64) -> LogPosition {
        LogPosition::new(client, 0, Offset(offset), crate::TopicHash::default())
    }

    /// Writes at most `max` bytes.
    fn write(in_transit: &mut InTransit, output: &mut BytesMut, max: usize) -> String {
        let mut written = Vec::new();
        let wrote: Result<usize, Infallible> = in_transit.write(output, |bytes| {
            let count = bytes.len().min(max);
            written.extend_from_slice(&bytes[..count]);
            Ok(count)
        });
        assert_eq!(wrote, Ok(written.len()));
        String::from_utf8(written).unwrap()
    }

    /// Creates an output with a notice of four bytes, three messages of three for the clients 1, 2 and 1, and
    /// an answer.
    fn three() -> (InTransit, BytesMut) {
        let mut in_transit = InTransit::default();
        for (place, client) in [1, 2, 1].into_iter().enumerate() {
            in_transit.add(log_position(client, place as u64), place * 3, place * 3 + 3);
        }
        in_transit.move_back(4);
        (in_transit, BytesMut::from(&b"NOTEaaabbbcccanswer"[..]))
    }

    #[test]
    fn what_is_not_begun_is_taken_back_and_the_rest_goes_on() {
        let mut unsent = Vec::new();
        let (mut in_transit, mut output) = three();
        in_transit.leave(ClientNumber(1), false, &mut unsent);
        assert_eq!(unsent, [log_position(1, 0), log_position(1, 2)]);
        assert_eq!(write(&mut in_transit, &mut output, 100), "NOTEbbbanswer");
        assert!(in_transit.is_empty());
    }

    #[test]
    fn what_is_begun_is_finished_and_counts_as_given() {
        let mut unsent = Vec::new();
        let (mut in_transit, mut output) = three();
        assert_eq!(write(&mut in_transit, &mut output, 5), "NOTEa");
        in_transit.leave(ClientNumber(1), false, &mut unsent);
        assert_eq!(unsent, [log_position(1, 2)]);
        in_transit.leave(ClientNumber(1), false, &mut unsent);
        assert_eq!(unsent.len(), 1, "it is taken back once");
        assert_eq!(write(&mut in_transit, &mut output, 3), "aab");
        in_transit.leave(ClientNumber(2), false, &mut unsent);
        assert_eq!(write(&mut in_transit, &mut output, 100), "bbanswer");
        assert_eq!(unsent.len(), 1);
    }

    #[test]
    fn what_a_connection_that_is_gone_has_not_written_whole_was_not_given() {
        let mut unsent = Vec::new();
        let (mut in_transit, mut output) = three();
        assert_eq!(write(&mut in_transit, &mut output, 8), "NOTEaaab");
        in_transit.leave(ClientNumber(2), true, &mut unsent);
        in_transit.leave(ClientNumber(1), true, &mut unsent);
        assert_eq!(unsent, [log_position(2, 1), log_position(1, 2)]);
    }

    #[test]
    fn nothing_is_written_of_what_was_taken_back_whole() {
        let mut in_transit = InTransit::default();
        in_transit.add(log_position(1, 0), 0, 3);
        let mut output = BytesMut::from(&b"aaa"[..]);
        in_transit.leave(ClientNumber(1), false, &mut Vec::new());
        assert_eq!(write(&mut in_transit, &mut output, 100), "");
        assert!(output.is_empty());
        // Offsets of the next batch start at 0 again.
        in_transit.add(log_position(1, 1), 0, 3);
        let mut output = BytesMut::from(&b"bbb"[..]);
        assert_eq!(write(&mut in_transit, &mut output, 100), "bbb");
        assert!(in_transit.is_empty());
    }
}
