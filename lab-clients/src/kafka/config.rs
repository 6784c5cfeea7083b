//! The workload's settings in librdkafka's words (CONFIGURATION.md of librdkafka 2).

use std::time::Duration;

use rdkafka::config::ClientConfig;
use stafett_lab::drivers::{Reads, Seat};
use stafett_lab::experiment::{Acks, Codec, Delivery};

/// The largest values that librdkafka takes.
const MESSAGE_BYTES_MAX: u64 = 1_000_000_000;
const FETCH_BYTES_MAX: u64 = i32::MAX as u64 - 512;
const BATCH_MESSAGES_MAX: u32 = 1_000_000;
/// librdkafka wants what is fetched at once to hold the largest message that is sent.
const MESSAGE_BYTES: u64 = 1_000_000;
/// What a fetch's answer has beside records.
const ANSWER_BYTES: u64 = 512;

/// What every client needs.
pub(super) fn of_any(server: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", server)
        .set("client.id", "stafett-lab")
        .set("broker.address.family", "v4");
    config
}

/// `batch`, `linger`, `in_flight`, `compression`, `acks` and `delivery` of a role that sends.
pub(super) fn of_sender(server: &str, seat: &Seat) -> ClientConfig {
    let role = &seat.role;
    let mut config = of_any(server);
    config
        .set("acks", role.acks().name())
        .set("enable.idempotence", (role.acks() == Acks::All).to_string())
        .set("linger.ms", millis(role.linger.0))
        .set("batch.size", role.batch.0.min(MESSAGE_BYTES_MAX).to_string())
        // So that the bytes decide, and neither of these.
        .set("batch.num.messages", BATCH_MESSAGES_MAX.to_string())
        .set("message.max.bytes", MESSAGE_BYTES_MAX.to_string())
        .set(
            "max.in.flight.requests.per.connection",
            role.in_flight.to_string(),
        )
        .set("compression.codec", codec(role.compression));
    if role.delivery == Delivery::ExactlyOnce {
        config.set("transactional.id", format!("{}-{}", identity(seat), seat.client));
    }
    config
}

/// `fetch_wait` and `fetch_bytes` of a role that receives, and its group. What a transaction left open or
/// aborted is not given out: that is librdkafka's default.
pub(super) fn of_receiver(server: &str, seat: &Seat) -> ClientConfig {
    let role = &seat.role;
    let of_partition = role.fetch_bytes.0.clamp(1, MESSAGE_BYTES_MAX);
    let of_fetch = of_partition.saturating_mul(4).min(FETCH_BYTES_MAX);
    let group = match seat.reads {
        Reads::One(_) => format!("{}-{}", identity(seat), seat.client),
        Reads::Share | Reads::All => identity(seat),
    };
    let mut config = of_any(server);
    config
        .set("group.id", group)
        .set("auto.offset.reset", "earliest")
        // The role's `commit` says when.
        .set("enable.auto.commit", "false")
        // Of many topics with a partition each, `range` would give all to one client.
        .set("partition.assignment.strategy", "roundrobin")
        .set(
            "fetch.wait.max.ms",
            role.fetch_wait.0.as_millis().min(300_000).to_string(),
        )
        .set("max.partition.fetch.bytes", of_partition.to_string())
        .set(
            "message.max.bytes",
            of_fetch.clamp(1000, MESSAGE_BYTES).to_string(),
        )
        .set("fetch.max.bytes", of_fetch.max(1000).to_string())
        .set(
            "receive.message.max.bytes",
            (of_fetch + ANSWER_BYTES).max(MESSAGE_BYTES).to_string(),
        );
    config
}

/// A name that no other role and no other point has: topics are made for each point.
fn identity(seat: &Seat) -> String {
    let first = seat.destinations.names.first().map_or("lab", String::as_str);
    format!("{first}-{}", seat.group)
}

fn millis(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    millis.min(900_000.0).to_string()
}

fn codec(codec: Codec) -> &'static str {
    match codec {
        Codec::None => "none",
        Codec::Gzip => "gzip",
        Codec::Snappy => "snappy",
        Codec::Lz4 => "lz4",
        Codec::Zstd => "zstd",
    }
}
