//! `DescribeLogDirs`: the one data folder and the sizes of partitions in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stafett_kafka_wire::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use stafett_kafka_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use stafett_kafka_wire::{Decoder, Str};
use stafett_topics::Topic;

use crate::call::{Call, ResponseResult};
use crate::cells::own_bounds;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, Step};
use crate::response_queue::{HandlerResult, PendingResponse};

/// Topics from which on an answer counts as large.
const LARGE_TOPICS: usize = 1000;
/// Unknown size.
const UNKNOWN: i64 = -1;

pub(super) fn describe_log_dirs(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeLogDirsRequest = call.read(body)?;
    let shared = Arc::clone(&context.shared);
    Ok(PendingResponse::in_turn(move |_| {
        let asked = match &request.topics {
            None => shared.broker.topics().len(),
            Some(topics) => topics.len(),
        };
        // Blocking: it queries the file system.
        Ok(Step::Await(Operation::WriteBlocking {
            is_large: asked >= LARGE_TOPICS,
            write: Box::new(move || run(&shared, call, request)),
        }))
    }))
}

fn run(shared: &KafkaContext, call: Call, request: DescribeLogDirsRequest) -> ResponseResult {
    let broker = &shared.broker;
    let topics = match request.topics {
        None => {
            let all = broker.topics().all();
            let whole = |topic: &Arc<Topic>| of_topic(shared, topic, 0..topic.partitions());
            all.iter().map(whole).collect()
        }
        Some(asked) => {
            let mut wanted: BTreeMap<Str, BTreeSet<u32>> = BTreeMap::new();
            for topic in asked {
                let partitions = topic.partitions.into_iter();
                let partitions = partitions.filter_map(|partition| u32::try_from(partition).ok());
                wanted.entry(topic.topic).or_default().extend(partitions);
            }
            let known = wanted
                .into_iter()
                .filter_map(|(name, partitions)| Some((broker.topics().named(&name)?, partitions)));
            let described = known.map(|(topic, partitions)| of_topic(shared, &topic, partitions));
            described.filter(|topic| !topic.partitions.is_empty()).collect()
        }
    };
    let (total_bytes, usable_bytes) = space(&shared.settings.log_dir);
    let response = DescribeLogDirsResponse {
        results: vec![DescribeLogDirsResult {
            log_dir: Str::copy_from(&shared.settings.log_dir),
            topics,
            total_bytes,
            usable_bytes,
            ..DescribeLogDirsResult::default()
        }],
        ..DescribeLogDirsResponse::default()
    };
    call.answer::<DescribeLogDirsRequest>(&response)
}

fn of_topic(
    shared: &KafkaContext,
    topic: &Topic,
    partitions: impl IntoIterator<Item = u32>,
) -> DescribeLogDirsTopic {
    let partitions = partitions.into_iter().filter_map(|partition| {
        let bounds = own_bounds(shared.broker.catalog(), topic.log(partition)?)?;
        Some(DescribeLogDirsPartition {
            partition_index: i32::try_from(partition).ok()?,
            partition_size: i64::try_from(bounds.bytes).unwrap_or(i64::MAX),
            offset_lag: 0,
            is_future_key: false,
        })
    });
    DescribeLogDirsTopic {
        name: Str::copy_from(&topic.name),
        partitions: partitions.collect(),
    }
}

/// Returns the total and the free bytes of the disk that holds a folder.
fn space(folder: &str) -> (i64, i64) {
    let Ok(disk) = rustix::fs::statvfs(folder) else {
        return (UNKNOWN, UNKNOWN);
    };
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX);
    (bytes(disk.f_blocks), bytes(disk.f_bavail))
}
