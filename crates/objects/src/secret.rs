//! Texts that a definition names and does not hold: `env:NAME` and `file:PATH`.

use std::fmt;

/// A text, or the place where it is found. It is shown as the place, and never as the text of a place.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Source);

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Plain(String),
    Environment(String),
    File(String),
}

/// A secret that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("the environment has no {0}")]
    NoVariable(String),
    #[error("the file {path} cannot be read: {why}")]
    NoFile { path: String, why: String },
}

impl Secret {
    /// Reads a reference, or a text that is none.
    pub fn parse(text: &str) -> Self {
        Self(if let Some(name) = text.strip_prefix("env:") {
            Source::Environment(name.to_owned())
        } else if let Some(path) = text.strip_prefix("file:") {
            Source::File(path.to_owned())
        } else {
            Source::Plain(text.to_owned())
        })
    }

    /// True if the definition itself holds the text.
    pub fn is_plain(&self) -> bool {
        matches!(self.0, Source::Plain(_))
    }

    /// Returns the text, as it is now.
    pub fn resolve(&self) -> Result<String, SecretError> {
        match &self.0 {
            Source::Plain(text) => Ok(text.clone()),
            Source::Environment(name) => {
                std::env::var(name).map_err(|_| SecretError::NoVariable(name.clone()))
            }
            Source::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => Ok(text.trim_end().to_owned()),
                Err(why) => Err(SecretError::NoFile {
                    path: path.clone(),
                    why: why.to_string(),
                }),
            },
        }
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Plain(text) => f.write_str(text),
            Source::Environment(name) => write!(f, "env:{name}"),
            Source::File(path) => write!(f, "file:{path}"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}
