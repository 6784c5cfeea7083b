//! `stafett api-docs`: prints the `OpenAPI` document of the HTTP API.

use std::io::{self, Write};

use anyhow::Context;
use clap::{ArgMatches, Command};

use crate::failure::Failure;

pub(super) fn describe() -> Command {
    Command::new("api-docs").about("Print the OpenAPI document of the HTTP API (docs/openapi.json)")
}

pub(super) fn run(_: &ArgMatches) -> Result<(), Failure> {
    io::stdout()
        .write_all(stafett_admin::document().as_bytes())
        .context("the document cannot be printed")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_document_of_the_api_is_what_the_routes_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == stafett_admin::document(),
            "docs/openapi.json is not up to date: cargo run -p stafett-server -- api-docs > docs/openapi.json"
        );
    }
}
