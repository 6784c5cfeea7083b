//! The body of a response, as our own client reads it: the first byte chooses the API, the second the
//! version.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_fuzz_kafka_wire::{Side, choose_and_read};

fuzz_target!(|data: &[u8]| choose_and_read(Side::Response, data));
