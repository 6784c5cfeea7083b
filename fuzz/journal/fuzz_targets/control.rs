//! The body of a control frame.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_journal::disk::fuzzing;

fuzz_target!(|data: &[u8]| fuzzing::control(&Bytes::copy_from_slice(data)));
