//! Work that requests of share groups wait for.

use std::sync::Arc;

use stafett_kafka_wire::Str;
use stafett_model::Offset;
use stafett_shares::{Place, PlaceStart};
use stafett_store::NotStored;
use stafett_topics::{Topic, TopicId};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::call::Close;
use crate::context::RequestContext;
use crate::operation::{Step, Then};

/// Offsets at which a group begins in partitions of a topic.
pub(crate) type TopicStarts = (Arc<Topic>, Vec<(u32, Offset)>);

pub(crate) enum ShareOperation {
    /// Make a group's places in topics where it has none.
    MakePlaces {
        group: Arc<str>,
        topics: Vec<Arc<Topic>>,
        start: PlaceStart,
        then: Then<Vec<Result<Arc<Place>, NotStored>>>,
    },
    /// Wait until acknowledgements in these places are stored.
    AwaitStored(Vec<Arc<Place>>, Then<Result<(), NotStored>>),
    /// Wait until there may be messages, or `until`.
    AwaitMessages {
        waiter: Arc<Notify>,
        until: Instant,
        then: Then<()>,
    },
    /// Begin anew at these offsets, topic by topic.
    Move(Str, Vec<TopicStarts>, Then<Vec<Result<(), NotStored>>>),
    /// Delete a group's places in topics.
    Delete(Str, Vec<TopicId>, Then<Vec<Result<bool, NotStored>>>),
}

impl ShareOperation {
    pub(crate) async fn perform(self, context: &RequestContext) -> Result<Step, Close> {
        let shares = context.shared.broker.shares();
        match self {
            Self::MakePlaces {
                group,
                topics,
                start,
                then,
            } => {
                let mut places = Vec::with_capacity(topics.len());
                for topic in topics {
                    places.push(shares.get_or_make(&group, &topic, start).await);
                }
                then.on_done(context, places)
            }
            Self::AwaitStored(places, then) => then.on_done(context, shares.stored(&places).await),
            Self::AwaitMessages { waiter, until, then } => {
                tokio::select! {
                    () = waiter.notified() => {}
                    () = sleep_until(until) => {}
                    () = context.drain.cancelled() => {}
                }
                then.on_done(context, ())
            }
            Self::Move(group, topics, then) => {
                let mut moved = Vec::with_capacity(topics.len());
                for (topic, starts) in topics {
                    moved.push(shares.move_to(&group, &topic, starts).await);
                }
                then.on_done(context, moved)
            }
            Self::Delete(group, topics, then) => {
                let mut deleted = Vec::with_capacity(topics.len());
                for topic in topics {
                    deleted.push(shares.delete(&group, topic).await);
                }
                then.on_done(context, deleted)
            }
        }
    }
}
