//! RabbitMQ: one node, built and started by `tools/peers/rabbitmq`.

use std::path::Path;
use std::time::Duration;

use tokio::process::Command;

use super::launch::Launch;
use super::{Place, System};
use crate::drivers::DriverError;
use crate::experiment::{Plan, Protocol};

/// Debian's packages are fetched the first time.
const BUILT_WITHIN: Duration = Duration::from_mins(15);
const READY_WITHIN: Duration = Duration::from_mins(3);

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, DriverError> {
    let script = super::script(place, "rabbitmq")?;
    build(&script).await?;
    let mut launch = Launch::new("rabbitmq", &script, place, &["--amqp"])?;
    launch.set_own("--set", &plan.system.rabbitmq);
    launch.start(Protocol::Amqp, READY_WITHIN).await
}

/// Builds the folder of packages, unless it is there. The error of a user without the rights names the way.
async fn build(script: &Path) -> Result<(), DriverError> {
    let missing = |why: &str| {
        DriverError::Missing(format!(
            "{why}; or give the address of one that runs (--address rabbitmq=HOST:PORT)"
        ))
    };
    let mut command = Command::new(script);
    command.arg("build").kill_on_drop(true);
    let built = match tokio::time::timeout(BUILT_WITHIN, command.output()).await {
        Ok(Ok(built)) => built,
        Ok(Err(error)) => return Err(missing(&format!("{} cannot be run: {error}", script.display()))),
        Err(_) => return Err(missing("its packages could not be fetched in time")),
    };
    if built.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&built.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(missing(last.unwrap_or("tools/peers/rabbitmq build failed")))
}
