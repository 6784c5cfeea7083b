//! Connections to the owners of a cluster's cells.

use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;

use crate::stream::Duplex;

/// Connection to the owner of a cell.
pub struct ToCell {
    pub stream: Box<dyn Duplex>,
    /// Done once that node owns the cell no longer, or does not answer.
    pub lost: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Debug for ToCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToCell")
    }
}

/// Connection to a cell. `None` if that has no owner for a while.
pub type Reached<'a> = Pin<Box<dyn Future<Output = Option<ToCell>> + Send + 'a>>;
