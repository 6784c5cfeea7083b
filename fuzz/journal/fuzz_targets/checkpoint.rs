//! A row of the checkpoint.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_journal::disk::fuzzing;

fuzz_target!(|data: &[u8]| fuzzing::checkpoint_row(data));
