//! Experiments for made-up results: one for each kind of figure.

pub(crate) const BATCH: &str = r#"
question = "Made up for the tests: how does throughput grow with the batch?"
note = """
Nothing here was measured. The numbers come from a formula, and have the shape that such numbers have.

A second paragraph, to see how it looks.
"""
systems = ["stafett", "kafka", "rabbitmq"]

[run]
repetitions = 5
duration = "20s"
warmup = "3s"

[topics.main]
partitions = 6

[roles.producers]
does = "produce"
size = 100

[roles.consumers]
does = "consume"

[grid]
"roles.producers.batch" = ["1KiB", "4KiB", "16KiB", "64KiB", "256KiB"]
"system.durability" = ["os", "sync"]

[[figures]]
title = "Throughput by batch"
kind = "lines"
x = "roles.producers.batch"
y = ["produce_rate"]
log_x = true
log_y = true

[[figures]]
title = "CPU of the broker"
kind = "bars"
x = "system.durability"
y = ["broker_cpu_per_million"]
by = ["system"]
"#;

pub(crate) const LEVELS: &str = r#"
question = "Made up for the tests: what does each level of durability cost?"
note = "Nothing here was measured."
systems = ["stafett", "kafka"]

[roles.producers]
does = "produce"

[grid]
"system.durability" = ["memory", "os", "interval:600,60000", "sync"]

[[figures]]
title = "Throughput by durability"
kind = "lines"
x = "system.durability"
y = ["produce_rate"]

[[figures]]
title = "Latency by durability"
kind = "latency"
y = ["acknowledged"]
by = ["system.durability"]
"#;

pub(crate) const PEAK: &str = r#"
question = "Made up for the tests: how fast, how late, and how steadily?"
note = "Nothing here was measured."
systems = ["stafett", "kafka", "rabbitmq"]

[run]
repetitions = 3
duration = "20s"
warmup = "3s"

[roles.producers]
does = "produce"
size = 100
rate = { fixed = 20000 }

[roles.consumers]
does = "consume"

[[figures]]
title = "Throughput"
kind = "bars"
x = "system"
y = ["produce_rate", "broker_cpu_per_million"]

[[figures]]
title = "Latency"
kind = "latency"
y = ["acknowledged", "delivery"]

[[figures]]
title = "Over time"
kind = "time"
y = ["rate", "p99", "backlog", "broker_cpu"]
"#;

pub(crate) const FACTORS: &str = r#"
question = "Made up for the tests: which of four factors matter?"
note = "Nothing here was measured."
systems = ["stafett"]

[run]
repetitions = 3
design = "factorial"

[topics.main]
count = 30

[roles.relays]
does = "relay"
clients = 15

[grid]
"roles.relays.clients" = [15, 30]
"system.stafett.set.worker_threads" = [1, 2]
"system.durability" = ["os", "sync"]
"roles.relays.size" = [100, 2000]

[[figures]]
title = "Effects"
kind = "effects"
y = ["consume_rate", "delivery_p50_us"]
"#;

/// The same load in a closed loop, bounded, and at rates.
pub(crate) const LOOPS: &str = r#"
question = "Made up for the tests: what does a curve mean?"
note = "Nothing here was measured."
systems = ["stafett"]

[run]
repetitions = 1

[roles.producers]
does = "produce"
window = 50

[grid]
"roles.producers.size" = [100]

[[figures]]
title = "Latency"
kind = "latency"
y = ["acknowledged"]
"#;

/// What storing takes, by levels.
pub(crate) const SHARES: &str = r#"
question = "Made up for the tests: which part of the time is whose?"
note = "Nothing here was measured."
systems = ["stafett", "kafka"]

[run]
repetitions = 2

[roles.producers]
does = "produce"

[grid]
"system.durability" = ["memory", "os", "sync"]

[[figures]]
title = "Shares of the time to acknowledgement"
kind = "shares"
x = "system.durability"
y = ["acknowledged_p50_us"]
"#;

/// A system that cannot be asked yet: the fixture skips every point of it.
pub(crate) const SKIPPED: &str = r#"
question = "Made up for the tests: what stands there when nothing could be measured?"
systems = ["rabbitmq"]

[roles.producers]
does = "produce"
batch = "1KiB"

[grid]
"roles.producers.compression" = ["none", "snappy"]
"#;

/// The same without repetitions.
pub(crate) fn unreplicated() -> String {
    FACTORS.replace("repetitions = 3", "repetitions = 1")
}
