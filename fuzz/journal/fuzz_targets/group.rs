//! The head of a write group, its checksum put right if the first byte is odd.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_journal::disk::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Some((choice, head)) = data.split_first() else {
        return;
    };
    let mut head = head.to_vec();
    if choice & 1 != 0 {
        fuzzing::seal_group(&mut head);
    }
    fuzzing::group(&head);
});
