//! Names of topics.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of the longest name.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// A legal topic name: 1 to 249 of the characters `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`. Cheap to
/// clone.
///
/// These are Kafka's rules (`org.apache.kafka.common.internals.Topic`). Kafka also refuses to create a name
/// that differs from an existing one only by `.` and `_`; that depends on other topics and is not checked
/// here.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Reason why a text is not a topic name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopicNameError {
    #[error("a topic name is empty")]
    Empty,
    #[error("a topic name is {bytes} bytes long: at most 249 are allowed")]
    TooLong { bytes: usize },
    #[error("a topic cannot be named \".\" or \"..\"")]
    Dots,
    #[error("a topic name holds {found:?} at byte {at}: only a-z, A-Z, 0-9, '.', '_' and '-' are allowed")]
    Character { found: char, at: usize },
}

impl TopicName {
    pub fn new(text: &str) -> Result<Self, TopicNameError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }

    /// Checks that `text` is a legal name, without allocating one.
    pub fn check(text: &str) -> Result<(), TopicNameError> {
        if text.is_empty() {
            return Err(TopicNameError::Empty);
        }
        if text.len() > TOPIC_NAME_BYTES_MAX {
            return Err(TopicNameError::TooLong { bytes: text.len() });
        }
        if text == "." || text == ".." {
            return Err(TopicNameError::Dots);
        }
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match text.char_indices().find(|(_, c)| !legal(*c)) {
            Some((at, found)) => Err(TopicNameError::Character { found, at }),
            None => Ok(()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TopicName {
    type Err = TopicNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl AsRef<str> for TopicName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_legal_characters_and_length_are_taken() {
        for name in ["a", "...", "A.b_c-9", "__consumer_offsets", &"x".repeat(249)] {
            assert_eq!(TopicName::new(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(TopicName::new(""), Err(TopicNameError::Empty));
        assert_eq!(TopicName::new("."), Err(TopicNameError::Dots));
        assert_eq!(TopicName::new(".."), Err(TopicNameError::Dots));
        assert_eq!(
            TopicName::new(&"x".repeat(250)),
            Err(TopicNameError::TooLong { bytes: 250 })
        );
        for (name, found, at) in [
            ("a b", ' ', 1),
            ("é", 'é', 0),
            ("a/b", '/', 1),
            ("nul\0", '\0', 3),
        ] {
            assert_eq!(TopicName::new(name), Err(TopicNameError::Character { found, at }));
        }
    }
}
