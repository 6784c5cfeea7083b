//! Primitives in any order: each byte of the first half of the input names one, the second half is the frame.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::{DecodeError, DecodeLimits, Decoder, Uuid};

const BUDGET: usize = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let (plan, frame) = data.split_at(data.len() / 2);
    let mut d = Decoder::new(
        Bytes::copy_from_slice(frame),
        DecodeLimits { memory_bytes: BUDGET },
    );
    let mut taken = 0;
    for step in plan {
        let before = d.remaining();
        let Ok(memory) = read(&mut d, *step) else { break };
        taken += memory;
        assert!(d.remaining() <= before);
        assert!(taken <= BUDGET, "{taken} bytes of memory");
    }
    assert_eq!(d.finish().is_ok(), d.remaining() == 0);
});

/// Reads what the step says, and returns the memory that its arrays take.
fn read(d: &mut Decoder, step: u8) -> Result<usize, DecodeError> {
    let (flexible, nullable) = (step & 0x80 != 0, step & 0x40 != 0);
    match step & 0x3f {
        0 => d.bool().map(|_| 0),
        1 => d.i8().map(|_| 0),
        2 => d.i16().map(|_| 0),
        3 => d.u16().map(|_| 0),
        4 => d.i32().map(|_| 0),
        5 => d.i64().map(|_| 0),
        6 => d.f64().map(|_| 0),
        7 => d.uuid().map(|_| 0),
        8 => d.uvarint().map(|_| 0),
        9 => d.opt_string(flexible, nullable).map(|_| 0),
        10 => d.opt_bytes(flexible, nullable).map(|_| 0),
        11 => d.opt_records(flexible, nullable).map(|_| 0),
        12 => d.opt_strings(flexible, nullable).map(|all| memory(all.as_ref())),
        13 => d
            .opt_array::<i64>(0, flexible, nullable)
            .map(|all| memory(all.as_ref())),
        14 => d
            .opt_array::<Uuid>(0, flexible, nullable)
            .map(|all| memory(all.as_ref())),
        15 => d
            .opt_array::<MetadataRequestTopic>(12, flexible, nullable)
            .map(|all| memory(all.as_ref())),
        16 => d.opt_struct::<MetadataRequestTopic>(0, nullable).map(|_| 0),
        17 => d.no_tags().map(|()| 0),
        _ => d
            .tags(&mut |d, tag| {
                if tag == 0 {
                    d.string(true).map(|_| true)
                } else {
                    Ok(false)
                }
            })
            .map(|()| 0),
    }
}

fn memory<T>(elements: Option<&Vec<T>>) -> usize {
    elements.map_or(0, |elements| elements.capacity() * size_of::<T>())
}
