//! Client end of a connection within the process. Nothing here waits.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bytes::BytesMut;

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// A socket; clones share it.
#[derive(Debug, Clone)]
pub struct Socket {
    stream: Arc<UnixStream>,
    out: Vec<u8>,
    /// Received bytes that are not parsed yet.
    pub input: BytesMut,
    pub is_open: bool,
}

impl Socket {
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream: Arc::new(stream),
            out: Vec::new(),
            input: BytesMut::new(),
            is_open: true,
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.write();
    }

    /// Writes pending bytes and reads available ones, without waiting.
    pub fn turn(&mut self) {
        self.write();
        let mut buffer = vec![0; READ_BYTES];
        while self.is_open {
            match (&*self.stream).read(&mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(count) => self
                    .input
                    .extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
        }
    }

    fn write(&mut self) {
        while self.is_open && !self.out.is_empty() {
            match (&*self.stream).write(&self.out) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Bytes that the other side sent before it left can still be read.
                Err(_) => {
                    self.out.clear();
                    break;
                }
            }
        }
    }
}
