//! Strings that are slices of a frame.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use bytestring::ByteString;

/// A string that shares the bytes of a frame: reading and cloning it allocate nothing.
///
/// It keeps its frame alive. A text that outlives the request is copied with [`Str::detach`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Str(ByteString);

impl Str {
    pub const fn from_static(text: &'static str) -> Self {
        Self(ByteString::from_static(text))
    }

    /// Returns a string that owns a copy of `text`.
    pub fn copy_from(text: &str) -> Self {
        Self(ByteString::from(text))
    }

    /// Returns a copy in memory of its own, which does not keep a frame alive.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self::copy_from(self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the bytes, shared.
    pub fn into_bytes(self) -> Bytes {
        self.0.into_bytes()
    }
}

/// Error for bytes that are not UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not UTF-8")]
pub struct NotUtf8;

impl TryFrom<Bytes> for Str {
    type Error = NotUtf8;

    fn try_from(bytes: Bytes) -> Result<Self, Self::Error> {
        ByteString::try_from(bytes).map(Self).map_err(|_| NotUtf8)
    }
}

impl From<&'static str> for Str {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(ByteString::from(text))
    }
}

impl From<&String> for Str {
    fn from(text: &String) -> Self {
        Self::copy_from(text)
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
