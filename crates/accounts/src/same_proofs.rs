//! Logins with the same user and password at the same time: they have one turn together, so that the check
//! of the first answers those behind it, too.

use std::collections::HashMap;
use std::sync::Arc;

use stafett_access::TokenHash;
use stafett_model::Lock;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::LoginError;

/// Logins with one user and password that wait together; more are refused.
const WAITING_MAX: usize = 1024;

/// Proofs that are being checked.
#[derive(Debug, Default)]
pub(super) struct SameProofs(Arc<Lock<HashMap<TokenHash, Waiting>>>);

#[derive(Debug)]
struct Waiting {
    turn: Arc<Semaphore>,
    count: usize,
}

/// A login among those with the same proof.
pub(super) struct SameProof {
    all: Arc<Lock<HashMap<TokenHash, Waiting>>>,
    proof: TokenHash,
    turn: Arc<Semaphore>,
}

impl SameProofs {
    /// # Errors
    /// [`LoginError::Busy`] if too many wait.
    pub(super) fn enter(&self, proof: TokenHash) -> Result<SameProof, LoginError> {
        let mut all = self.0.lock();
        let waiting = all.entry(proof).or_insert_with(|| Waiting {
            turn: Arc::new(Semaphore::new(1)),
            count: 0,
        });
        if waiting.count >= WAITING_MAX {
            return Err(LoginError::Busy);
        }
        waiting.count += 1;
        let turn = Arc::clone(&waiting.turn);
        let all = Arc::clone(&self.0);
        Ok(SameProof { all, proof, turn })
    }
}

impl SameProof {
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, LoginError> {
        self.turn.acquire().await.map_err(|_| LoginError::Busy)
    }
}

impl Drop for SameProof {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        let Some(waiting) = all.get_mut(&self.proof) else {
            return;
        };
        waiting.count -= 1;
        if waiting.count == 0 {
            all.remove(&self.proof);
        }
    }
}
