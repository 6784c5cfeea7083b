//! A segment, its checksums and its chain put right if the first byte is odd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_fuzz_journal::{MemoryFile, segment_of};
use stafett_journal::disk::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let mut segment = segment_of(data);
    if choice & 1 != 0 {
        fuzzing::seal_segment(&mut segment);
    }
    fuzzing::segment(&MemoryFile(segment));
});
