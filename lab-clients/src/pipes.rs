//! Standard input and output as the lab's pipes. Other output to standard output goes to standard error from
//! then on, so that library messages do not get between the frames.

use std::io;
use std::os::fd::AsFd as _;

use tokio::net::unix::pipe::{Receiver, Sender};

/// Reserves both for the lab.
pub(crate) fn take() -> io::Result<(Receiver, Sender)> {
    let input = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((input, output))
}
