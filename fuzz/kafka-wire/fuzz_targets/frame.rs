//! A request frame as it comes from a socket, of any API.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_fuzz_kafka_wire::{LIMITS, Side, read};
use stafett_kafka_wire::frame::open_request;

fuzz_target!(|data: &[u8]| {
    let frame = Bytes::copy_from_slice(data);
    let Ok((header, body)) = open_request(frame.clone(), LIMITS) else {
        return;
    };
    if header.api.versions().contains(header.version) {
        let body = frame.slice(frame.len() - body.remaining()..);
        read(Side::Request, header.api, header.version, body);
    }
});
