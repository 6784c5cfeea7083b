//! The machine behind a connection, without I/O: it is fed messages, and produces answers and work.

use std::future::pending;
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use stafett_net::{ConnectionEntry, Intake};

use crate::connection::Working;
use crate::frame::FrameError;

/// A message of the peer: its text, or the reason why it has none.
pub type Incoming<'a> = Result<&'a str, &'a str>;

/// Result of feeding a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Done,
    /// Feed the message again when the work gathered so far is done.
    AfterWork,
}

/// End of a connection: a code of RFC 6455, section 7.4, and a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    pub code: u16,
    pub reason: &'static str,
}

/// A synchronous machine. Whatever it must wait for it gathers as work, which its connection runs.
pub trait Session: Send + Sync {
    /// Outcome of work.
    type Done: Send + 'static;

    /// Adds the connection to which the session belongs, before anything else.
    fn attach(&mut self, entry: &Arc<ConnectionEntry>);

    /// Returns the rule by which messages that wait too long are refused. `None` if the session refuses none.
    fn intake(&mut self) -> Option<&mut Intake> {
        None
    }

    /// Says whether the messages of the next read are refused.
    fn set_refuses(&mut self, _refuses: bool) {}

    /// Converts a binary message to text. The error is a reason.
    fn read_binary(&self, bytes: &[u8]) -> Result<String, String>;

    /// Executes a message; answers are appended to `out`.
    fn on_message(&mut self, message: Incoming<'_>, out: &mut BytesMut) -> Step;

    /// Appends an answer to a message that ends the connection, if there is one.
    fn on_refused(&mut self, _why: FrameError, _out: &mut BytesMut) {}

    /// Returns true if [`Self::on_texts`] is worthwhile now.
    fn takes_several(&self) -> bool {
        false
    }

    /// Executes messages that arrived together and returns the number executed. The others are fed again
    /// when the work gathered so far is done or `out` has become shorter than `out_max`.
    fn on_texts(&mut self, texts: &[&str], out_max: usize, out: &mut BytesMut) -> usize {
        let mut texts_left = texts.iter();
        let stopped = texts_left
            .position(|text| out.len() >= out_max || self.on_message(Ok(text), out) == Step::AfterWork);
        stopped.unwrap_or(texts.len())
    }

    /// Takes the gathered work, which has begun when this returns. `None` if there is none.
    fn take_work(&mut self) -> Option<Working<Self::Done>>;

    /// Returns true if the work in progress may take long.
    fn works_long(&self) -> bool {
        false
    }

    /// Appends the answers that waited for the work.
    fn on_done(&mut self, done: Self::Done, out: &mut BytesMut);

    /// Waits until there is something to push.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        pending()
    }

    /// Returns false if nothing may be sent any more, as the state of the session may be old.
    fn may_answer(&self) -> bool {
        true
    }

    /// Appends messages that the peer did not ask for to `out`, which is empty.
    fn push(&mut self, out: &mut BytesMut) -> Result<(), Close>;

    /// Writes once from `out`.
    fn write<E>(
        &self,
        out: &mut BytesMut,
        write: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let count = write(out)?;
        out.advance(count);
        Ok(count)
    }

    /// Records that everything put into `out` so far is sent.
    fn on_all_sent(&mut self) {}
}
