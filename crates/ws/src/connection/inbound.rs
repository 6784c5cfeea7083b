//! Bytes of a client: read within bounds, cut into frames, and given to the session.

use std::collections::VecDeque;
use std::io;

use bytes::{Buf, BytesMut};
use stafett_net::Arrival;
use stafett_net::registry::Wait;
use tokio::time::Instant;

use super::{
    Ended, FIN, PARTIAL_READ_BYTES, READ, READ_AHEAD_BYTES, READ_BYTES, Running, Silence, TEXTS_MAX,
    UNSENT_MAX,
};
use crate::frame::{self, Decoded, Event, FrameError};
use crate::session::{Incoming, Session, Step};
use crate::traced::Traced;

impl<S: Session> Running<S> {
    pub(super) fn may_read(&self) -> bool {
        !self.closing
            && !self.is_behind
            && self.working.is_none()
            && self.held.is_empty()
            && self.outbound.len() < UNSENT_MAX
    }

    /// Returns true if bytes are read during long work, to notice the end of the peer.
    pub(super) fn reads_ahead(&self) -> bool {
        self.working.is_some()
            && !self.closing
            && self.inbound.len() < READ_AHEAD_BYTES
            && self.session.works_long()
    }

    /// Reads once and processes the bytes. Returns false if the peer has closed its side.
    pub(super) fn read(&mut self) -> Result<bool, Ended> {
        let intake = self.session.intake().filter(|intake| intake.is_used());
        let refuses = intake.map(|intake| intake.refuses(Instant::now(), None));
        let sheds = refuses.is_some();
        self.session.set_refuses(refuses.unwrap_or(false));
        let room = if self.inbound.is_empty() {
            READ_BYTES
        } else {
            PARTIAL_READ_BYTES
        };
        let traced = Traced::begin(&self.connection);
        let read = if self.inbound.is_empty() {
            READ.with_borrow_mut(|buffer| {
                let count = self.connection.stream.try_read(buffer)?;
                if let Some(bytes) = buffer.get_mut(..count) {
                    let used = self.look_at(bytes);
                    self.inbound
                        .extend_from_slice(bytes.get(used..).unwrap_or_default());
                }
                Ok(count)
            })
        } else {
            self.inbound.reserve(PARTIAL_READ_BYTES);
            let count = self.connection.stream.try_read_buf(&mut self.inbound);
            if count.is_ok() {
                self.process_inbound();
            }
            count
        };
        match read {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.connection.entry.on_received(count);
                self.silence = Silence::Heard;
                if let Some(mut traced) = traced {
                    traced.on_processed(count);
                    self.traced = Some(traced);
                }
                self.work();
                if self.working.is_none() {
                    self.write_traced();
                }
                if sheds {
                    self.note_what_is_left(count >= room);
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let Some(intake) = self.session.intake() {
                    intake.on_drained();
                }
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads bytes that wait until the work is done. False if the peer has closed its side.
    pub(super) fn read_ahead(&mut self) -> Result<bool, Ended> {
        self.inbound.reserve(PARTIAL_READ_BYTES);
        match self.connection.stream.try_read_buf(&mut self.inbound) {
            Ok(count) => {
                self.connection.entry.on_received(count);
                self.silence = Silence::Heard;
                Ok(count > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Continues with bytes and messages received earlier.
    pub(super) fn process(&mut self) {
        self.is_behind = false;
        while let Some(message) = self.held.pop_front() {
            self.is_behind = self.outbound.len() >= UNSENT_MAX;
            let incoming = message.as_deref().map_err(|why| &**why);
            if self.is_behind || self.session.on_message(incoming, &mut self.outbound) == Step::AfterWork {
                self.held.push_front(message);
                break;
            }
        }
        if self.held.is_empty() {
            self.held = VecDeque::new();
            self.process_inbound();
        }
        self.work();
    }

    fn process_inbound(&mut self) {
        let mut inbound = std::mem::take(&mut self.inbound);
        let used = self.look_at(&mut inbound);
        inbound.advance(used);
        if inbound.is_empty() {
            // An idle connection owns no buffer.
            inbound = BytesMut::new();
            if !self.decoder.is_in_message() {
                self.memory = None;
            }
        }
        self.inbound = inbound;
    }

    /// Processes the frames in `bytes` one by one; returns the number of bytes used.
    fn look_at(&mut self, mut bytes: &mut [u8]) -> usize {
        let mut used = 0;
        self.is_behind = false;
        while !self.closing && self.held.is_empty() && !bytes.is_empty() {
            // Answers may be far larger than their commands.
            if self.outbound.len() >= UNSENT_MAX {
                self.is_behind = true;
                break;
            }
            if self.session.takes_several() && bytes.first() == Some(&frame::WHOLE_TEXT) {
                let (count, behind) = self.look_at_texts(std::mem::take(&mut bytes));
                used += count;
                bytes = behind;
                if count > 0 || self.closing {
                    continue;
                }
            }
            let (count, event) = match self.decoder.decode(bytes) {
                Ok(Decoded::Incomplete(_)) => break,
                Ok(Decoded::Frame { bytes, event }) => (bytes, event),
                Err(error) => {
                    self.refuse(error);
                    break;
                }
            };
            // Control frames between fragments do not extend the time allowed for a message.
            let is_whole = matches!(event, Event::Text(_) | Event::Binary(_));
            match event {
                Event::Text(text) => {
                    if self.session.on_message(Ok(text), &mut self.outbound) == Step::AfterWork {
                        self.held.push_back(Ok(text.into()));
                    }
                }
                Event::Binary(bytes) => {
                    let read = self.session.read_binary(bytes);
                    let incoming: Incoming<'_> = read.as_deref().map_err(String::as_str);
                    if self.session.on_message(incoming, &mut self.outbound) == Step::AfterWork {
                        self.held.push_back(read.map(Into::into).map_err(Into::into));
                    }
                }
                Event::Ping(payload) => frame::put_pong(payload, &mut self.outbound),
                Event::Pong | Event::Fragment => {}
                Event::Close(code) => {
                    frame::put_close(code.unwrap_or(1000), "", &mut self.outbound);
                    self.closing = true;
                }
            }
            if is_whole {
                self.partial_since = None;
            }
            used += count;
            bytes = bytes.get_mut(count..).unwrap_or_default();
        }
        used
    }

    /// Processes several unfragmented text messages at once. Returns the number of bytes used, and the rest.
    fn look_at_texts<'a>(&mut self, bytes: &'a mut [u8]) -> (usize, &'a mut [u8]) {
        let mut texts = Vec::with_capacity(TEXTS_MAX);
        let taken = self.decoder.texts(bytes, TEXTS_MAX, &mut texts);
        if !texts.is_empty() {
            self.partial_since = None;
            let done = self.session.on_texts(&texts, UNSENT_MAX, &mut self.outbound);
            let left = texts.get(done..).unwrap_or_default();
            self.is_behind = !left.is_empty() && self.outbound.len() >= UNSENT_MAX;
            self.held.extend(left.iter().map(|text| Ok(Box::from(*text))));
        }
        if let Some(error) = taken.error {
            self.refuse(error);
        }
        (taken.bytes, taken.rest)
    }

    fn refuse(&mut self, error: FrameError) {
        self.connection.entry.metrics.error("websocket");
        self.session.on_refused(error, &mut self.outbound);
        self.close(error.close_code(), &error.to_string());
    }

    /// Starts the gathered work.
    fn work(&mut self) {
        if self.working.is_none()
            && let Some(work) = self.session.take_work()
        {
            self.working = Some(work);
        }
    }

    pub(super) fn is_partial(&self) -> bool {
        !self.inbound.is_empty() || self.decoder.is_in_message()
    }

    /// Reserves memory for the rest of an incomplete message before it is read.
    pub(super) async fn reserve(&mut self) -> Result<(), Ended> {
        if self.working.is_some() || self.closing || self.is_behind || !self.is_partial() {
            return Ok(());
        }
        let Some(frame_bytes) = self.decoder.frame_bytes(&self.inbound) else {
            return Ok(());
        };
        // The size of a fragmented message is not known in advance.
        let is_one_frame =
            !self.decoder.is_in_message() && self.inbound.first().is_some_and(|byte| byte & FIN != 0);
        let expected = if is_one_frame {
            frame_bytes
        } else {
            frame_bytes.max(self.message_bytes_max)
        };
        let budget = &self.connection.budget;
        let memory = match self.memory.take().filter(|memory| memory.expected() >= expected) {
            Some(memory) => memory,
            None => {
                if let Some(memory) = Arrival::try_begin(budget, expected) {
                    memory
                } else {
                    let _waiting = self.connection.entry.waiting(Wait::Memory);
                    let begun = Arrival::begin(budget, expected).await;
                    begun.map_err(|_| Ended::Budget)?
                }
            }
        };
        let memory = self.memory.insert(memory);
        let needed = self.inbound.len() + self.decoder.held_bytes() + PARTIAL_READ_BYTES;
        while memory.room() < needed && !memory.is_whole() {
            if !memory.try_grow() {
                let _waiting = self.connection.entry.waiting(Wait::Memory);
                memory.grow().await.map_err(|_| Ended::Budget)?;
            }
        }
        Ok(())
    }

    /// Returns the time for the next look at the incomplete message. `never` if there is none.
    pub(super) fn window_end(&mut self, never: Instant) -> Instant {
        let received = self.inbound.len() + self.decoder.held_bytes();
        self.memory
            .as_mut()
            .map_or(never, |memory| memory.window_end(Instant::now(), received))
    }

    /// Ends the connection if the window of its message has ended without progress while others wait for
    /// memory.
    pub(super) fn look_at_arrival(&mut self) -> Result<(), Ended> {
        let received = self.inbound.len() + self.decoder.held_bytes();
        let (memory, now) = (self.memory.as_mut(), Instant::now());
        if memory.is_some_and(|memory| memory.is_due(now) && memory.gives_way(now, received)) {
            return Err(Ended::GaveWay);
        }
        Ok(())
    }
}
