//! What a member of a classic group sends to the others: the first byte chooses what, the rest is versioned
//! data.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stafett_fuzz_kafka_wire::LIMITS;
use stafett_kafka_wire::Message;
use stafett_kafka_wire::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, read, write,
};

fuzz_target!(|data: &[u8]| {
    let [what, data @ ..] = data else { return };
    if *what & 1 == 0 {
        comes_back::<ConsumerProtocolSubscription>(data);
    } else {
        comes_back::<ConsumerProtocolAssignment>(data);
    }
});

fn comes_back<M: Message>(data: &[u8]) {
    let Ok((version, message)) = read::<M>(Bytes::copy_from_slice(data), LIMITS) else {
        return;
    };
    let bytes = write(version, &message).expect("what was read can be written");
    assert_eq!(read(bytes, LIMITS), Ok((version, message)));
}
