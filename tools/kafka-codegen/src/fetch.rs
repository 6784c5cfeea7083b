//! Gets Kafka's client library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The release whose schemas are used.
pub const KAFKA_VERSION: &str = "4.3.1";

/// The path of the library in `folder`, after fetching it if need be.
pub fn client_library(folder: &Path) -> Result<PathBuf> {
    let jar = folder.join(format!("kafka-clients-{KAFKA_VERSION}.jar"));
    if jar.exists() {
        return Ok(jar);
    }
    fs::create_dir_all(folder)?;
    let status = Command::new("mvn")
        .args(["-q", "dependency:copy"])
        .arg(format!(
            "-Dartifact=org.apache.kafka:kafka-clients:{KAFKA_VERSION}"
        ))
        .arg(format!("-DoutputDirectory={}", folder.display()))
        .status()
        .context("running mvn")?;
    ensure!(
        status.success() && jar.exists(),
        "mvn did not fetch {}",
        jar.display()
    );
    Ok(jar)
}
