//! Why the process ends with an error: one sentence, and an exit code.

use std::fmt;
use std::process::ExitCode;

use crate::config::ConfigError;

/// Exit code 2 is for what the settings say, 1 for everything else.
#[derive(Debug)]
pub(crate) enum Failure {
    Config(ConfigError),
    Start(anyhow::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_) => ExitCode::from(2),
            Self::Start(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => write!(f, "{error}"),
            // With its causes, in one line.
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
