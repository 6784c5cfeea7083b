//! Content of messages behind the lab's own bytes.

use std::path::Path;
use std::sync::Arc;

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::message::{HEADER_BYTES, Message};
use crate::experiment::Content;

/// Random bytes are taken from a pool of this size, from a place that moves on by an odd step: so there is no
/// repetition in the window of a codec.
const POOL_BYTES: usize = 4 << 20;
const POOL_STEP: usize = 65_537;

/// Source of content. Cheap to clone; each clone goes its own way through it.
#[derive(Debug, Clone)]
pub struct Contents {
    kind: Kind,
    next: usize,
}

#[derive(Debug, Clone)]
enum Kind {
    Constant,
    Pool(Arc<[u8]>),
    /// One after the other.
    Lines(Arc<[Box<[u8]>]>),
}

impl Contents {
    /// Fails where the file with the lines cannot be read, or has none.
    pub fn open(content: &Content, seed: u64) -> Result<Self, String> {
        let kind = match content {
            Content::Constant => Kind::Constant,
            Content::Random => {
                let mut random = SmallRng::seed_from_u64(seed);
                let mut pool = vec![0; POOL_BYTES];
                random.fill(pool.as_mut_slice());
                Kind::Pool(pool.into())
            }
            Content::File(path) => Kind::Lines(lines(Path::new(path))?),
        };
        Ok(Self { kind, next: 0 })
    }

    /// The same letter, again and again.
    pub fn constant() -> Self {
        Self {
            kind: Kind::Constant,
            next: 0,
        }
    }

    /// Makes the clones of different clients differ.
    #[must_use]
    pub fn from(mut self, client: u32) -> Self {
        self.next = usize::try_from(client).unwrap_or(0).wrapping_mul(104_729);
        self
    }

    /// Writes a message in place of the content of `into`.
    pub fn write(&mut self, message: &Message, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(&message.header());
        let size = usize::try_from(message.size).unwrap_or(0).max(HEADER_BYTES);
        match &self.kind {
            Kind::Constant => into.resize(size, b'x'),
            Kind::Pool(pool) => {
                while into.len() < size {
                    let from = self.next % pool.len();
                    let piece = pool.get(from..).unwrap_or_default();
                    let missing = size - into.len();
                    into.extend_from_slice(piece.get(..missing).unwrap_or(piece));
                    self.next = self.next.wrapping_add(POOL_STEP);
                }
            }
            Kind::Lines(lines) => {
                // A size says how much of the file goes into one message.
                while into.len() < size {
                    let line = lines.get(self.next % lines.len()).map_or(&b"\n"[..], |line| line);
                    let missing = size - into.len();
                    into.extend_from_slice(line.get(..missing).unwrap_or(line));
                    self.next = self.next.wrapping_add(1);
                }
            }
        }
    }
}

/// The lines of a file with their ends; the first 64 MiB of it.
fn lines(path: &Path) -> Result<Arc<[Box<[u8]>]>, String> {
    const BYTES_MAX: usize = 64 << 20;
    let mut text =
        std::fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    text.truncate(BYTES_MAX);
    let lines: Vec<Box<[u8]>> = text
        .split_inclusive(|byte| *byte == b'\n')
        .map(Box::from)
        .collect();
    if lines.is_empty() {
        return Err(format!("{} has no lines", path.display()));
    }
    Ok(lines.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(size: u32) -> Message {
        Message {
            size,
            ..Message::default()
        }
    }

    #[test]
    fn messages_are_as_large_as_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        std::fs::write(&file, "one\ntwo\n").unwrap();
        for content in [
            Content::Constant,
            Content::Random,
            Content::File(file.display().to_string()),
        ] {
            let mut contents = Contents::open(&content, 1).unwrap();
            let mut bytes = Vec::new();
            for size in [0, 24, 25, 100, 10_000] {
                contents.write(&message(size), &mut bytes);
                assert_eq!(bytes.len(), usize::try_from(size).unwrap().max(HEADER_BYTES));
            }
        }
    }

    #[test]
    fn random_content_differs_and_lines_follow_each_other() {
        let mut contents = Contents::open(&Content::Random, 1).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        contents.write(&message(100), &mut first);
        contents.write(&message(100), &mut second);
        assert_ne!(first, second);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        std::fs::write(&file, "one\ntwo\n").unwrap();
        let mut contents = Contents::open(&Content::File(file.display().to_string()), 1).unwrap();
        contents.write(&message(30), &mut first);
        assert_eq!(&first[HEADER_BYTES..], b"one\ntw");
        std::fs::write(&file, "").unwrap();
        assert!(Contents::open(&Content::File(file.display().to_string()), 1).is_err());
    }
}
