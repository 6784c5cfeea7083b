//! MessagePack: refused, or turned into JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_ws::msgpack::to_json;

fuzz_target!(|data: &[u8]| {
    if let Ok(json) = to_json(data) {
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{json}");
    }
});
