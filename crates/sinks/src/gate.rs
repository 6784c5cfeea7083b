//! Turns of one partition, which count only while the sink may write: a pause or a quiet time may have begun
//! while it waited for its turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::definition::Definition;
use crate::pump::Order;
use crate::quiet::left_ms;
use crate::turns::{Turn, Turns};

/// Orders to a partition, and the quiet times of its sink.
pub(crate) struct Gate {
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) definition: Arc<Definition>,
    pub(crate) wall_ms: fn() -> i64,
}

impl Gate {
    /// Waits for a turn in which the partition may write. At the end it may, whatever the time of day.
    pub(crate) async fn turn(&mut self, turns: &Arc<Turns>) -> Turn {
        loop {
            self.opens().await;
            let turn = turns.take().await;
            if self.rest_ms().is_none() {
                return turn;
            }
        }
    }

    /// Returns the time for which nothing may be written, unless there is another order.
    fn rest_ms(&self) -> Option<u64> {
        let order = *self.orders.borrow();
        match order {
            Order::Finish => None,
            Order::Pause => Some(u64::from(u32::MAX)),
            Order::Run => Some(left_ms(&self.definition.quiet, (self.wall_ms)())).filter(|left| *left > 0),
        }
    }

    async fn opens(&mut self) {
        self.orders.mark_unchanged();
        while let Some(rest) = self.rest_ms() {
            tokio::select! {
                // The pump is gone if it fails, and this with it.
                changed = self.orders.changed() => if changed.is_err() {
                    std::future::pending::<()>().await;
                },
                () = sleep(Duration::from_millis(rest)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tokio::time::timeout;

    use super::*;
    use crate::turns::TurnRules;

    static WALL_MS: AtomicI64 = AtomicI64::new(0);

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_in_a_pause_or_a_quiet_time_is_given_back() {
        let text = "[sink.a]\nfrom = \"t\"\nto = \"topic\"\ntopic = \"u\"\nquiet = [\"08:00-09:00\"]\n";
        let definition = Arc::new(Definition::parse(text).unwrap().remove(0));
        let (orders, received) = watch::channel(Order::Run);
        let turns = Arc::new(Turns::new(TurnRules::default()));
        let mut gate = Gate {
            orders: received,
            definition,
            wall_ms: || WALL_MS.load(Ordering::Relaxed),
        };
        let is_free = async || timeout(Duration::from_secs(1), turns.take()).await.is_ok();
        let long = Duration::from_secs(200);
        for begin_rest in [
            (&|| {
                orders.send_replace(Order::Pause);
            }) as &dyn Fn(),
            &|| WALL_MS.store(8 * 3_600_000, Ordering::Relaxed),
        ] {
            let taken = turns.take().await;
            let mut waiting = Box::pin(gate.turn(&turns));
            assert!(timeout(long, &mut waiting).await.is_err(), "one at a time");
            begin_rest();
            drop(taken);
            assert!(timeout(long, &mut waiting).await.is_err(), "it rests");
            assert!(is_free().await);
            orders.send_replace(Order::Run);
            WALL_MS.store(0, Ordering::Relaxed);
            assert!(timeout(long, waiting).await.is_ok());
        }
        orders.send_replace(Order::Pause);
        let mut waiting = Box::pin(gate.turn(&turns));
        assert!(timeout(long, &mut waiting).await.is_err());
        orders.send_replace(Order::Finish);
        assert!(timeout(long, waiting).await.is_ok());
    }
}
