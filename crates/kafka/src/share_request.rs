//! Acknowledgements in requests of share groups, and their effect.

use std::sync::Arc;

use stafett_kafka_wire::messages::{share_acknowledge, share_fetch};
use stafett_kafka_wire::{ErrorCode, Str};
use stafett_shares::{AcknowledgeError, AcknowledgeKind, Acknowledgement, Place};
use stafett_topics::TopicId;

use crate::configs::{ShareSettings, share_settings};
use crate::context::KafkaContext;
use crate::share_sessions::{PartitionId, ShareMember};

/// Bound on the bytes of a member's id.
pub(crate) const MEMBER_BYTES_MAX: usize = 36;
const RENEW: i8 = 4;

/// Acknowledgements of a partition, as a request has them.
#[derive(Debug)]
pub(crate) struct PartitionAcknowledgements {
    pub partition: PartitionId,
    pub batches: Vec<AcknowledgedBatch>,
}

#[derive(Debug)]
pub(crate) struct AcknowledgedBatch {
    first: i64,
    last: i64,
    kinds: Vec<i8>,
}

/// Outcome for a partition.
#[derive(Debug)]
pub(crate) struct Acknowledged {
    pub partition: PartitionId,
    pub error: Option<(ErrorCode, String)>,
    /// The place of which records were settled.
    pub place: Option<Arc<Place>>,
}

/// Returns the places of which records were settled.
pub(crate) fn settled_places(all: &[Acknowledged]) -> Vec<Arc<Place>> {
    let places = all.iter().filter_map(|one| one.place.clone());
    let mut places: Vec<_> = places.collect();
    places.dedup_by(|next, place| Arc::ptr_eq(next, place));
    places
}

impl From<share_fetch::AcknowledgementBatch> for AcknowledgedBatch {
    fn from(batch: share_fetch::AcknowledgementBatch) -> Self {
        Self {
            first: batch.first_offset,
            last: batch.last_offset,
            kinds: batch.acknowledge_types,
        }
    }
}

impl From<share_acknowledge::AcknowledgementBatch> for AcknowledgedBatch {
    fn from(batch: share_acknowledge::AcknowledgementBatch) -> Self {
        Self {
            first: batch.first_offset,
            last: batch.last_offset,
            kinds: batch.acknowledge_types,
        }
    }
}

/// Returns the member that a request is from, or the reason why it is malformed.
pub(crate) fn member(group: Option<&Str>, id: Option<&Str>) -> Result<ShareMember, &'static str> {
    let group = group.ok_or("Invalid group id in the request.")?;
    let id = id.filter(|id| (1..=MEMBER_BYTES_MAX).contains(&id.len()));
    let id = id.ok_or("Invalid member id in the request.")?;
    Ok(ShareMember {
        group: Arc::from(group.as_str()),
        id: Arc::from(id.as_str()),
    })
}

/// Returns the settings of a group.
pub(crate) fn settings_of(shared: &KafkaContext, group: &str) -> ShareSettings {
    let scope = stafett_broker::Scope::Group(group.into());
    share_settings(&shared.broker.scoped_settings(&scope))
}

/// Settles acknowledged records of a member, each partition by itself.
pub(crate) fn acknowledge(
    shared: &KafkaContext,
    member: &ShareMember,
    settings: &ShareSettings,
    is_renewal: bool,
    all: Vec<PartitionAcknowledgements>,
) -> Vec<Acknowledged> {
    let outcomes = all
        .into_iter()
        .map(|PartitionAcknowledgements { partition, batches }| {
            let settled = read(batches, is_renewal, settings)
                .and_then(|batches| settle(shared, member, settings, partition, &batches));
            let (place, error) = match settled {
                Ok(place) => (Some(place), None),
                Err(error) => (None, Some(error)),
            };
            Acknowledged {
                partition,
                error,
                place,
            }
        });
    outcomes.collect()
}

/// Converts acknowledgements of a partition. Fails if they are malformed.
fn read(
    batches: Vec<AcknowledgedBatch>,
    is_renewal: bool,
    settings: &ShareSettings,
) -> Result<Vec<Acknowledgement>, (ErrorCode, String)> {
    let wrong = |why: &str| (ErrorCode::InvalidRequest, why.to_owned());
    let mut before = None;
    let mut read = Vec::with_capacity(batches.len());
    for AcknowledgedBatch { first, last, kinds } in batches {
        let (Ok(first), Ok(last)) = (u64::try_from(first), u64::try_from(last)) else {
            return Err(wrong("Offsets of acknowledgements are 0 or more."));
        };
        if first > last || before.is_some_and(|before| first < before) {
            return Err(wrong(
                "Acknowledgements have to be in the order of their offsets.",
            ));
        }
        if before == Some(first) {
            let why = format!("Offset {first} is acknowledged twice.");
            return Err((ErrorCode::InvalidRecordState, why));
        }
        if kinds.is_empty() || (kinds.len() > 1 && kinds.len() as u64 != (last - first).saturating_add(1)) {
            return Err(wrong(
                "There has to be one acknowledge type for all records, or one for each.",
            ));
        }
        if kinds.contains(&RENEW) && !is_renewal {
            return Err(wrong(
                "Only a request that renews may have acknowledgements that renew.",
            ));
        }
        if kinds.contains(&RENEW) && !settings.renews {
            let why = "Renewing acquisition locks is not enabled for the group.";
            return Err((ErrorCode::InvalidRecordState, why.to_owned()));
        }
        let kinds: Option<Vec<_>> = kinds.into_iter().map(kind).collect();
        let kinds = kinds.ok_or_else(|| wrong("There is no such acknowledge type."))?;
        let offsets = first..=last;
        read.push(Acknowledgement { offsets, kinds });
        before = Some(last);
    }
    Ok(read)
}

fn kind(number: i8) -> Option<AcknowledgeKind> {
    match number {
        0 => Some(AcknowledgeKind::Gap),
        1 => Some(AcknowledgeKind::Accept),
        2 => Some(AcknowledgeKind::Release),
        3 => Some(AcknowledgeKind::Reject),
        RENEW => Some(AcknowledgeKind::Renew),
        _ => None,
    }
}

fn settle(
    shared: &KafkaContext,
    member: &ShareMember,
    settings: &ShareSettings,
    (topic, index): PartitionId,
    batches: &[Acknowledgement],
) -> Result<Arc<Place>, (ErrorCode, String)> {
    let broker = &shared.broker;
    if broker.topics().with_id(topic).is_none() {
        return Err((
            ErrorCode::UnknownTopicId,
            "This server does not host this topic ID.".to_owned(),
        ));
    }
    let place = broker.shares().get(&member.group, topic);
    let settled = match (place, u32::try_from(index)) {
        (Some(place), Ok(index)) => {
            let settled = place.acknowledge(index, &member.id, &settings.rules, batches);
            settled.map(|()| place)
        }
        (None, _) | (_, Err(_)) => Err(AcknowledgeError::NoSuchPlace),
    };
    settled.map_err(|error| {
        let code = match error {
            AcknowledgeError::NoSuchPlace => ErrorCode::UnknownTopicOrPartition,
            AcknowledgeError::NotTaken(_) => ErrorCode::InvalidRequest,
            AcknowledgeError::NotHeld(_) => ErrorCode::InvalidRecordState,
        };
        (code, error.to_string())
    })
}

/// Returns the id of a topic in requests as the core's.
pub(crate) fn topic_id(id: stafett_kafka_wire::Uuid) -> TopicId {
    TopicId(id.into())
}
