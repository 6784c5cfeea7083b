//! `CreatePartitions`: adds partitions to topics. Existing partitions do not change; clients see the new ones
//! in their next metadata.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use stafett_kafka_wire::messages::create_partitions::{CreatePartitionsTopic, CreatePartitionsTopicResult};
use stafett_kafka_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};
use stafett_store::Changing;
use stafett_topics::{GrowError, PARTITIONS_MAX, Topic};

use super::create_topics::check_assignment;
use crate::context::KafkaContext;
use crate::error;
use crate::response_queue::{PendingResponse, ResponseResult};
use crate::session::{Call, Close, Context};

/// Reason why a topic does not grow.
type Refused = (ErrorCode, Option<String>);

type Growing = Changing<Arc<Topic>, GrowError>;

pub(super) fn create_partitions(
    context: &Context,
    call: Call,
    body: Decoder,
) -> Result<PendingResponse, Close> {
    let request: CreatePartitionsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::Barrier(Box::pin(async move {
        run(&shared, call, request).await
    })))
}

async fn run(shared: &KafkaContext, call: Call, mut request: CreatePartitionsRequest) -> ResponseResult {
    let mut times: HashMap<Str, usize> = HashMap::new();
    for topic in &request.topics {
        *times.entry(topic.name.clone()).or_default() += 1;
    }
    let mut seen = HashSet::new();
    request.topics.retain(|topic| seen.insert(topic.name.clone()));
    // All changes are begun before the first is awaited: they share the journal's syncs.
    let begun: Vec<Result<Option<Growing>, Result<Refused, Close>>> = request
        .topics
        .iter()
        .map(|asked| {
            let is_once = times.get(&asked.name) == Some(&1);
            let (topic, wanted) = check(shared, asked, is_once)?;
            Ok((!request.validate_only).then(|| shared.broker.grow_topic(topic.id, wanted)))
        })
        .collect();
    let mut results = Vec::with_capacity(begun.len());
    for (asked, begun) in request.topics.into_iter().zip(begun) {
        let grown: Result<(), Refused> = match begun {
            Ok(Some(growing)) => match growing.await {
                Ok(_) => Ok(()),
                Err(why) => Err(error::grow(&asked.name, &why)?),
            },
            Ok(None) => Ok(()),
            Err(refused) => Err(refused?),
        };
        let (code, message) = grown.err().unwrap_or((ErrorCode::None, None));
        results.push(CreatePartitionsTopicResult {
            name: asked.name,
            error_code: shared.metrics.error(call.api, code),
            error_message: message.map(Into::into),
        });
    }
    let response = CreatePartitionsResponse {
        throttle_time_ms: 0,
        results,
    };
    call.answer::<CreatePartitionsRequest>(&response)
}

/// Returns the topic and its new number of partitions.
fn check(
    shared: &KafkaContext,
    asked: &CreatePartitionsTopic,
    is_once: bool,
) -> Result<(Arc<Topic>, u32), Result<Refused, Close>> {
    if !is_once {
        let message = "Duplicate topic name.".to_owned();
        return Err(Ok((ErrorCode::InvalidRequest, Some(message))));
    }
    let name = &*asked.name;
    let grow = |why| error::grow(name, &why);
    let topic = shared.broker.topics().named(name);
    let topic = topic.ok_or_else(|| grow(GrowError::NoSuchTopic))?;
    let has = topic.partitions();
    let Some(wanted) = u32::try_from(asked.count).ok().filter(|wanted| *wanted > has) else {
        let count = asked.count;
        let message = if i64::from(count) == i64::from(has) {
            format!("Topic already has {has} partition(s).")
        } else {
            format!("The topic {name} currently has {has} partition(s); {count} would not be an increase.")
        };
        return Err(Ok((ErrorCode::InvalidPartitions, Some(message))));
    };
    if wanted > PARTITIONS_MAX {
        return Err(grow(GrowError::TooMany(wanted)));
    }
    if let Some(assignments) = &asked.assignments {
        let refused = |message| Ok((ErrorCode::InvalidReplicaAssignment, Some(message)));
        let (more, given) = (wanted - has, assignments.len());
        if usize::try_from(more) != Ok(given) {
            return Err(refused(format!(
                "Attempted to add {more} additional partition(s), but only {given} assignment(s) were specified."
            )));
        }
        for assignment in assignments {
            check_assignment(&assignment.broker_ids).map_err(refused)?;
        }
    }
    Ok((topic, wanted))
}
