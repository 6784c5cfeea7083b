//! Buffers for reads from segments, reused once the data is released.
//!
//! A new buffer costs about as much as the read: its pages are cleared by the system, or by the allocator.

use std::sync::Arc;

use bytes::Bytes;
use stafett_model::Lock;

/// Smallest buffer that is kept; the sizes are powers of two.
const BYTES_MIN: usize = 16 << 10;
const SIZES: usize = 7;
/// Most bytes of unused buffers that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Unused buffers.
#[derive(Debug, Default)]
pub(crate) struct ReadBuffers(Lock<SpareBuffers>);

#[derive(Debug, Default)]
struct SpareBuffers {
    by_size: [Vec<Box<[u8]>>; SIZES],
    bytes: usize,
}

/// A buffer in use. Its content is undefined before the read.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    buffer: Box<[u8]>,
    used: usize,
    /// Pool to which it returns when dropped.
    home: Option<Arc<ReadBuffers>>,
}

/// Returns the index of the smallest kept size for `bytes` bytes; `None` if such buffers are not kept.
fn size_for(bytes: usize) -> Option<usize> {
    let size = bytes.checked_next_power_of_two()?;
    let place = usize::try_from(size.checked_div(BYTES_MIN)?.checked_ilog2()?).ok()?;
    (place < SIZES).then_some(place)
}

impl ReadBuffers {
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> ReadBuffer {
        let Some(place) = size_for(bytes) else {
            return ReadBuffer {
                buffer: vec![0; bytes].into(),
                used: bytes,
                home: None,
            };
        };
        let kept = {
            let mut kept = self.0.lock();
            let buffer = kept.by_size.get_mut(place).and_then(Vec::pop);
            kept.bytes -= buffer.as_ref().map_or(0, |buffer| buffer.len());
            buffer
        };
        ReadBuffer {
            buffer: kept.unwrap_or_else(|| vec![0; BYTES_MIN << place].into()),
            used: bytes,
            home: Some(Arc::clone(self)),
        }
    }
}

impl ReadBuffer {
    /// Converts the buffer into `Bytes`.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.get(..self.used).unwrap_or_default()
    }
}

impl AsMut<[u8]> for ReadBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.used).unwrap_or_default()
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let Some((home, place)) = self.home.take().zip(size_for(self.buffer.len())) else {
            return;
        };
        let mut kept = home.0.lock();
        let bytes = kept.bytes + self.buffer.len();
        if let Some(same) = kept.by_size.get_mut(place).filter(|_| bytes <= KEPT_BYTES_MAX) {
            same.push(std::mem::take(&mut self.buffer));
            kept.bytes = bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_once_nobody_holds_a_part_of_it() {
        let buffers = Arc::<ReadBuffers>::default();
        let kept = || buffers.0.lock().bytes;
        let mut first = buffers.take(40_000);
        first.as_mut().fill(7);
        let bytes = first.freeze();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!((kept(), part.as_ref()), (0, [7; 10].as_slice()));
        drop(part);
        assert_eq!(kept(), 65_536);
        let (other, same) = (buffers.take(65_537), buffers.take(65_536));
        assert_eq!((other.as_ref().len(), same.as_ref().len()), (65_537, 65_536));
        assert_eq!(kept(), 0);
    }

    #[test]
    fn small_and_huge_ones_are_not_kept_and_not_too_many_are() {
        let buffers = Arc::<ReadBuffers>::default();
        for bytes in [0, 1, BYTES_MIN / 2, (1 << 20) + 1, 5 << 20] {
            assert_eq!(buffers.take(bytes).as_ref().len(), bytes);
        }
        let kept = || buffers.0.lock().bytes;
        assert_eq!(kept(), 0);
        for bytes in [BYTES_MIN, 1 << 20] {
            let many: Vec<_> = (0..KEPT_BYTES_MAX / bytes + 3)
                .map(|_| buffers.take(bytes))
                .collect();
            drop(many);
            assert_eq!(kept(), KEPT_BYTES_MAX);
        }
    }
}
