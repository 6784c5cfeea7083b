//! Frames, and the methods and content headers in them.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use stafett_amqp_wire::{ContentHeader, FrameKind, Method, frame};

const FRAME_MAX: u32 = 8192;

fuzz_target!(|data: &[u8]| {
    let mut buffer = BytesMut::from(data);
    let _ = frame::announced(&buffer);
    let _ = frame::payload_of(&buffer);
    while let Ok(Some(frame)) = frame::split(&mut buffer, FRAME_MAX) {
        assert!(frame.payload.len() + frame::FRAME_OVERHEAD <= FRAME_MAX as usize);
        match FrameKind::of(frame.kind) {
            Some(FrameKind::Method) => {
                let Ok(method) = Method::decode(frame.payload) else { continue };
                let mut out = BytesMut::new();
                method.encode(frame.channel, &mut out);
                let again = frame::split(&mut out, 0).unwrap().unwrap();
                assert_eq!(again.channel, frame.channel);
                assert_eq!(Method::decode(again.payload), Ok(method));
            }
            Some(FrameKind::Header) => {
                let Ok(header) = ContentHeader::decode(frame.payload) else { continue };
                let rebuilt = header.properties.read().finish();
                assert_eq!(rebuilt.as_bytes(), header.properties.as_bytes());
            }
            Some(FrameKind::Body | FrameKind::Heartbeat) | None => {}
        }
    }
});
