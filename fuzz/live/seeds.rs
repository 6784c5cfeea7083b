//! Writes the first inputs of every fuzz target under `corpus/`.

use std::fs;
use std::path::Path;

const COMMANDS: [&str; 10] = [
    r#"{"command":"listen","client_id":1,"outbox_bytes":1000,"overflow":"drop-newest"}"#,
    r#"{"command":"subscribe","client_id":"1","topic":["a","b\u0031"],"id":[1]}"#,
    r#"{"command":"subscribe","client_id":1,"topic":"a","from":"earliest"}"#,
    r#"{"command":"unsubscribe","client_id":1,"pattern":"a*?\\*"}"#,
    r#"{"command":"unsubscribe","client_id":1,"all":true}"#,
    r#"{"command":"publish","client_id":1,"topic":"a","payload":{"x":null},"timestamp":1,"message_id":"m","ack":true}"#,
    r#"{"command":"publish","client_id":1,"messages":[{"topic":"a","payload_base64":"AP8="}]}"#,
    r#"{"command":"list","client_id":1,"from":5,"count":10}"#,
    r#"{"command":"subscribe","client_id":-9223372036854775808,"topic":["a"],"from":"resume","id":null}"#,
    r#"[{"topic":"a","payload":[1e400,"\ud834\udd1e"]},{"topic":"b","payload_base64":""}]"#,
];

fn main() -> std::io::Result<()> {
    let write = |target: &str, number: usize, bytes: &[u8]| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{number}")), bytes)
    };
    for (number, command) in COMMANDS.iter().enumerate() {
        write("commands", number, command.as_bytes())?;
    }
    Ok(())
}
