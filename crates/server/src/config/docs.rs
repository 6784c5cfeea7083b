//! `docs/configuration.md`, generated from the table of settings.

use std::fmt::Write;

use super::definition::Definition;
use super::settings::DEFINITIONS;

const INTRODUCTION: &str = "\
# Configuration

<!-- Made by `stafett config-docs` from the table in crates/server/src/config/settings.rs; a test compares them. -->

A setting can be given in a TOML file (`stafett serve --config FILE`, or FILE in `STAFETT_CONFIG`), in the
environment, or as a flag. The environment wins over the file, and flags over both. Settings without a flag of their
own can be given as `--set KEY=VALUE`. A name that is not known is an error, in the file as in the environment, and so
is a value out of range: the program then says where it stands and ends with exit code 2. (`STAFETT_SERVER` and `STAFETT_CA` are of the commands; `STAFETT_BIN` and names that
begin with `STAFETT_TEST_` belong to the tests and are passed over.)

Sizes are bytes: `1048576`, `1024KiB` or `1MiB` (up to `TiB`). Durations are milliseconds: `60000`, `60s` or `1m`
(`ms`, `s`, `m`, `h`, `d`).

```toml
data_dir = \"/var/lib/stafett\"
durability = \"sync\"

[kafka]
listen = \"127.0.0.1:9092\"
```

## While it runs

On `SIGHUP` a broker that was started with a file reads it again. Settings of which it is said below that they can be changed while it runs
have their new values when the log says `setting changed`; for others that differ it says `setting needs a restart`. A file with a
mistake changes nothing, and the log says where the mistake is. What the environment or a flag gives still wins over the file. Without
a file there is nothing to read again, and `SIGHUP` ends the broker as `SIGTERM` does.
";

/// Returns the whole page.
pub(crate) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut group = None;
    for definition in DEFINITIONS {
        let table = definition.key.split_once('.').map(|(table, _)| table);
        if group != Some(table) {
            group = Some(table);
            match table {
                None => page.push_str("\n## Outside any table\n"),
                Some(name) => {
                    let _ = write!(page, "\n## `[{name}]`\n");
                }
            }
        }
        row(&mut page, definition);
    }
    page
}

fn row(page: &mut String, definition: &Definition) {
    let Definition {
        key, default, shape, ..
    } = definition;
    let default = if default.is_empty() {
        "empty".to_owned()
    } else {
        format!("`{default}`")
    };
    let _ = write!(page, "\n### `{key}`\n\n");
    for line in definition.doc {
        let _ = writeln!(page, "{}", line.trim());
    }
    let _ = write!(page, "\n- default {default}; {shape}");
    if let Some((min, max)) = definition.range {
        let _ = write!(
            page,
            ", {} to {}",
            (definition.write)(min),
            (definition.write)(max)
        );
    }
    let _ = write!(page, "\n- `{}`", definition.variable());
    if let Some(flag) = definition.flag {
        let _ = write!(page, ", `--{flag}`");
    }
    if definition.reloads {
        page.push_str("\n- can be changed while it runs");
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_about_settings_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == super::page(),
            "docs/configuration.md is not up to date: cargo run -p stafett-server -- config-docs > docs/configuration.md"
        );
    }
}
