//! Writes the generated folder: one file per module, the table of APIs, and the list of it all.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::emit;
use crate::fetch::KAFKA_VERSION;
use crate::names::snake;
use crate::plan::{Api, File};

/// Replaces `folder`.
pub fn all(folder: &Path, rustfmt: &Path, files: &[File]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    for file in files {
        let text = emit::module(file).with_context(|| file.module.clone())?;
        fs::write(folder.join(&file.module).with_extension("rs"), text)?;
    }
    fs::write(folder.join("api_key.rs"), api_key(files)?)?;
    fs::write(folder.join("mod.rs"), list(files)?)?;
    let mut command = Command::new("rustfmt");
    command
        .args(["--edition", "2024", "--config-path"])
        .arg(rustfmt)
        .arg(folder.join("mod.rs"));
    ensure!(
        command.status().context("running rustfmt")?.success(),
        "rustfmt failed"
    );
    Ok(())
}

fn apis(files: &[File]) -> impl Iterator<Item = (&File, &Api)> {
    files.iter().filter_map(|file| Some((file, file.api.as_ref()?)))
}

fn list(files: &[File]) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "//! Generated from Kafka {KAFKA_VERSION} by `tools/kafka-codegen`: do not edit.\n"
    )?;
    writeln!(out, "pub mod api_key;")?;
    for file in files {
        writeln!(out, "pub mod {};", file.module)?;
    }
    writeln!(out)?;
    for file in files {
        let names: Vec<&str> = file
            .messages
            .iter()
            .map(|message| message.name.as_str())
            .collect();
        writeln!(out, "pub use {}::{{{}}};", file.module, names.join(", "))?;
    }
    writeln!(
        out,
        "
        /// What the modules use.
        mod prelude {{
            pub(super) use bytes::Bytes;

            pub(super) use super::api_key::ApiKey;
            pub(super) use crate::decode::Decoder;
            pub(super) use crate::encode::Encoder;
            pub(super) use crate::errors::DecodeError;
            pub(super) use crate::records::Records;
            pub(super) use crate::str::Str;
            pub(super) use crate::uuid::Uuid;
            pub(super) use crate::version::VersionRange;
            pub(super) use crate::wire::{{Message, Request, Wire}};
        }}

        /// Calls a macro with one line `Name NameRequest NameResponse;` per API, in the order of their keys.
        #[macro_export]
        macro_rules! for_each_api {{
            ($call:ident) => {{
                $call! {{"
    )?;
    for (_, api) in apis(files) {
        writeln!(out, "{0} {0}Request {0}Response;", api.name)?;
    }
    writeln!(out, "}} }}; }}")?;
    Ok(out)
}

fn api_key(files: &[File]) -> Result<String> {
    let mut variants = String::new();
    let mut keys = String::new();
    let mut names = String::new();
    let mut rows = String::new();
    for (file, Api { name, key }) in apis(files) {
        let request = file.messages.first().context("an API without messages")?;
        let flexible = request.flexible.and(request.versions);
        let flexible_from = if flexible.is_empty() {
            i16::MAX
        } else {
            flexible.lo
        };
        writeln!(variants, "{name} = {key},")?;
        writeln!(keys, "{key} => Self::{name},")?;
        writeln!(names, "Self::{name},")?;
        let (lo, hi) = (request.versions.lo, request.versions.hi);
        let flexible_from = if flexible_from == i16::MAX {
            "i16::MAX".to_owned()
        } else {
            flexible_from.to_string()
        };
        writeln!(rows, "Self::{name} => ({:?}, {lo}, {hi}, {flexible_from}),", name)?;
        ensure!(file.module == snake(name));
    }
    Ok(format!(
        r#"//! The APIs, generated from Kafka {KAFKA_VERSION} by `tools/kafka-codegen`: do not edit.

        use crate::errors::DecodeError;
        use crate::version::VersionRange;

        /// The APIs that a broker serves to clients, with their numbers on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ApiKey {{
            {variants}
        }}

        impl ApiKey {{
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[{names}];

            /// The number on the wire.
            pub const fn code(self) -> i16 {{
                self as i16
            }}

            pub const fn name(self) -> &'static str {{
                self.row().0
            }}

            /// The versions that this crate reads and writes: all that Kafka calls stable.
            pub const fn versions(self) -> VersionRange {{
                let (_, min, max, _) = self.row();
                VersionRange::new(min, max)
            }}

            /// The versions to name in the answer to `ApiVersions`. Like Kafka since 4.0, it names produce versions 0 to
            /// 2, which no broker serves any more: librdkafka takes their absence to mean that compressed batches are
            /// not understood (KAFKA-18659).
            pub const fn advertised_versions(self) -> VersionRange {{
                let served = self.versions();
                if matches!(self, Self::Produce) {{ VersionRange::new(0, served.max) }} else {{ served }}
            }}

            /// Whether the version has tagged fields and compact lengths.
            pub const fn is_flexible(self, version: i16) -> bool {{
                version >= self.row().3
            }}

            pub const fn request_header_version(self, version: i16) -> i16 {{
                if self.is_flexible(version) {{ 2 }} else {{ 1 }}
            }}

            /// The answer to `ApiVersions` has the oldest header in all versions, so that a client can read it before it
            /// knows what the broker speaks (KIP-511).
            pub const fn response_header_version(self, version: i16) -> i16 {{
                if self.is_flexible(version) && !matches!(self, Self::ApiVersions) {{ 1 }} else {{ 0 }}
            }}

            /// Name, first version, last version, first flexible version.
            #[expect(clippy::too_many_lines, reason = "a table")]
            const fn row(self) -> (&'static str, i16, i16, i16) {{
                match self {{ {rows} }}
            }}
        }}

        impl TryFrom<i16> for ApiKey {{
            type Error = DecodeError;

            #[expect(clippy::too_many_lines, reason = "a table")]
            fn try_from(key: i16) -> Result<Self, Self::Error> {{
                Ok(match key {{ {keys} _ => return Err(DecodeError::UnknownApi {{ key }}) }})
            }}
        }}"#
    ))
}
