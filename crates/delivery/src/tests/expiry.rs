//! Messages that expire without a consumer.

use super::*;

impl World {
    /// Appends messages with these times to live, in ms.
    async fn append_for(&self, times: &[u64]) {
        let message = |ttl_ms: &u64| Message {
            value: "x".into(),
            persistent: true,
            ttl_ms: Some(*ttl_ms),
            ..Message::default()
        };
        let frames = batch(LogId(1), times.iter().map(message));
        self.journal
            .append(vec![Append::state(frames, StateWait::Written)])
            .await;
    }

    async fn counts_in(&self, ms: u64) -> (u64, u64) {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        let letters = self.journal.bounds(self.owner.letters).unwrap().end.0;
        (self.dispatcher.counts().ready, letters)
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_becomes_the_head_early_expires_at_its_own_time() {
    let world = World::new(LogOwnership::Own).await;
    {
        let mut inner = world.dispatcher.lock();
        inner.may_expire = true;
    }
    world.append_for(&[200, 500, 900]).await;
    world.dispatcher.dispatch_now();
    // The check of the first one stays scheduled when it is gone.
    assert!(world.dispatcher.take_one(false).await.is_some());
    world.dispatcher.dispatch_now();
    assert_eq!(world.counts_in(300).await, (2, 0));
    assert_eq!(world.counts_in(300).await, (1, 1));
    assert_eq!(world.counts_in(400).await, (0, 2));
}
