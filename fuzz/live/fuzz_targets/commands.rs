//! Commands, and bodies of posts: read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_live::command::{Bounds, read, read_messages};

const BOUNDS: Bounds = Bounds {
    topic_bytes_max: 64,
    outbox_bytes_max: 1 << 20,
};

fuzz_target!(|text: &str| {
    if let Err((Some(id), _)) = read(text, BOUNDS) {
        assert!(serde_json::from_str::<serde_json::Value>(id).is_ok() || id.len() <= 256);
    }
    drop(read_messages(text, BOUNDS));
});
