//! `DescribeProducers`: idempotent producers that partitions know.

use stafett_kafka_wire::messages::describe_producers::{PartitionResponse, ProducerState, TopicResponse};
use stafett_kafka_wire::messages::{DescribeProducersRequest, DescribeProducersResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};
use stafett_model::{Offset, TopicName};
use stafett_topics::Topic;

use crate::call::Call;
use crate::context::{KafkaContext, RequestContext};
use crate::epoch_search::wire;
use crate::error;
use crate::response_queue::HandlerResult;

/// No coordinator epoch, no transaction.
const NONE: i32 = -1;

pub(super) fn describe_producers(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeProducersRequest = call.read(body)?;
    let shared = &context.shared;
    let topics = request.topics.into_iter().map(|asked| {
        let topic = shared.broker.topics().named(&asked.name);
        let partitions = asked.partition_indexes.iter().map(|&partition_index| {
            let found = producers(shared, &asked.name, topic.as_deref(), partition_index);
            let (code, message, active_producers) = match found {
                Ok(producers) => (ErrorCode::None, None, producers),
                Err((code, message)) => (code, message, Vec::new()),
            };
            PartitionResponse {
                partition_index,
                error_code: shared.metrics.error(call.api, code),
                error_message: message.map(Into::into),
                active_producers,
            }
        });
        TopicResponse {
            partitions: partitions.collect(),
            name: asked.name.clone(),
        }
    });
    let response = DescribeProducersResponse {
        throttle_time_ms: 0,
        topics: topics.collect(),
    };
    Ok(call.answer::<DescribeProducersRequest>(&response)?.into())
}

fn producers(
    shared: &KafkaContext,
    name: &str,
    topic: Option<&Topic>,
    partition: i32,
) -> Result<Vec<ProducerState>, (ErrorCode, Option<String>)> {
    TopicName::check(name).map_err(|why| (error::name(why), Some(error::name_text(name, why))))?;
    let unknown = ErrorCode::UnknownTopicOrPartition;
    let topic = topic.ok_or_else(|| {
        let message = "This server does not host this topic-partition.";
        (unknown, Some(message.to_owned()))
    })?;
    let log = u32::try_from(partition).ok().and_then(|number| topic.log(number));
    let log = log.ok_or((unknown, None))?;
    let seen = shared.broker.catalog().producers(log);
    let seen = seen.ok_or_else(|| (error::missing(log), None))?.into_iter();
    let states = seen.map(|producer| ProducerState {
        producer_id: producer.id.0,
        producer_epoch: producer.epoch.into(),
        last_sequence: producer.sequence,
        last_timestamp: producer.at,
        coordinator_epoch: NONE,
        current_txn_start_offset: producer
            .open
            .map_or_else(|| NONE.into(), |Offset(first)| wire(first)),
    });
    Ok(states.collect())
}
