//! A segment that is damaged from some byte on, behind some sequence; its checksums put right if the first
//! byte is odd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_fuzz_journal::{MemoryFile, segment_of};
use stafett_journal::disk::fuzzing::{self, SEGMENT_HEADER_BYTES};

fuzz_target!(|data: &[u8]| {
    let Some(([choice, sequence, low, high], data)) = data.split_first_chunk::<4>() else {
        return;
    };
    let mut segment = segment_of(data);
    if choice & 1 != 0 {
        fuzzing::seal_segment(&mut segment);
    }
    let from = SEGMENT_HEADER_BYTES as u32 + u32::from(u16::from_le_bytes([*low, *high])) / 8 * 8;
    fuzzing::salvage(&MemoryFile(segment), from, u64::from(*sequence));
});
