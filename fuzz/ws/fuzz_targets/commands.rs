//! Commands of the API's WebSocket: read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stafett_admin::ws::command::Command;

fuzz_target!(|text: &str| {
    match Command::read(text) {
        Ok(command) => {
            assert!(command.id.is_none_or(|id| id.len() <= 256));
            drop(command.fields());
            drop(command.read_message());
        }
        Err((id, _)) => assert!(id.is_none_or(|id| serde_json::from_str::<serde_json::Value>(id).is_ok())),
    }
});
