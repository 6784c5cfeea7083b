//! A frame, its checksums put right if the first byte is odd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_journal::disk::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Some((choice, frame)) = data.split_first() else {
        return;
    };
    let mut frame = frame.to_vec();
    if choice & 1 != 0 {
        fuzzing::seal_frame(&mut frame);
    }
    fuzzing::frame(&frame);
});
