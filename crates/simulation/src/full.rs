//! A full disk: its duration, the use of the reserved space, and permitted refusals meanwhile.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use stafett_journal::{Append, Change, Frame, Journal, Outcome, StateChange, StateSpace, StateWait};

use crate::server::Server;
use crate::steps::{CLIENTS, PUBLISHERS, Settling};
use crate::world::{Broken, World};

/// State space for filler rows, which are never read.
const SPACE: StateSpace = StateSpace(60_000);
/// Sizes of filler rows, in bytes.
const PIECES: [usize; 3] = [16 << 10, 1 << 10, 32];
/// Maximum messages that each client settles while the disk is full.
const SETTLED_MAX: u8 = 30;
/// Maximum milliseconds to use up the reserve.
const PATIENCE_MS: u32 = 60_000;
/// Maximum appends of each size.
const PIECES_MAX: u32 = 200;

/// Used part of the reserved space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedUp {
    Nothing,
    /// State that frees no space, such as commits, finds none. Settlements continue.
    State,
    /// Settlements find no space either and wait.
    Settlements,
}

impl World {
    /// Leaves the disk almost no space for some time.
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
            // These settlements must be stored, or wait. Publishing connections are blocked and not read.
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

/// True if the journal accepts a row of state.
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
