//! Draws messages of every API in every version, and has Kafka's own client library read and write them again.
//!
//! ```text
//! cargo run --manifest-path tools/kafka-oracle/Cargo.toml
//! ```
//!
//! Needs Java, and the library that `tools/kafka-codegen` leaves in `build/kafka-codegen/`. Worth a run whenever the
//! generated code changes; the test suite has a smaller oracle that needs neither.

use std::fs::read_dir;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use stafett_kafka_wire::{Decoder, Encoder, Message, Request, messages};

const SAMPLES: u64 = 40;

fn main() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let jar = client_library(&here.join("../../build/kafka-codegen"))?;
    let mut java = Command::new("java")
        .arg("-cp")
        .arg(jar)
        .arg(here.join("src/Oracle.java"))
        .stdin(Stdio::piped())
        .spawn()
        .context("running java")?;
    let written = write_samples(java.stdin.take().context("java has no input")?);
    ensure!(java.wait()?.success(), "Kafka does not agree");
    written
}

fn client_library(folder: &Path) -> Result<PathBuf> {
    let entries = read_dir(folder)
        .context("run kafka-codegen first")?
        .collect::<std::io::Result<Vec<_>>>()?;
    let jar = entries
        .into_iter()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "jar"));
    jar.context("run kafka-codegen first")
}

/// One line per sample: API key, `request` or `response`, version, bytes in hexadecimal.
fn write_samples(to: impl Write) -> Result<()> {
    let mut out = BufWriter::new(to);
    macro_rules! write_all {
        ($($api:ident $request:ident $response:ident;)*) => {$(
            write_message::<messages::$request>(&mut out, messages::$request::KEY.code(), "request")?;
            write_message::<messages::$response>(&mut out, messages::$request::KEY.code(), "response")?;
        )*};
    }
    stafett_kafka_wire::for_each_api!(write_all);
    out.flush()?;
    Ok(())
}

fn write_message<M: Message>(out: &mut impl Write, key: i16, kind: &str) -> Result<()> {
    for version in M::VERSIONS {
        for seed in 0..SAMPLES {
            let message = M::decode(&mut Decoder::sampling(seed), version)?;
            let mut e = Encoder::bare();
            message.encode(&mut e, version);
            writeln!(out, "{key} {kind} {version} {}", hex(&e.finish()?.into_bytes()))?;
        }
    }
    Ok(())
}

fn hex(bytes: &Bytes) -> String {
    format!("{bytes:x}")
}
