//! RabbitMQ: one node, built and started by `tools/peers/rabbitmq`.

use super::{Place, StartError, System};
use crate::experiment::Plan;

pub(super) async fn start(_plan: &Plan, place: &Place) -> Result<System, StartError> {
    // Its points are skipped before anything is started, as long as no driver speaks its protocol.
    super::script(place, "rabbitmq")?;
    Err(StartError::Missing("there is no driver for AMQP yet".to_owned()))
}
