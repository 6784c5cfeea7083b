//! Messages in flight, with their holders.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use stafett_broker::Broker;
use stafett_delivery::{Held, Holder};
use stafett_http::{Problem, Query};
use stafett_messaging::ConsumerSource;
use stafett_messaging::queues::Queue;
use stafett_store::wall_ms;

use super::{Answer, BYTES_MAX};
use crate::answer;
use crate::content::Form;
use crate::mask::Masks;
use crate::message::{Choice, HolderOf, MessageOf, SHOWN_BYTES_MAX, Shown, message_id, parse_message_id};
use crate::time::rfc3339;

/// Answers with the messages in flight that a choice wants, by priority or partition and offset.
pub(super) async fn list(
    broker: &Broker,
    queue: &Arc<Queue>,
    query: &Query,
    (choice, count): (&Choice, u64),
    masks: &Masks,
) -> Result<Response, Problem> {
    let form = Form::of(query.get("as"))?;
    let after = query.get("after").map(|text| {
        let place = parse_message_id(queue.id, text);
        place.ok_or_else(|| Problem::bad_request("after is the `next` of the answer before, as it was"))
    });
    let (held, mut has_more) = queue.held(after.transpose()?, usize::try_from(count).unwrap_or(usize::MAX));
    let mut found = Answer {
        messages: Vec::new(),
        looked_at: 0,
        next: None,
    };
    let (mut bytes, mut last) = (0, None);
    for Held { id, holder } in held {
        if bytes >= BYTES_MAX {
            has_more = true;
            break;
        }
        last = Some(id);
        found.looked_at += 1;
        // It may be settled by now.
        let Some((message, status)) = queue.find(id).await.filter(|(message, _)| choice.wants(message))
        else {
            continue;
        };
        bytes += message.bytes().min(SHOWN_BYTES_MAX);
        let shown = Shown {
            state: "in_flight",
            delivery_count: status.returns,
            redelivered: status.redelivered,
            form,
            ..Shown::default()
        };
        let mut shown = MessageOf::of(queue, id, &message, shown);
        shown.holder = Some(holder_of(broker, queue, holder));
        found.messages.push(shown.masked(masks));
    }
    found.next = last.filter(|_| has_more).map(|id| message_id(queue.id, id));
    Ok(answer(StatusCode::OK, &found))
}

pub(super) fn holder_of(broker: &Broker, queue: &Queue, holder: Holder) -> HolderOf {
    match holder {
        Holder::Consumer(key) => {
            let consumers = broker.messaging().consumers().of(ConsumerSource::Queue(queue.id));
            let entry = consumers.iter().find(|entry| entry.is(queue, key));
            // One that has ended may have messages until its channel ends.
            entry.map_or(HolderOf::By("consumer that has ended"), |entry| {
                HolderOf::Consumer(entry.id.to_string())
            })
        }
        Holder::Lease { ends_in_ms } => {
            HolderOf::LeaseUntil(rfc3339(wall_ms().saturating_add_unsigned(ends_in_ms)))
        }
        Holder::Request => HolderOf::By("request"),
    }
}
