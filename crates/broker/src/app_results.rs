//! Results of apps that go into queues.

use stafett_apps::{Appended, QueueMessages, QueueRefusal, QueueResults};
use stafett_journal::Append;
use stafett_messaging::queues::Refused;
use stafett_messaging::{JointSender, Send, SendError};
use stafett_model::Namespace;
use stafett_store::NotStored;

/// Queues of the default namespace, as apps know them.
#[derive(Debug)]
pub(crate) struct AppResults(pub(crate) JointSender);

impl QueueResults for AppResults {
    fn append(&self, append: Append, messages: QueueMessages) -> Appended {
        let names: Vec<Box<str>> = messages.iter().map(|(queue, _)| queue.clone()).collect();
        let sends = messages.into_iter().map(|(queue, message)| Send {
            message,
            queues: vec![String::from(queue).into()],
        });
        let storing = self.0.send(&Namespace::default(), sends.collect(), append);
        Box::pin(async move {
            let queue_at = |at: usize| names.get(at).cloned().unwrap_or_default();
            storing.await.map_err(|why| match why {
                SendError::NoSuchQueue { at, .. } => QueueRefusal::NoSuchQueue(queue_at(at)),
                SendError::Refused { at, why } => match why {
                    Refused::QueueFull => QueueRefusal::Full(queue_at(at)),
                    Refused::TooLarge => QueueRefusal::TooLarge(queue_at(at)),
                    Refused::Gone => QueueRefusal::NoSuchQueue(queue_at(at)),
                    Refused::Journal(why) => QueueRefusal::NotStored(NotStored::Refused(why)),
                },
                SendError::TooManyQueues { at } | SendError::DelayTooLong { at, .. } => {
                    QueueRefusal::TooLarge(queue_at(at))
                }
                SendError::NoSuchNamespace => QueueRefusal::NoSuchQueue(queue_at(0)),
                SendError::NotStored(why) => QueueRefusal::NotStored(why),
            })
        })
    }
}
