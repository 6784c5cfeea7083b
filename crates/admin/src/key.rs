//! Header `Idempotency-Key`: a request that is sent again is stored once, and answered alike.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::HeaderMap;
use sha2::{Digest, Sha256};
use stafett_http::{Parameter, Problem};
use stafett_journal::RequestId;
use uuid::{Builder, Uuid};

use crate::caller::Caller;
use crate::sender::CONTEXT_MAX;

/// Hash of a key: it has its meaning within a scope and for one caller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key([u8; 16]);

/// The header, described.
pub(crate) const HEADER: Parameter = Parameter::text(
    "Idempotency-Key",
    "1 to 255 bytes: a request that is sent again with it is stored once, and answered alike.",
);

impl Key {
    pub(crate) fn of(headers: &HeaderMap, caller: &Caller, scope: &[&str]) -> Result<Option<Self>, Problem> {
        let Some(key) = headers.get("idempotency-key") else {
            return Ok(None);
        };
        if key.is_empty() || key.len() > 255 {
            return Err(Problem::bad_request("Idempotency-Key has 1 to 255 bytes"));
        }
        let mut hash = Sha256::new();
        let caller = caller.0.as_deref().unwrap_or_default();
        for part in scope.iter().copied().chain([caller]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update(key.as_bytes());
        Ok(Some(Self::first_of(hash)))
    }

    /// Returns the key of one message of a list.
    pub(crate) fn of_part(self, at: usize) -> Self {
        let parts = Sha256::new().chain_update(self.0);
        Self::first_of(parts.chain_update((at as u64).to_be_bytes()))
    }

    fn first_of(hash: Sha256) -> Self {
        let hash: [u8; 32] = hash.finalize().into();
        Self(hash.first_chunk().copied().unwrap_or_default())
    }

    /// Returns the id under which the journal stores the request once.
    pub(crate) fn request(self) -> RequestId {
        RequestId(self.0)
    }

    /// Returns the context of a request that is sent under this key.
    pub(crate) fn context(self) -> u64 {
        u64::from_le_bytes(self.0.first_chunk().copied().unwrap_or_default()) % CONTEXT_MAX
    }
}

/// Returns a new message id, or that of the message of a key.
pub(crate) fn message_id(key: Option<Key>) -> String {
    // Random numbers of the system are too slow for one a message.
    static OF_PROCESS: LazyLock<Key> = LazyLock::new(|| Key(Uuid::new_v4().into_bytes()));
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let part = key.map_or_else(
        || OF_PROCESS.of_part(NEXT.fetch_add(1, Ordering::Relaxed)),
        |key| key.of_part(0),
    );
    Builder::from_custom_bytes(part.0).into_uuid().to_string()
}
