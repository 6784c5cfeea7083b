//! Messages that an administrator moves between queues while clients use both.

use std::time::Duration;

use stafett_model::Namespace;

use super::copies::{Copies, Settled, Stored};
use super::{ASIDE, DEAD, LATE, QUEUES};
use crate::random::Random;
use crate::server::Server;
use crate::world::{Broken, Finding, World};

/// Maximum milliseconds that a move may take.
const PATIENCE_MS: u32 = 60_000;
/// Source queues. Moves between these and [`TARGETS`] never bring two copies of a message into one queue.
const SOURCES: [u8; 5] = [0, 1, DEAD, LATE, ASIDE];
const TARGETS: [u8; 2] = [0, ASIDE];

/// A move of up to `count` messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    from: u8,
    to: u8,
    count: u8,
}

impl Move {
    pub fn draw(random: &mut Random) -> Self {
        Self {
            from: random.pick(&SOURCES),
            to: random.pick(&TARGETS),
            count: random.pick(&[1, 5, 20, u8::MAX]),
        }
    }
}

impl World {
    /// Moves messages and waits until the move is done.
    pub async fn move_messages(&mut self, server: &mut Server, step: Move) -> Result<(), Broken> {
        let Move { from, to, count } = step;
        let queue = |number: u8| {
            let name = QUEUES.get(usize::from(number)).copied().unwrap_or_default();
            server
                .broker
                .messaging()
                .queues()
                .get(&Namespace::default(), name)
        };
        let (Some(source), Some(target)) = (queue(from), queue(to)) else {
            return Err(Finding("a queue is gone".to_owned()).into());
        };
        if from == to {
            return Ok(());
        }
        let now_ms = self.now_ms();
        self.amqp.copies.begin_move(from, to, now_ms);
        let moving = server
            .broker
            .messaging()
            .move_messages(&source, &target, count.into());
        drop((source, target));
        let Ok(moved) = self.wait_for(server, moving).await? else {
            // The journal failed.
            return Ok(());
        };
        self.amqp.copies.on_consumer_end(from, self.now_ms());
        self.trace
            .note(|| format!("{moved:?} from queue {from} to queue {to}"));
        if moved.stopped.is_some() && !self.amqp.copies.was_full_since(now_ms) && !self.has_failed() {
            return Err(Finding(format!("a move ended before its time: {moved:?}")).into());
        }
        Ok(())
    }

    /// Lets simulated time pass until `work` is done.
    pub async fn wait_for<T>(
        &mut self,
        server: &mut Server,
        work: impl Future<Output = T>,
    ) -> Result<T, Broken> {
        let mut work = std::pin::pin!(work);
        for _ in 0..PATIENCE_MS {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = tokio::time::sleep(Duration::ZERO) => {}
            }
            self.tick(server).await?;
        }
        Err(Finding("something does not end".to_owned()).into())
    }
}

impl Copies {
    /// Begins a move: copies that may be in `from` may be in `to` from now on, and count as new there.
    fn begin_move(&mut self, from: u8, to: u8, now_ms: i64) {
        // Messages taken from the source may return to it.
        self.on_consumer_end(from, now_ms);
        for (id, copy) in &mut self.all {
            let may_go = copy.stored != Stored::Never && copy.settled != Settled::Gone;
            if may_go && copy.places(id.1).any(|place| place.0 == from) {
                copy.moved.insert(to);
                copy.delivered_from = None;
                copy.origin.stream = 0;
                copy.times.on_move();
            }
        }
    }
}
