//! Content of a file that no local file has: it is in the database, in objects, or in both.
//!
//! Rows and blocks are read a window at a time, objects as a whole, into the cache. A file that is read from
//! one end to the other has its next objects read ahead, several at a time.

use std::io;
use std::sync::Arc;

use stafett_model::Lock;

use crate::database::Kept;
use crate::objects::Part;
use crate::uplink::Uplink;

/// Bytes that are read from the database at a time.
const WINDOW_BYTES: usize = 256 << 10;
/// Objects, and their bytes, that are read ahead.
const AHEAD_MAX: usize = 32;
const AHEAD_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Remote {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    state: Lock<RemoteState>,
}

#[derive(Debug)]
struct RemoteState {
    kept: Kept,
    /// The parts in objects, once they are known.
    parts: Option<Arc<[Part]>>,
    /// The bytes of rows or blocks that were read last, and their place.
    window: (u64, Vec<u8>),
    /// Index of the part that was read last.
    last_part: Option<usize>,
}

impl Remote {
    pub(crate) fn new(name: &str, bytes: u64, kept: Kept) -> Self {
        let is_whole = kept == Kept::Blocks;
        let state = RemoteState {
            kept,
            parts: is_whole.then(|| Arc::from([])),
            window: (0, Vec::new()),
            last_part: None,
        };
        Self {
            name: name.to_owned(),
            bytes,
            state: Lock::new(state),
        }
    }

    /// Content whose parts are known.
    pub(crate) fn of_parts(name: &str, bytes: u64, parts: Vec<Part>) -> Self {
        let remote = Self::new(name, bytes, Kept::Parts);
        remote.set_parts(parts);
        remote
    }

    pub(crate) fn kept(&self) -> Kept {
        self.state.lock().kept
    }

    /// Has all of it read from objects.
    pub(crate) fn set_parts(&self, parts: Vec<Part>) {
        let mut state = self.state.lock();
        state.kept = Kept::Parts;
        state.parts = Some(parts.into());
        state.window = (0, Vec::new());
    }

    /// Returns the parts that are in objects, and the way of the rest.
    pub(crate) fn parts(&self, uplink: &Uplink) -> io::Result<(Kept, Arc<[Part]>)> {
        let kept = {
            let state = self.state.lock();
            if let Some(parts) = &state.parts {
                return Ok((state.kept, Arc::clone(parts)));
            }
            state.kept
        };
        let parts = uplink.until_answered(|| uplink.database.parts(&self.name, kept))?;
        let mut state = self.state.lock();
        if state.parts.is_none() {
            state.parts = Some(parts.into());
        }
        Ok((state.kept, state.parts.clone().unwrap_or_else(|| Arc::from([]))))
    }

    pub(crate) fn read_at(&self, uplink: &Uplink, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let left = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..wanted).filter(|rest| !rest.is_empty()) {
            done += self.read_some(uplink, rest, at + done as u64)?;
        }
        Ok(wanted)
    }

    /// Reads at least one byte.
    fn read_some(&self, uplink: &Uplink, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let (kept, parts) = self.parts(uplink)?;
        let index = parts.partition_point(|part| part.end() <= at);
        let end = match parts.get(index) {
            Some(part) if part.at <= at => {
                let end = part.end();
                let buffer = cut(buffer, end - at);
                self.read_part(uplink, &parts, index, buffer, at)?;
                return Ok(buffer.len());
            }
            Some(part) => part.at,
            None => self.bytes,
        };
        let buffer = cut(buffer, end - at);
        if self.copy_from_window(buffer, at) {
            return Ok(buffer.len());
        }
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let bytes = buffer.len().max(WINDOW_BYTES.min(left));
        let read = uplink.until_answered(|| uplink.database.read(&self.name, kept, at, bytes))?;
        if read.len() < bytes {
            if kept != self.kept() {
                // It was sealed meanwhile.
                return Ok(0);
            }
            // It is no damage: a former owner that does not know its successor yet must not pass over it.
            return Err(self.gone());
        }
        let wanted = buffer.len();
        buffer.copy_from_slice(read.get(..wanted).unwrap_or_default());
        if bytes <= WINDOW_BYTES {
            let mut state = self.state.lock();
            if state.kept == kept {
                state.window = (at, read);
            }
        }
        Ok(wanted)
    }

    fn gone(&self) -> io::Error {
        io::Error::other(format!("{} is not in the database any more", self.name))
    }

    /// Fills a buffer from a part, and reads ahead if the one before was read last.
    fn read_part(
        &self,
        uplink: &Uplink,
        parts: &[Part],
        index: usize,
        buffer: &mut [u8],
        at: u64,
    ) -> io::Result<()> {
        let Some(part) = parts.get(index) else {
            return Err(self.gone());
        };
        let last = self.state.lock().last_part.replace(index);
        let offset = at - part.at;
        if uplink.cache.read_at(part, buffer, offset)? {
            return Ok(());
        }
        if last.is_some_and(|last| last + 1 == index) {
            let mut bytes = 0;
            let rest = parts.get(index..).unwrap_or_default().iter().take(AHEAD_MAX);
            let ahead: Vec<Part> = rest
                .take_while(|part| {
                    bytes += u64::from(part.bytes);
                    bytes <= AHEAD_BYTES_MAX
                })
                .cloned()
                .collect();
            // An error may be one of a later part.
            let _ = uplink.fetch(&self.name, &ahead);
            if uplink.cache.read_at(part, buffer, offset)? {
                return Ok(());
            }
        }
        let body = uplink.get(&self.name, part)?;
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let wanted = begin..begin.saturating_add(buffer.len());
        buffer.copy_from_slice(body.get(wanted).ok_or_else(|| self.gone())?);
        uplink.cache.add(part, &body);
        Ok(())
    }

    fn copy_from_window(&self, buffer: &mut [u8], at: u64) -> bool {
        let state = self.state.lock();
        let (from, bytes) = &state.window;
        let begin = at
            .checked_sub(*from)
            .and_then(|begin| usize::try_from(begin).ok());
        let part = begin.and_then(|begin| bytes.get(begin..begin.checked_add(buffer.len())?));
        part.map(|part| buffer.copy_from_slice(part)).is_some()
    }
}

/// Returns at most the first `bytes` bytes of a buffer.
fn cut(buffer: &mut [u8], bytes: u64) -> &mut [u8] {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(buffer.len());
    buffer.split_at_mut(bytes).0
}
