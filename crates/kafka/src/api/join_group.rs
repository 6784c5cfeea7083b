//! `JoinGroup`: answered when the group's next generation begins.
//!
//! The needed parts of the request are copied, so that a client that waits for minutes pins no frame.

use bytes::Bytes;
use stafett_groups::classic::Join;
use stafett_groups::{JoinError, JoinReply, Strategy};
use stafett_kafka_wire::messages::join_group::JoinGroupResponseMember;
use stafett_kafka_wire::messages::{JoinGroupRequest, JoinGroupResponse};
use stafett_kafka_wire::{Decoder, Str};

use super::group_names::{client_host, new_member_id, text};
use crate::call::{Call, ResponseResult};
use crate::context::{KafkaContext, RequestContext};
use crate::error;
use crate::operation::{GroupOperation, Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// First version in which members get an id before they join (KIP-394).
const KNOWN_IDS_FROM: i16 = 4;
/// First version whose answer has a protocol type and an optional protocol name.
const PURPOSE_FROM: i16 = 7;
/// First version in which a leader can be told to skip the assignment (KIP-814).
const SKIP_FROM: i16 = 9;

pub(super) fn join_group(
    context: &RequestContext,
    call: Call,
    client: Option<&str>,
    body: Decoder,
) -> HandlerResult {
    let request: JoinGroupRequest = call.read(body)?;
    let group: Box<str> = (&*request.group_id).into();
    let join = join(
        &request,
        call.version,
        client.unwrap_or_default(),
        client_host(context),
    );
    let joined = then(move |context, joined| answer(&context.shared, call, joined));
    let operation = Operation::Group(GroupOperation::Join(group, Box::new(join), joined));
    Ok(PendingResponse::awaiting(operation, Pipelining::LongBarrier))
}

fn join(request: &JoinGroupRequest, version: i16, client: &str, client_host: Box<str>) -> Join {
    let session_ms = u32::try_from(request.session_timeout_ms).unwrap_or(0);
    let instance = request.group_instance_id.as_deref();
    let strategies = request.protocols.iter().map(|protocol| Strategy {
        name: (&*protocol.name).into(),
        metadata: Bytes::copy_from_slice(&protocol.metadata),
    });
    Join {
        member: (&*request.member_id).into(),
        new_id: new_member_id(instance.unwrap_or(client)),
        instance: instance.map(Into::into),
        client_id: client.into(),
        client_host,
        purpose: (&*request.protocol_type).into(),
        strategies: strategies.collect(),
        session_ms,
        rebalance_ms: u32::try_from(request.rebalance_timeout_ms).unwrap_or(session_ms),
        must_know_id: version >= KNOWN_IDS_FROM,
        may_skip_assignment: version >= SKIP_FROM,
    }
}

fn answer(shared: &KafkaContext, call: Call, joined: Result<JoinReply, JoinError>) -> ResponseResult {
    let response = match joined {
        Ok(joined) => JoinGroupResponse {
            generation_id: joined.generation,
            protocol_type: joined
                .purpose
                .as_deref()
                .map(Str::copy_from)
                .filter(|_| call.version >= PURPOSE_FROM),
            protocol_name: Some(text(joined.strategy.as_deref())),
            leader: Str::copy_from(&joined.leader),
            skip_assignment: joined.skip_assignment,
            member_id: Str::copy_from(&joined.member),
            members: joined
                .members
                .into_iter()
                .map(|member| JoinGroupResponseMember {
                    member_id: Str::copy_from(&member.id),
                    group_instance_id: member
                        .instance
                        .as_deref()
                        .map(Str::copy_from)
                        .filter(|_| call.version >= 5),
                    metadata: member.metadata,
                })
                .collect(),
            ..JoinGroupResponse::default()
        },
        Err(JoinError { error, member }) => JoinGroupResponse {
            error_code: shared.metrics.error(call.api, error::group(&error)?),
            protocol_name: (call.version < PURPOSE_FROM).then(Str::default),
            member_id: Str::copy_from(&member),
            ..JoinGroupResponse::default()
        },
    };
    call.answer::<JoinGroupRequest>(&response)
}
