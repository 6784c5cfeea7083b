//! What goes wrong in the words of AMQP: a code, a text, the method that caused it, and what ends.

use stafett_amqp_wire::methods::{channel, connection};
use stafett_amqp_wire::{DecodeError, Method, ReplyCode};

/// A method by its numbers; zeros are none.
pub(crate) type MethodId = (u16, u16);

/// What ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Channel,
    Connection,
}

/// The end of a channel or of a connection, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exception {
    pub code: ReplyCode,
    pub text: String,
    pub scope: Scope,
    pub method: MethodId,
}

impl Exception {
    /// What ends is what RabbitMQ ends for the code.
    pub(crate) fn new(code: ReplyCode, text: impl Into<String>) -> Self {
        let scope = if code.is_hard() {
            Scope::Connection
        } else {
            Scope::Channel
        };
        Self {
            code,
            text: text.into(),
            scope,
            method: (0, 0),
        }
    }

    pub(crate) fn not_found(text: impl Into<String>) -> Self {
        Self::new(ReplyCode::NotFound, text)
    }

    pub(crate) fn precondition(text: impl Into<String>) -> Self {
        Self::new(ReplyCode::PreconditionFailed, text)
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::new(ReplyCode::AccessRefused, text)
    }

    pub(crate) fn not_allowed(text: impl Into<String>) -> Self {
        Self::new(ReplyCode::NotAllowed, text)
    }

    pub(crate) fn caused_by(mut self, method: MethodId) -> Self {
        if self.method == (0, 0) {
            self.method = method;
        }
        self
    }

    pub(crate) fn ending(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// The text that a client gets: the code's name and what was wrong.
    pub(crate) fn reply_text(&self) -> String {
        if self.text.is_empty() {
            self.code.name().to_owned()
        } else {
            format!("{} - {}", self.code.name(), self.text)
        }
    }

    /// The method that tells the client.
    pub(crate) fn close(&self) -> Method {
        let reply_text = cut(self.reply_text()).into();
        let (class_id, method_id) = self.method;
        match self.scope {
            Scope::Channel => channel::Close {
                reply_code: self.code.code(),
                reply_text,
                class_id,
                method_id,
            }
            .into(),
            Scope::Connection => connection::Close {
                reply_code: self.code.code(),
                reply_text,
                class_id,
                method_id,
            }
            .into(),
        }
    }
}

/// A reply text has 255 bytes at most; RabbitMQ ends longer ones with three dots.
fn cut(mut text: String) -> String {
    if text.len() > 255 {
        text.truncate(text.floor_char_boundary(252));
        text.push_str("...");
    }
    text
}

impl From<DecodeError> for Exception {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::UnknownMethod { class, method } => Self::new(
                ReplyCode::CommandInvalid,
                format!("unknown method {class}.{method}"),
            ),
            DecodeError::TooShort
            | DecodeError::TooLong { .. }
            | DecodeError::NotUtf8
            | DecodeError::UnknownFieldType(_)
            | DecodeError::TooDeep { .. }
            | DecodeError::UnknownProperty => Self::new(ReplyCode::SyntaxError, error.to_string()),
            DecodeError::UnknownContent(_) => Self::new(ReplyCode::UnexpectedFrame, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_to_what_a_short_string_holds() {
        let long = Exception::not_found("ö".repeat(300));
        let Method::Channel(stafett_amqp_wire::methods::Channel::Close(close)) = long.close() else {
            panic!("a missing thing ends the channel");
        };
        assert!(close.reply_text.len() <= 255);
        assert!(close.reply_text.starts_with("NOT_FOUND - ö"));
        assert!(close.reply_text.ends_with("ö..."));
    }
}
