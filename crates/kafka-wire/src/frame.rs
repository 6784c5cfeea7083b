//! Whole frames: a length prefix of four bytes (removed before a frame is read), a header, one message.
//!
//! ```text
//! request   i16 API key, i16 version, i32 correlation id, client id, [tags]   message
//! response  i32 correlation id, [tags]                                        message
//! ```
//!
//! A server reads the header, then the body as the header's API and version. A client takes API and version
//! of a response from the request that it sent.

use bytes::{Bytes, BytesMut};

use crate::decode::{DecodeLimits, Decoder};
use crate::encode::Encoder;
use crate::encoded::Encoded;
use crate::errors::{DecodeError, EncodeError};
use crate::generated::api_key::ApiKey;
use crate::header::{RequestHeader, ResponseHeader};
use crate::str::Str;
use crate::wire::{Message, Request, Wire as _};

/// Reads the header of a request frame. The returned decoder holds the body, for [`read_request`].
pub fn open_request(frame: Bytes, limits: DecodeLimits) -> Result<(RequestHeader, Decoder), DecodeError> {
    let mut body = Decoder::new(frame, limits);
    let header = RequestHeader::decode(&mut body)?;
    Ok((header, body))
}

/// Reads the body of a request whose header named `R`'s API and `version`.
///
/// Bytes behind the message are ignored, as Kafka does: librdkafka 2.16 sends some behind its Metadata
/// requests. Two checks are stricter than Kafka's: strings have to be UTF-8, and known tagged fields have to
/// fill their stated length. No client in use sends other requests.
pub fn read_request<R: Request>(mut body: Decoder, version: i16) -> Result<R, DecodeError> {
    read(&mut body, R::KEY, version)
}

/// Writes a response of `R`'s API, in the request's version.
pub fn write_response<R: Request>(
    version: i16,
    correlation_id: i32,
    response: &R::Response,
) -> Result<Encoded, EncodeError> {
    write_response_into::<R>(BytesMut::with_capacity(256), version, correlation_id, response)
}

/// Writes a response like [`write_response`], with `buffer` for the small parts.
pub fn write_response_into<R: Request>(
    buffer: BytesMut,
    version: i16,
    correlation_id: i32,
    response: &R::Response,
) -> Result<Encoded, EncodeError> {
    check_version::<R::Response>(version)?;
    let mut e = Encoder::frame_into(buffer);
    ResponseHeader { correlation_id }.encode(&mut e, R::KEY, version);
    response.encode(&mut e, version);
    e.finish()
}

/// Writes a request.
pub fn write_request<R: Request>(
    version: i16,
    correlation_id: i32,
    client_id: Option<Str>,
    request: &R,
) -> Result<Encoded, EncodeError> {
    check_version::<R>(version)?;
    let mut e = Encoder::frame();
    RequestHeader {
        api: R::KEY,
        version,
        correlation_id,
        client_id,
    }
    .encode(&mut e);
    request.encode(&mut e, version);
    e.finish()
}

/// Returns the correlation id of a response frame. `None` if the frame is too short to have one.
pub fn correlation_id(frame: &[u8]) -> Option<i32> {
    frame.first_chunk().copied().map(i32::from_be_bytes)
}

/// Reads a response frame to a request of `R`'s API and `version`.
pub fn read_response<R: Request>(
    frame: Bytes,
    version: i16,
    limits: DecodeLimits,
) -> Result<(i32, R::Response), DecodeError> {
    let mut body = Decoder::new(frame, limits);
    let header = ResponseHeader::decode(&mut body, R::KEY, version)?;
    Ok((header.correlation_id, read_whole(body, R::KEY, version)?))
}

fn read_whole<M: Message>(mut body: Decoder, api: ApiKey, version: i16) -> Result<M, DecodeError> {
    let message = read(&mut body, api, version)?;
    body.finish()?;
    Ok(message)
}

fn read<M: Message>(body: &mut Decoder, api: ApiKey, version: i16) -> Result<M, DecodeError> {
    if !M::VERSIONS.contains(version) {
        return Err(DecodeError::UnsupportedVersion { api, version });
    }
    M::decode(body, version)
}

fn check_version<M: Message>(version: i16) -> Result<(), EncodeError> {
    if M::VERSIONS.contains(version) {
        return Ok(());
    }
    Err(EncodeError::Version {
        message: M::NAME,
        version,
    })
}
