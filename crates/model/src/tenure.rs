//! The time for which answers from the state in memory are right.

use std::fmt::{self, Debug};
use std::sync::Arc;

/// The time for which a broker may answer. A process that was stopped for a while may have a successor whose
/// state is newer, and does not know it. For ever by default.
#[derive(Clone, Default)]
pub struct Tenure(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl Tenure {
    /// A tenure that lasts until `holds` returns false.
    pub fn new(holds: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(holds)))
    }

    /// Returns true if no other process can have taken over up to now.
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|holds| holds())
    }
}

impl Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tenure").field(&self.holds()).finish()
    }
}
