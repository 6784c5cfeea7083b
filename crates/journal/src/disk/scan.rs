//! Walks the groups of a segment; each is accepted only if its checksums and its place in the chain are
//! valid.

use std::io;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use stafett_model::checksum::Crc32c;

use super::codec::{u32_of, usize_of};
use super::frame::{ALIGN, FrameError, Head, frame_bytes};
use super::group::{GROUP_HEAD_BYTES, GroupHead};
use super::position::{Position, SegmentId};
use super::segment::SEGMENT_HEAD_BYTES;
use super::storage::StorageFile;

/// Bytes of one read.
const WINDOW_BYTES: usize = 512 * 1024;

/// Identity of the group that the next one has to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Chain {
    pub(crate) sequence: u64,
    pub(crate) checksum: u32,
}

/// A frame found by a scan.
#[derive(Debug, Clone)]
pub(crate) struct ScannedFrame {
    /// Start in the segment.
    pub(crate) byte: u32,
    pub(crate) head: Head,
    pub(crate) body: Bytes,
}

/// A group with valid checksums.
#[derive(Debug, Clone)]
pub(crate) struct ScannedGroup {
    pub(crate) head: GroupHead,
    pub(crate) byte: u32,
    pub(crate) frames: SmallVec<[ScannedFrame; 4]>,
}

/// Reason for the end of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndReason {
    #[error("no group starts there")]
    NoGroup,
    #[error("the group there belongs to another time or place")]
    Stranger,
    #[error("the group there does not follow the one before")]
    BrokenChain,
    #[error("the group there is cut short or its frames do not fill it")]
    Shape,
    #[error("a frame at byte {byte} is bad: {error}")]
    Frame { byte: u32, error: FrameError },
    #[error("the frames' checksum does not match")]
    FramesChecksum,
}

/// End of a scan: behind the last good group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScanEnd {
    pub(crate) byte: u32,
    pub(crate) reason: EndReason,
    pub(crate) chain: Chain,
    /// Run of the last good group, if there is one: all groups of a segment are of one run.
    pub(crate) run: Option<u64>,
}

impl ScanEnd {
    /// Returns an end that no group can follow, so that a later segment does not hide the damage.
    pub(crate) fn past_damage(mut self) -> Self {
        self.chain.sequence += 1 << 16;
        self
    }
}

/// Walks a segment's groups from byte `from` on; the first has to follow `chain`.
pub(crate) fn scan(
    file: &dyn StorageFile,
    segment: SegmentId,
    from: u32,
    mut chain: Chain,
    mut visit: impl FnMut(ScannedGroup),
) -> io::Result<ScanEnd> {
    let mut byte = from.max(u32_of(SEGMENT_HEAD_BYTES));
    let mut window = Window::new(file);
    let mut run = None;
    loop {
        match next_group(&mut window, segment, byte, chain)? {
            Ok((group, checksum)) => {
                chain = Chain {
                    sequence: group.head.sequence,
                    checksum,
                };
                byte += group.head.bytes;
                run = Some(group.head.run);
                visit(group);
            }
            Err(reason) => {
                return Ok(ScanEnd {
                    byte,
                    reason,
                    chain,
                    run,
                });
            }
        }
    }
}

/// Iterator over the valid group heads of a segment from byte `from` on that were written after `sequence`,
/// regardless of the bytes between them. A group with valid frames is skipped as a whole.
///
/// Client data between the heads could look like one: groups of another run do not count, and no client knows
/// the random number of a run.
pub(crate) struct LaterGroups<'a> {
    window: Window<'a>,
    segment: SegmentId,
    sequence: u64,
    run: Option<u64>,
    at: u32,
}

/// A group behind damage or behind the end of the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaterGroup {
    pub(crate) byte: u32,
    pub(crate) head: GroupHead,
    /// True if all of its frames are valid: it was written completely.
    pub(crate) whole: bool,
}

impl<'a> LaterGroups<'a> {
    pub(crate) fn new(
        file: &'a dyn StorageFile,
        segment: SegmentId,
        from: u32,
        sequence: u64,
        run: Option<u64>,
    ) -> Self {
        Self {
            window: Window::new(file),
            segment,
            sequence,
            run,
            at: from,
        }
    }

    /// Returns the next group.
    pub(crate) fn next(&mut self) -> io::Result<Option<LaterGroup>> {
        loop {
            let bytes = self.window.at(self.at, GROUP_HEAD_BYTES)?;
            if bytes.len() < GROUP_HEAD_BYTES {
                return Ok(None);
            }
            let mut skipped = 0;
            while let Some(rest) = bytes.get(skipped..).filter(|rest| rest.len() >= GROUP_HEAD_BYTES) {
                let found = later_group(rest, self.segment, self.sequence, self.run);
                skipped += ALIGN;
                if let Some(head) = found {
                    let byte = self.at + u32_of(skipped - ALIGN);
                    let whole = self.is_whole(byte, &head)?;
                    let step = if whole { head.bytes } else { u32_of(ALIGN) };
                    self.at = byte.saturating_add(step);
                    return Ok(Some(LaterGroup { byte, head, whole }));
                }
            }
            let Some(next) = self.at.checked_add(u32_of(skipped)) else {
                return Ok(None);
            };
            self.at = next;
        }
    }

    fn is_whole(&mut self, byte: u32, head: &GroupHead) -> io::Result<bool> {
        let whole = self.window.at(byte, usize_of(head.bytes))?;
        let bytes = whole
            .get(..usize_of(head.bytes))
            .map(|bytes| whole.slice_ref(bytes));
        Ok(bytes.is_some_and(|bytes| frames_of(head, byte, &bytes).is_ok()))
    }
}

/// Known groups behind a byte of a segment. Finding them means reading the rest of the segment, which is done
/// once for all damage in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaterMark {
    from: u32,
    sequence: u64,
    run: Option<u64>,
    /// Byte and sequence number of the last valid head, and the highest synced mark of all.
    last: Option<(u32, u64, Position)>,
    /// Byte and sequence number of the last whole group.
    last_whole: Option<(u32, u64)>,
}

impl LaterMark {
    pub(crate) fn find(
        file: &dyn StorageFile,
        segment: SegmentId,
        from: u32,
        sequence: u64,
        run: Option<u64>,
    ) -> io::Result<Self> {
        let mut groups = LaterGroups::new(file, segment, from, sequence, run);
        let (mut last, mut last_whole): (Option<(u32, u64, Position)>, _) = (None, None);
        while let Some(LaterGroup { byte, head, whole }) = groups.next()? {
            let mark = last.map_or(head.synced, |(_, _, mark)| mark.max(head.synced));
            last = Some((byte, head.sequence, mark));
            if whole {
                last_whole = Some((byte, head.sequence));
            }
        }
        Ok(Self {
            from,
            sequence,
            run,
            last,
            last_whole,
        })
    }

    /// Returns true if it also holds for the groups from byte `from` on that were written after `sequence`.
    pub(crate) fn answers(&self, from: u32, sequence: u64, run: Option<u64>) -> bool {
        let last_is_behind = |(byte, last, _)| byte >= from && last > sequence;
        from >= self.from
            && sequence >= self.sequence
            && run == self.run
            && self.last.is_none_or(last_is_behind)
    }

    /// Returns the highest synced mark of the groups, if there are any: a bad group below it was durable.
    pub(crate) fn mark(&self) -> Option<Position> {
        self.last.map(|(_, _, mark)| mark)
    }

    /// Returns true if a whole group lies at or behind byte `from` and was written after `sequence`. The head
    /// of a group cut short by a kill is valid, and proves nothing.
    pub(crate) fn has_whole(&self, from: u32, sequence: u64) -> bool {
        self.last_whole
            .is_some_and(|(byte, last)| byte >= from && last > sequence)
    }
}

/// Decodes the head at the front of `bytes` if it is of that segment and run and was written after
/// `sequence`.
pub(crate) fn later_group(
    bytes: &[u8],
    segment: SegmentId,
    sequence: u64,
    run: Option<u64>,
) -> Option<GroupHead> {
    let (head, _) = GroupHead::may_start(bytes).then(|| GroupHead::decode(bytes))??;
    let is_ours = head.segment == segment && run.is_none_or(|run| head.run == run);
    (is_ours && head.sequence > sequence).then_some(head)
}

/// Returns the head of the first group of a segment, if it is valid.
pub(crate) fn first_group(file: &dyn StorageFile, segment: SegmentId) -> io::Result<Option<GroupHead>> {
    let mut bytes = [0; GROUP_HEAD_BYTES];
    let got = file.read_at(&mut bytes, SEGMENT_HEAD_BYTES as u64)?;
    Ok(bytes
        .get(..got)
        .and_then(|bytes| later_group(bytes, segment, 0, None)))
}

type GroupOrReason = Result<(ScannedGroup, u32), EndReason>;

fn next_group(
    window: &mut Window<'_>,
    segment: SegmentId,
    byte: u32,
    chain: Chain,
) -> io::Result<GroupOrReason> {
    let front = window.at(byte, GROUP_HEAD_BYTES)?;
    let Some((head, checksum)) = GroupHead::decode(&front) else {
        return Ok(Err(EndReason::NoGroup));
    };
    if head.segment != segment {
        return Ok(Err(EndReason::Stranger));
    }
    if head.sequence != chain.sequence + 1 || head.previous != chain.checksum {
        return Ok(Err(EndReason::BrokenChain));
    }
    let bytes = usize_of(head.bytes);
    let mut whole = window.at(byte, bytes)?;
    let lies_there = byte.checked_add(head.bytes).is_some() && whole.len() >= bytes;
    if bytes < GROUP_HEAD_BYTES || !bytes.is_multiple_of(ALIGN) || !lies_there {
        return Ok(Err(EndReason::Shape));
    }
    whole.truncate(bytes);
    Ok(frames_of(&head, byte, &whole).map(|frames| (ScannedGroup { head, byte, frames }, checksum)))
}

fn frames_of(
    group: &GroupHead,
    group_byte: u32,
    bytes: &Bytes,
) -> Result<SmallVec<[ScannedFrame; 4]>, EndReason> {
    let mut frames = SmallVec::new();
    let mut checksums = Crc32c::new();
    let mut at = GROUP_HEAD_BYTES;
    for _ in 0..group.frames {
        let byte = group_byte + u32_of(at);
        let bad = |error| EndReason::Frame { byte, error };
        let rest = bytes.get(at..).unwrap_or_default();
        let (head, checksum) = Head::decode(rest).map_err(bad)?;
        let body_at = at + head.bytes();
        let body = bytes
            .get(body_at..body_at + head.body_bytes)
            .map(|body| bytes.slice_ref(body))
            .ok_or_else(|| bad(FrameError::Truncated))?;
        head.verify_body(&body).map_err(bad)?;
        checksums.update(&checksum.to_le_bytes());
        at += frame_bytes(head.entries.len(), head.body_bytes);
        frames.push(ScannedFrame { byte, head, body });
    }
    if at != bytes.len() {
        return Err(EndReason::Shape);
    }
    if checksums.finish() != group.frames_checksum {
        return Err(EndReason::FramesChecksum);
    }
    Ok(frames)
}

/// A part of the file in memory.
struct Window<'a> {
    file: &'a dyn StorageFile,
    start: u32,
    bytes: Bytes,
}

impl<'a> Window<'a> {
    fn new(file: &'a dyn StorageFile) -> Self {
        Self {
            file,
            start: 0,
            bytes: Bytes::new(),
        }
    }

    /// Returns the bytes from `byte` on, at least `wanted` of them unless the file ends before.
    fn at(&mut self, byte: u32, wanted: usize) -> io::Result<Bytes> {
        if let Some(skip) = byte.checked_sub(self.start).map(usize_of)
            && skip + wanted <= self.bytes.len()
        {
            return Ok(self.bytes.slice(skip..));
        }
        // Memory is allocated only after the file is known to contain the range of a possibly damaged length.
        let left = self.file.bytes()?.saturating_sub(byte.into());
        let there = usize::try_from(left).unwrap_or(usize::MAX);
        let mut buffer = BytesMut::zeroed(wanted.max(WINDOW_BYTES).min(there));
        let got = self.file.read_at(&mut buffer, u64::from(byte))?;
        buffer.truncate(got);
        self.start = byte;
        self.bytes = buffer.freeze();
        Ok(self.bytes.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A file that records the largest buffer passed to a read.
    #[derive(Debug)]
    struct CountingFile(Vec<u8>, AtomicUsize);

    impl StorageFile for CountingFile {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
            self.1.fetch_max(buffer.len(), Ordering::Relaxed);
            let rest = self.0.get(usize_of(u32::try_from(at).unwrap())..).unwrap_or(&[]);
            let got = rest.len().min(buffer.len());
            buffer[..got].copy_from_slice(&rest[..got]);
            Ok(got)
        }

        fn bytes(&self) -> io::Result<u64> {
            Ok(self.0.len() as u64)
        }

        fn write_at(&self, _: &mut [IoSlice<'_>], _: u64) -> io::Result<()> {
            unreachable!("nothing is written")
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!("nothing is written")
        }

        fn set_bytes(&self, _: u64) -> io::Result<()> {
            unreachable!("nothing is written")
        }

        fn reserve(&self, _: u64) -> io::Result<()> {
            unreachable!("nothing is written")
        }
    }

    #[test]
    fn a_group_that_is_longer_than_its_file_is_not_given_memory() {
        let head = GroupHead {
            segment: SegmentId(3),
            bytes: u32::MAX - 7,
            run: 1,
            sequence: 1,
            previous: 0,
            frames: 1,
            synced: Position::default(),
            written_at: 0,
            frames_checksum: 0,
        };
        let mut bytes = vec![0; SEGMENT_HEAD_BYTES + 2 * GROUP_HEAD_BYTES];
        head.encode(&mut bytes[SEGMENT_HEAD_BYTES..]);
        let file = CountingFile(bytes, AtomicUsize::new(0));
        let chain = Chain {
            sequence: 0,
            checksum: 0,
        };
        let end = scan(&file, SegmentId(3), 0, chain, |_| ()).unwrap();
        assert_eq!(end.reason, EndReason::Shape);
        assert!(file.1.load(Ordering::Relaxed) <= file.0.len());
    }
}
