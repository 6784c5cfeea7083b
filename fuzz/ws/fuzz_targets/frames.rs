//! Bytes of a connection, cut into reads anywhere: the same frames come out as from one piece.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_ws::frame::{Decoded, Decoder};

const MESSAGE_BYTES_MAX: usize = 4096;

/// What comes out, and what is left.
fn decode(decoder: &mut Decoder, bytes: &mut Vec<u8>, out: &mut Vec<String>) -> bool {
    loop {
        match decoder.decode(bytes) {
            Ok(Decoded::Incomplete(needed)) => {
                assert!(needed > bytes.len());
                return true;
            }
            Ok(Decoded::Frame { bytes: used, event }) => {
                out.push(format!("{event:?}"));
                bytes.drain(..used);
            }
            Err(error) => {
                out.push(error.to_string());
                return false;
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else {
        return;
    };
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    decode(
        &mut Decoder::new(MESSAGE_BYTES_MAX),
        &mut data.to_vec(),
        &mut whole,
    );
    let (mut decoder, mut received) = (Decoder::new(MESSAGE_BYTES_MAX), Vec::new());
    for piece in data.chunks(usize::from(*size) + 1) {
        received.extend_from_slice(piece);
        if !decode(&mut decoder, &mut received, &mut pieces) {
            break;
        }
        assert!(decoder.held_bytes() <= MESSAGE_BYTES_MAX);
    }
    assert_eq!(whole, pieces);
});
