//! Writes `crates/kafka-wire/src/generated` from the message schemas in Kafka's client library.
//!
//! ```text
//! cargo run --manifest-path tools/kafka-codegen/Cargo.toml
//! ```
//!
//! The library is fetched with Maven into `build/kafka-codegen/` unless it is there; the schemas are read out of it and
//! are not kept. The written code is formatted with rustfmt and committed. A new version of Kafka is a new
//! [`fetch::KAFKA_VERSION`], a run, and a look at the difference.

mod emit;
mod emit_fields;
mod fetch;
mod names;
mod plan;
mod schema;
mod write;

use std::path::PathBuf;

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let jar = fetch::client_library(&root.join("build/kafka-codegen"))?;
    let messages = schema::read_all(&jar).context("reading the schemas")?;
    let files = plan::files(messages)?;
    write::all(
        &root.join("crates/kafka-wire/src/generated"),
        &root.join("rustfmt.toml"),
        &files,
    )
}
