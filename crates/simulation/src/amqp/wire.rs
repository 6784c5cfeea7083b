//! Frames of an AMQP client: encoding, and decoding of the broker's output.

use bytes::{Bytes, BytesMut};
use stafett_amqp_wire::{ContentHeader, Encoder, Frame, FrameKind, Method, Properties, frame};

use crate::world::Finding;

/// Bytes of a frame besides its payload.
const OVERHEAD: usize = 8;
pub(super) const FRAME_BYTES_MAX: u32 = 131_072;

pub(super) fn encode(channel: u16, method: &Method) -> BytesMut {
    let mut out = BytesMut::new();
    method.encode(channel, &mut out);
    out
}

/// Encodes a method with its content.
pub(super) fn encode_content(method: &Method, properties: Properties, body: &[u8]) -> BytesMut {
    let mut out = encode(1, method);
    let header = ContentHeader {
        body_size: body.len() as u64,
        properties,
    };
    Encoder::frame(&mut out, FrameKind::Header, 1, |e| header.encode(e));
    for piece in body.chunks(FRAME_BYTES_MAX as usize - OVERHEAD) {
        Encoder::frame(&mut out, FrameKind::Body, 1, |e| e.raw(piece));
    }
    out
}

/// Assembles methods and their content from frames.
#[derive(Debug, Clone, Default)]
pub(super) struct Incoming {
    method: Option<Method>,
    /// Properties of the last content.
    pub(super) properties: Properties,
    missing: usize,
    body: BytesMut,
}

impl Incoming {
    /// Returns the next method, with its body if it has one.
    pub(super) fn next(&mut self, input: &mut BytesMut) -> Result<Option<(Method, Bytes)>, Finding> {
        loop {
            let split = frame::split(input, 0).map_err(|error| Finding(format!("no frame: {error}")))?;
            let Some(Frame { kind, payload, .. }) = split else {
                return Ok(None);
            };
            match FrameKind::of(kind) {
                Some(FrameKind::Method) => {
                    let method =
                        Method::decode(payload).map_err(|error| Finding(format!("no method: {error}")))?;
                    if has_content(&method) {
                        self.method = Some(method);
                    } else {
                        return Ok(Some((method, Bytes::new())));
                    }
                }
                Some(FrameKind::Header) => {
                    let header = ContentHeader::decode(payload)
                        .map_err(|error| Finding(format!("no header: {error}")))?;
                    self.missing = usize::try_from(header.body_size).unwrap_or(usize::MAX);
                    self.properties = header.properties;
                    self.body.clear();
                }
                Some(FrameKind::Body) => {
                    self.missing = self.missing.saturating_sub(payload.len());
                    self.body.extend_from_slice(&payload);
                }
                Some(FrameKind::Heartbeat) | None => continue,
            }
            if self.missing == 0
                && matches!(FrameKind::of(kind), Some(FrameKind::Header | FrameKind::Body))
                && let Some(method) = self.method.take()
            {
                return Ok(Some((method, self.body.split().freeze())));
            }
        }
    }
}

fn has_content(method: &Method) -> bool {
    use stafett_amqp_wire::methods::Basic;
    matches!(
        method,
        Method::Basic(Basic::Deliver(_) | Basic::GetOk(_) | Basic::Return(_))
    )
}
