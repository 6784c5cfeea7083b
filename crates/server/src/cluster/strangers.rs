//! Connections that have not proven yet to be from a node. If there are too many, the oldest gives way: nodes
//! prove themselves within milliseconds, and connections that say nothing keep no node out.

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_model::Lock;
use tokio_util::sync::CancellationToken;

/// Connections at once that have proven nothing.
const STRANGERS_MAX: usize = 256;

/// Tokens by order of arrival. A cancelled one is of a connection that gives way.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    tokens: BTreeMap<u64, CancellationToken>,
}

/// All connections without a proof.
#[derive(Debug, Default)]
pub(super) struct Strangers(Lock<Waiting>);

impl Strangers {
    /// Counts a connection. Too many: the oldest one gives way.
    pub(super) fn enter(self: &Arc<Self>) -> Stranger {
        let token = CancellationToken::new();
        let mut waiting = self.0.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.tokens.insert(number, token.clone());
        if waiting.tokens.len() > STRANGERS_MAX
            && let Some((_, oldest)) = waiting.tokens.pop_first()
        {
            oldest.cancel();
        }
        drop(waiting);
        Stranger {
            all: Arc::clone(self),
            number,
            token,
        }
    }
}

/// A connection without a proof. Dropped, it is counted no longer.
#[derive(Debug)]
pub(super) struct Stranger {
    all: Arc<Strangers>,
    number: u64,
    token: CancellationToken,
}

impl Stranger {
    /// Waits for a proof. `None` if the connection gave way to newer ones.
    pub(super) async fn unless_crowded_out<T>(self, proof: impl Future<Output = T>) -> Option<T> {
        self.token.run_until_cancelled(proof).await
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.all.0.lock().tokens.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn silent_connections_keep_no_node_out() {
        let strangers = Arc::new(Strangers::default());
        let first = strangers.enter();
        let mut silent: Vec<_> = (1..STRANGERS_MAX).map(|_| strangers.enter()).collect();
        assert!(silent.iter().all(|stranger| !stranger.token.is_cancelled()));
        let node = strangers.enter();
        assert_eq!(first.unless_crowded_out(pending::<()>()).await, None);
        assert_eq!(node.unless_crowded_out(async { 7 }).await, Some(7));
        // A place is free again.
        silent.push(strangers.enter());
        assert!(silent.iter().all(|stranger| !stranger.token.is_cancelled()));
        drop(silent);
        assert!(strangers.0.lock().tokens.is_empty());
    }
}
