//! A request's header: reads the body and encodes the response in the request's version.

use stafett_kafka_wire::{ApiKey, Decoder, Encoded, Request, frame};

use crate::close::Close;
use crate::response::{ResponseResult, answer_buffer};

/// Parts of the request header that an answer needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub api: ApiKey,
    pub version: i16,
    pub correlation_id: i32,
}

impl Call {
    pub(crate) fn answer<R: Request>(self, response: &R::Response) -> ResponseResult {
        Ok(self.encode::<R>(response)?.into())
    }

    pub(crate) fn encode<R: Request>(self, response: &R::Response) -> Result<Encoded, Close> {
        Ok(frame::write_response_into::<R>(
            answer_buffer(),
            self.version,
            self.correlation_id,
            response,
        )?)
    }

    pub(crate) fn read<R: Request>(self, body: Decoder) -> Result<R, Close> {
        Ok(frame::read_request(body, self.version)?)
    }
}
