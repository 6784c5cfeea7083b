//! AMQP exceptions: a code, a text, the method that caused it, and its scope.

use stafett_amqp_wire::methods::{channel, connection};
use stafett_amqp_wire::{DecodeError, Method, ReplyCode};

/// Class and number of a method; zeros mean no method.
pub(crate) type MethodId = (u16, u16);

/// Scope of an exception: closed with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Channel,
    Connection,
}

/// Reason for closing a channel or a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exception {
    pub code: ReplyCode,
    pub text: String,
    pub scope: Scope,
    pub method: MethodId,
}

impl Exception {
    /// Creates an exception with the scope that RabbitMQ uses for the code.
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

    /// Returns the text for the client: the code's name and the reason.
    pub(crate) fn reply_text(&self) -> String {
        if self.text.is_empty() {
            self.code.name().to_owned()
        } else {
            format!("{} - {}", self.code.name(), self.text)
        }
    }

    /// Returns the method that closes the channel or connection.
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

/// Returns the beginning of a payload as RabbitMQ shows it: as text if printable, else as numbers.
pub(crate) fn octets(payload: &[u8]) -> String {
    const SHOWN_MAX: usize = 48;
    let shown = payload.get(..payload.len().min(SHOWN_MAX)).unwrap_or_default();
    if shown.is_empty() {
        return "<<>>".to_owned();
    }
    if shown.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        return format!("<<\"{}\">>", String::from_utf8_lossy(shown));
    }
    let numbers: Vec<String> = shown.iter().map(ToString::to_string).collect();
    format!("<<{}>>", numbers.join(","))
}

/// Limits a reply text to 255 bytes; RabbitMQ ends longer texts with three dots.
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
            DecodeError::NotUtf8 => Self::new(ReplyCode::FrameError, "Malformed UTF-8 in shortstr"),
            DecodeError::TooShort
            | DecodeError::TooLong { .. }
            | DecodeError::UnknownFieldType(_)
            | DecodeError::TooDeep { .. }
            | DecodeError::UnknownProperty => {
                Self::new(ReplyCode::FrameError, format!("cannot decode: {error}"))
            }
            DecodeError::UnknownContent(class) => Self::new(
                ReplyCode::UnexpectedFrame,
                format!("expected content header for class 60, got one for class {class} instead"),
            ),
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
