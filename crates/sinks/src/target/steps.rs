//! Named steps of a flush, at which tests end a sink.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::TargetError;

type Hook = dyn Fn(&'static str) -> Result<(), TargetError> + Send + Sync;

/// Observer of the steps of a target; by default there is none.
#[derive(Clone, Default)]
pub struct Steps(Option<Arc<Hook>>);

impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Steps({})", self.0.is_some())
    }
}

impl Steps {
    pub fn new(hook: impl Fn(&'static str) -> Result<(), TargetError> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Ends the process when a step is reached for the n-th time: `STEP:N`. `None` if the text is no place.
    pub fn dying_at(text: &str) -> Option<Self> {
        let (wanted, count) = text.split_once(':')?;
        let (wanted, count) = (wanted.to_owned(), count.parse::<u64>().ok()?);
        let reached = AtomicU64::new(0);
        Some(Self::new(move |step| {
            if step == wanted && reached.fetch_add(1, Ordering::Relaxed) + 1 == count {
                std::process::abort();
            }
            Ok(())
        }))
    }

    /// Notes that a step is done.
    pub fn reach(&self, step: &'static str) -> Result<(), TargetError> {
        self.0.as_ref().map_or(Ok(()), |hook| hook(step))
    }
}
