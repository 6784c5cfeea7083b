//! The workload's settings as librdkafka properties (CONFIGURATION.md of librdkafka 2).

use std::time::Duration;

use rdkafka::config::ClientConfig;
use stafett_lab::drivers::{Reads, Seat};
use stafett_lab::experiment::{Acks, Codec, Delivery};

/// Maximum of librdkafka.
const MESSAGE_BYTES_MAX: u64 = 1_000_000_000;
const FETCH_BYTES_MAX: u64 = i32::MAX as u64 - 512;
const BATCH_MESSAGES_MAX: u32 = 1_000_000;
/// librdkafka requires that a fetch can hold the largest message that may be sent.
const MESSAGE_BYTES: u64 = 1_000_000;
/// Bytes of a fetch response besides records.
const ANSWER_BYTES: u64 = 512;

/// Returns the settings of every client.
pub(super) fn of_any(server: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", server)
        .set("client.id", "stafett-lab")
        .set("broker.address.family", "v4");
    config
}

/// Maps `batch`, `linger`, `in_flight`, `compression`, `acks` and `delivery` of a sending role.
pub(super) fn of_sender(server: &str, seat: &Seat) -> ClientConfig {
    let role = &seat.role;
    let mut config = of_any(server);
    config
        .set("acks", role.acks().name())
        .set("enable.idempotence", (role.acks() == Acks::All).to_string())
        .set("linger.ms", millis(role.linger.0))
        .set("batch.size", role.batch.0.min(MESSAGE_BYTES_MAX).to_string())
        // Bytes bound a batch, so these two limits are set to their maximum.
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

/// Maps `fetch_wait` and `fetch_bytes` of a receiving role, and its group. Records of open or aborted
/// transactions are not delivered, which is librdkafka's default.
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
        // The role's `commit` decides.
        .set("enable.auto.commit", "false")
        // With many topics of one partition each, `range` would assign all to one client.
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

/// Returns a name that is unique to the role and the point: topics are created for each point.
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
