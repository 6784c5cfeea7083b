//! Apache Kafka: one broker that is its own controller, fetched and started by `tools/peers/kafka`.

use std::time::Duration;

use super::launch::Launch;
use super::{Place, System};
use crate::drivers::DriverError;
use crate::experiment::{Plan, Protocol};

/// The first start fetches the jars.
const READY_WITHIN: Duration = Duration::from_mins(10);

pub(super) async fn start(plan: &Plan, place: &Place) -> Result<System, DriverError> {
    let own = &plan.system.kafka;
    let script = super::script(place, "kafka")?;
    let mut launch = Launch::new("kafka", &script, place, &["--kafka"])?;
    // Topics that a point has used are gone before the next one is measured.
    launch.set("--property", "log.segment.delete.delay.ms", "1000");
    launch.set_own("--property", own);
    let heap = own.heap.clone().unwrap_or_else(|| "1g".to_owned());
    launch.command.env("KAFKA_HEAP", &heap);
    launch.settings.insert("heap".to_owned(), heap);
    let mut system = launch.start(Protocol::Kafka, READY_WITHIN).await?;
    let log = std::fs::read_to_string(place.data.join("kafka/server.log")).unwrap_or_default();
    let version = log.lines().find_map(|line| line.split_once("Kafka version: "));
    let version = version.and_then(|(_, version)| version.split_whitespace().next());
    version.unwrap_or_default().clone_into(&mut system.version);
    Ok(system)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;
    use std::process::Stdio;

    use tokio::process::Command;

    use super::super::process::Process;
    use super::*;

    /// Returns the script with a `java` that prints the output of a broker, in a folder with all downloads.
    fn script(folder: &Path) -> Command {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let programs = folder.join("bin");
        fs::create_dir_all(&programs).unwrap();
        symlink(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/systems/fake"),
            programs.join("java"),
        )
        .unwrap();
        fs::write(
            programs.join("script"),
            "case $* in *StorageTool*) exit ;; esac\necho Kafka Server started\nexec sleep 600\n",
        )
        .unwrap();
        let home = folder.join("peers/kafka-0");
        fs::create_dir_all(home.join("classes")).unwrap();
        fs::write(home.join("fetched"), "").unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(root.join("tools/peers/kafka"));
        command
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("PEERS_DIR", folder.join("peers"))
            .env("KAFKA_VERSION", "0");
        command
    }

    #[tokio::test]
    async fn it_listens_and_sends_clients_where_it_is_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/src/systems/fake");
        assert!(fs::metadata(fake).unwrap().permissions().mode() & 0o111 != 0);
        let data = folder.path().join("data");
        let mut command = script(folder.path());
        // An address of this machine that is not the usual one, as an agent's way here would be.
        command
            .args(["serve", "--kafka", "127.0.0.2:0", "--data-dir"])
            .arg(&data)
            .stderr(Stdio::null());
        let mut said = None;
        let is_ready = |line: &str| {
            if let Some(at) = line.strip_prefix("kafka listening on ") {
                said = Some(at.to_owned());
            }
            (line == "ready").then(|| said.clone().unwrap())
        };
        let logs = folder.path().join("logs");
        let patience = Duration::from_mins(1);
        let started = Process::start(command, "kafka", &logs, patience, is_ready).await;
        let (process, address) = started.unwrap();
        process.stop().await;
        assert!(address.starts_with("127.0.0.2:"), "{address}");
        let properties = fs::read_to_string(data.join("server.properties")).unwrap();
        let line = |name: &str| {
            let mut lines = properties.lines();
            lines.find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
        };
        assert_eq!(line("advertised.listeners="), format!("PLAINTEXT://{address}"));
        let listeners = line("listeners=");
        let (clients, controller) = listeners.split_once(',').unwrap();
        assert_eq!(clients, format!("PLAINTEXT://{address}"));
        assert!(controller.starts_with("CONTROLLER://127.0.0.1:"), "{controller}");
    }
}
