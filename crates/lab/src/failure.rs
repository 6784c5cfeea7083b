//! Errors that end the process: one sentence, and an exit code.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// An error that ends the process.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 1.
    Run(anyhow::Error),
    /// A mistake on the command line or in a file that it names; exit code 2.
    Usage(String),
}

impl Failure {
    /// True if the reader of standard output has closed it.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        let Self::Run(error) = self else { return false };
        let mut causes = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Run(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) => f.write_str(text),
            // With its causes, in one line.
            Self::Run(error) => write!(f, "{error:#}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}
