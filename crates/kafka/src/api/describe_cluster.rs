//! `DescribeCluster`: the brokers.

use stafett_kafka_wire::messages::describe_cluster::DescribeClusterBroker;
use stafett_kafka_wire::messages::{DescribeClusterRequest, DescribeClusterResponse};
use stafett_kafka_wire::{Decoder, ErrorCode};

use super::metadata::CLUSTER_OPERATIONS;
use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;

pub(super) fn describe_cluster(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DescribeClusterRequest = call.read(body)?;
    if request.endpoint_type != BROKERS {
        let (code, message) = if request.endpoint_type == CONTROLLERS {
            (
                ErrorCode::MismatchedEndpointType,
                "this is a listener of a broker, not of a controller",
            )
        } else {
            (
                ErrorCode::UnsupportedEndpointType,
                "endpoints are those of brokers (1) or of controllers (2)",
            )
        };
        let response = DescribeClusterResponse {
            error_code: context.shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            endpoint_type: BROKERS,
            ..DescribeClusterResponse::default()
        };
        return Ok(call.answer::<DescribeClusterRequest>(&response)?.into());
    }
    let brokers = context.brokers().into_iter();
    let brokers = brokers.map(|(broker_id, host, port)| DescribeClusterBroker {
        broker_id,
        host,
        port,
        ..Default::default()
    });
    let response = DescribeClusterResponse {
        cluster_id: context.shared.cluster_id.clone(),
        controller_id: context.controller().map_or(-1, |(id, ..)| id),
        brokers: brokers.collect(),
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            i32::MIN
        },
        ..DescribeClusterResponse::default()
    };
    Ok(call.answer::<DescribeClusterRequest>(&response)?.into())
}
