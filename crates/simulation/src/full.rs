//! A full disk: for how long, what is used up of the space that is kept back, and what may be refused
//! meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_journal::{Append, Change, Frame, Journal, Outcome, StateChange, StateSpace, StateWait};

use crate::server::Server;
use crate::steps::{CLIENTS, PUBLISHERS, Settling};
use crate::world::{Broken, World};

/// State that nobody reads.
const SPACE: StateSpace = StateSpace(60_000);
/// Sizes of what fills it, in bytes.
const PIECES: [usize; 3] = [16 << 10, 1 << 10, 32];
/// Messages that each client settles then, at most.
const SETTLED_MAX: u8 = 30;
/// Using up takes less, in milliseconds.
const PATIENCE_MS: u32 = 60_000;
/// Appends of each size, at most.
const PIECES_MAX: u32 = 200;

/// What is used up of the space that is kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedUp {
    Nothing,
    /// All that state may use that frees nothing, such as commits: settlements go on.
    State,
    /// All that settlements may use, too: they wait.
    Settlements,
}

impl World {
    /// The disk has almost no space for some time; then there is enough again.
    pub async fn fill_disk(
        &mut self,
        server: &mut Server,
        for_ms: u32,
        used_up: UsedUp,
    ) -> Result<(), Broken> {
        self.begin_full(PATIENCE_MS, used_up);
        let is_used_up = self.use_up(server, used_up).await;
        self.begin_full(for_ms, used_up);
        if used_up != UsedUp::Nothing {
            // What is settled now has to be stored all the same, or to wait. Connections that publish are not
            // heard.
            (PUBLISHERS..CLIENTS).for_each(|client| self.settle(client, SETTLED_MAX, Settling::Ack));
        }
        is_used_up
    }

    async fn use_up(&mut self, server: &mut Server, used_up: UsedUp) -> Result<(), Broken> {
        self.tick(server).await?;
        let frees_space = match used_up {
            UsedUp::Nothing => return Ok(()),
            UsedUp::State => false,
            UsedUp::Settlements => true,
        };
        for bytes in PIECES {
            for _ in 0..PIECES_MAX {
                if !takes(&*server.journal, bytes, frees_space) {
                    break;
                }
                self.tick(server).await?;
            }
        }
        Ok(())
    }
}

/// Whether the journal takes some state.
fn takes(journal: &dyn Journal, bytes: usize, frees_space: bool) -> bool {
    let frame = Frame::State(StateChange {
        space: SPACE,
        key: Bytes::from_static(b"filler"),
        change: Change::Put(vec![0; bytes].into()),
    });
    let append = Append {
        frees_space,
        ..Append::state([frame], StateWait::Written)
    };
    let mut ticket = journal.append(vec![append]);
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut ticket).poll(&mut context) {
        Poll::Pending => true,
        Poll::Ready(outcomes) => matches!(outcomes.as_slice(), [Outcome::Committed(_)]),
    }
}
