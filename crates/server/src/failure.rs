//! Errors that end the process: one sentence and an exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::config::ConfigError;

/// Exit code 2 is for errors in settings or on the command line, 1 for all others.
#[derive(Debug)]
pub(crate) enum Failure {
    Config(ConfigError),
    Start(anyhow::Error),
    /// Arguments of the command line that exclude each other.
    Usage(String),
}

impl Failure {
    /// Returns true if the reader of standard output has closed it.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let Self::Start(error) = self else { return false };
        let causes = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes
            .into_iter()
            .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) | Self::Usage(_) => ExitCode::from(2),
            Self::Start(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            Self::Usage(text) => f.write_str(text),
            // The error with its causes, in one line.
            Self::Start(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Start(error)
    }
}
