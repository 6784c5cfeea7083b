//! Standard input and output as the lab's pipes. What else would go to standard output goes to standard error
//! from then on, so that no library's word gets between the frames.

use std::io;
use std::os::fd::AsFd as _;

use tokio::net::unix::pipe::{Receiver, Sender};

/// Takes both for the lab.
pub(crate) fn take() -> io::Result<(Receiver, Sender)> {
    let input = Receiver::from_owned_fd(io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = Sender::from_owned_fd(io::stdout().as_fd().try_clone_to_owned()?)?;
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok((input, output))
}
