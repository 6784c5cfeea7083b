//! A connection with pipelined requests and ordered answers.

use std::collections::VecDeque;

use bytes::Bytes;
use stafett_kafka_wire::{DecodeLimits, Request, Str, frame};

use crate::wire::Socket;
use crate::world::Finding;

#[derive(Debug, Clone)]
pub struct Connection {
    pub socket: Socket,
    correlation: i32,
    /// Correlation ids of pending answers.
    waiting: VecDeque<i32>,
}

impl Connection {
    pub fn new(socket: Socket) -> Self {
        Self {
            socket,
            correlation: 0,
            waiting: VecDeque::new(),
        }
    }

    pub fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation += 1;
        let name = Some(Str::from_static("simulated"));
        if let Ok(encoded) = frame::write_request(version, self.correlation, name, request) {
            self.socket.send(&encoded.into_bytes());
            self.waiting.push_back(self.correlation);
        }
    }

    pub fn turn(&mut self) {
        self.socket.turn();
    }

    /// True if the broker has ended the connection.
    pub fn is_cut(connection: Option<&Self>) -> bool {
        connection.is_some_and(|connection| !connection.socket.is_open)
    }

    /// Returns the next answer if it has arrived.
    pub fn answer(&mut self) -> Option<Bytes> {
        let length = self.socket.input.first_chunk::<4>()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        if self.socket.input.len() < 4 + length {
            return None;
        }
        Some(self.socket.input.split_to(4 + length).freeze().slice(4..))
    }

    /// Decodes an answer, which must belong to the oldest pending request.
    pub fn read<R: Request>(&mut self, version: i16, answer: Bytes) -> Result<R::Response, Finding> {
        let read = frame::read_response::<R>(answer, version, DecodeLimits::default());
        let (correlation, response) =
            read.map_err(|error| Finding(format!("an answer cannot be read: {error}")))?;
        if self.waiting.pop_front() != Some(correlation) {
            return Err(Finding("answers do not come in order".to_owned()));
        }
        Ok(response)
    }
}
