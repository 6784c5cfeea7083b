//! The definition of an app that is there, by the fields that declare it.

use serde_json::{Map, Value, json};
use stafett_apps::{App, Filter};

use super::declare::{BALANCES, CLOCKS, FORMATS, GAPS, GUARANTEES, REBALANCES};
use super::settings::word;

/// Returns the definition, with the name.
pub(crate) fn definition_of(app: &App) -> Map<String, Value> {
    let stored = app.stored();
    let it = &stored.definition;
    let tables = it.tables.iter().map(|(name, table)| {
        let format = word(&FORMATS, table.format);
        let shown = match table.ttl_ms {
            Some(ttl) => json!({ "format": format, "keyed": table.keyed, "ttl_ms": ttl }),
            None => json!({ "format": format, "keyed": table.keyed }),
        };
        (name.to_string(), shown)
    });
    let definition = json!({
        "name": app.name,
        "topics": it.topics,
        "from": if it.from.is_empty() { "earliest" } else { &it.from },
        "filter": it.filter.as_ref().map(Filter::source),
        "guarantee": word(&GUARANTEES, it.guarantee),
        "durability": it.durability.map(|level| level.to_string()),
        "balance": word(&BALANCES, it.balance),
        "rebalance": word(&REBALANCES, it.manual_rebalance),
        "worker_timeout_ms": it.worker_timeout_ms,
        "revoke_ms": it.revoke_ms,
        "time": {
            "clock": word(&CLOCKS, it.time.of_records),
            "grace_ms": it.time.grace_ms,
            "idle_ms": it.time.idle_ms,
        },
        "tables": tables.collect::<Map<_, _>>(),
        "state_bytes_max": it.state_bytes_max,
        "on_gap": word(&GAPS, it.stops_at_gap),
        "attempts_max": it.attempts_max,
        "dead_letter": it.dead_letter,
        "splittable": it.splittable,
    });
    let Value::Object(fields) = definition else {
        return Map::new();
    };
    fields
}
