//! Settings from all their sources, good and bad.

use std::collections::HashSet;
use std::ffi::OsString;
use std::time::Duration;

use super::values::Values;
use super::*;

fn from_file(text: &str) -> Result<Settings, ConfigError> {
    let mut values = Values::default();
    file::read_text("stafett.toml", text, &mut values)?;
    let settings = Settings::read(&values)?;
    settings.check()?;
    Ok(settings)
}

fn with(flags: Flags, variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    load(
        flags,
        variables
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    )
    .map(|loaded| loaded.settings)
}

fn flag(key: &str, text: &str) -> (&'static Definition, String) {
    (definition::find(key).unwrap(), text.to_owned())
}

#[test]
fn the_defaults_are_valid() {
    let settings = from_file("").unwrap();
    assert_eq!(settings.kafka.listen.as_deref(), Some("127.0.0.1:9092"));
    assert_eq!(settings.kafka.request_bytes_max, 104_857_600);
    assert_eq!(settings.retention_ms, Some(Duration::from_hours(168)));
    assert_eq!(settings.retention_bytes, None);
    assert_eq!(settings.kafka.advertised, None);
}

#[test]
fn names_are_unique_in_every_source() {
    let mut seen = HashSet::new();
    for definition in DEFINITIONS {
        assert!(seen.insert(definition.variable()), "{}", definition.key);
        assert_ne!(definition.variable(), environment::FILE_VARIABLE);
        assert!(
            definition.flag.is_none_or(|flag| seen.insert(flag.to_owned())),
            "{}",
            definition.key
        );
    }
}

#[test]
fn tables_dots_numbers_and_units_are_all_read_from_a_file() {
    let settings = from_file(
        "kafka.listen = '[::1]:0'\nretention_ms = -1\ndurability = 'interval:1000,20'\n\
         [journal]\nsegment_bytes = 0x400000\ntail_cache_bytes = '1 MiB'\n\
         [http]\nconnections_max = 1_000\n",
    )
    .unwrap();
    assert_eq!(settings.kafka.listen.as_deref(), Some("[::1]:0"));
    assert_eq!(settings.retention_ms, None);
    assert_eq!(settings.durability.to_string(), "interval:1000,20");
    assert_eq!(settings.journal.segment_bytes, 4 << 20);
    assert_eq!(settings.journal.tail_cache_bytes, 1 << 20);
    assert_eq!(settings.http.connections_max, 1000);
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let folder = std::env::temp_dir().join(format!("stafett-settings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("stafett.toml");
    std::fs::write(
        &path,
        "data_dir = 'file'\n[kafka]\ndefault_partitions = 2\n[log]\nlevel = 'warn'\n",
    )
    .unwrap();
    let flags = Flags {
        given: vec![flag("data_dir", "flag")],
        set: vec!["kafka.default_partitions=4".to_owned()],
        ..Flags::default()
    };
    let variables = [
        ("STAFETT_CONFIG", path.to_str().unwrap()),
        ("STAFETT_DATA_DIR", "environment"),
        ("STAFETT_KAFKA_DEFAULT_PARTITIONS", "3"),
        ("STAFETT_LOG_FORMAT", "json"),
        ("STAFETT_TEST_SEED", "1"),
        ("STAFETT_BIN", "stafett"),
        ("STAFETT_LAB_CLIENTS", "a/program"),
        ("PATH", "/bin"),
    ];
    let settings = with(flags, &variables).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(settings.data_dir, PathBuf::from("flag"));
    assert_eq!(settings.kafka.default_partitions, 4);
    assert_eq!(settings.log.level, "warn");
    assert_eq!(settings.log.format, LogFormat::Json);
}

#[test]
fn an_unknown_name_is_an_error_that_names_the_nearest() {
    for (text, message) in [
        (
            "dataa_dir = 'x'",
            "stafett.toml:1: unknown setting dataa_dir; the nearest known one is data_dir",
        ),
        (
            "\n[kafka]\n\nlisten = 'a:1'\nlissen = 'b:2'",
            "stafett.toml:5: unknown setting kafka.lissen; the nearest known one is kafka.listen",
        ),
        (
            "[kafak]\nlisten = 'a:1'",
            "stafett.toml:2: unknown setting kafak.listen; the nearest known one is kafka.listen",
        ),
        (
            "[jornal]",
            "stafett.toml:1: unknown setting jornal; the nearest known one is",
        ),
    ] {
        let error = from_file(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    let error = with(Flags::default(), &[("STAFETT_KAFKA_LISTN", "x:1")])
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "unknown environment variable STAFETT_KAFKA_LISTN; the nearest known one is STAFETT_KAFKA_LISTEN"
    );
    let set = Flags {
        set: vec!["kafka.portitions=3".to_owned()],
        ..Flags::default()
    };
    assert!(
        with(set, &[])
            .unwrap_err()
            .to_string()
            .starts_with("--set: unknown setting kafka.portitions")
    );
}

#[test]
fn a_bad_value_is_named_with_its_place_and_what_was_expected() {
    for (text, message) in [
        (
            "[kafka]\nlisten = 9092",
            "stafett.toml:2: kafka.listen cannot be \"9092\": expected HOST:PORT",
        ),
        ("kafka.advertised = 'host:0'", "clients cannot connect to port 0"),
        ("kafka.listen = '::1:9092'", "expected HOST:PORT"),
        ("worker_threads = 0", "expected 1 to 1024"),
        ("journal.segment_bytes = '1GB'", "expected size"),
        ("journal.segment_bytes = '1TiB'", "expected 1MiB to 1GiB"),
        ("retention_ms = -2", "expected duration or -1"),
        ("allow_unauthenticated = 'yes'", "expected true or false"),
        ("durability = 'fsync'", "expected memory, os, interval:"),
        ("connections_max = 1.5", "expected number"),
        ("log.format = 'xml'", "expected text or json"),
        ("log.level = 'loud'", "expected off, error"),
        ("kafka.listen = ['a:1']", "takes one plain value, not array"),
        ("[kafka.listen]\nx = 1", "takes one plain value, not table"),
        ("data_dir = ", "stafett.toml:1: this is not TOML"),
        (
            "kafka.request_bytes_max = '200MiB'",
            "kafka.request_bytes_max (209715200) is more than",
        ),
        (
            "kafka.request_bytes_max = '64KiB'",
            "kafka.message_bytes_max (1048588) is more than",
        ),
    ] {
        let error = from_file(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    let error = with(
        Flags {
            given: vec![flag("kafka.listen", "x")],
            ..Flags::default()
        },
        &[],
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("--kafka: kafka.listen cannot be \"x\""),
        "{error}"
    );
    let error = with(
        Flags {
            set: vec!["x".to_owned()],
            ..Flags::default()
        },
        &[],
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "--set takes KEY=VALUE, not \"x\"");
}

#[test]
fn others_can_reach_a_listener_only_if_that_is_said() {
    let closed = from_file("").unwrap();
    let open = from_file("allow_unauthenticated = true").unwrap();
    let loopback = [
        "127.0.0.1:1".parse().unwrap(),
        "[::1]:1".parse().unwrap(),
        "[::ffff:127.0.0.1]:1".parse().unwrap(),
    ];
    let all = ["127.0.0.1:1".parse().unwrap(), "0.0.0.0:1".parse().unwrap()];
    closed.check_reach("kafka.listen", &loopback).unwrap();
    open.check_reach("kafka.listen", &all).unwrap();
    let error = closed.check_reach("kafka.listen", &all).unwrap_err().to_string();
    assert!(
        error.contains("kafka.listen = 0.0.0.0:1") && error.contains("allow_unauthenticated = true"),
        "{error}"
    );
}
