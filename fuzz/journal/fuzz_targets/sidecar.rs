//! A sidecar: as it is if the first byte is 0, else laid out in sound blocks, from that number of rows less one, and
//! entries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_fuzz_journal::MemoryFile;
use stafett_journal::disk::fuzzing;

fuzz_target!(|data: &[u8]| {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let bytes = match choice {
        0 => data.to_vec(),
        more => fuzzing::lay_out_sidecar(data, usize::from(*more) - 1),
    };
    fuzzing::sidecar(&MemoryFile::shared(bytes));
});
