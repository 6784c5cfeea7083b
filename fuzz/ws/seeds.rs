//! Writes the first inputs of the fuzz targets under `corpus/`.

use std::fs;
use std::path::Path;

/// The size of reads, then an empty text, a text in two fragments with a ping between, and a close, as a
/// client sends them.
const FRAMES: &[u8] =
    b"\x03\x81\x80\0\0\0\0\x01\x81\0\0\0\0a\x89\x80\0\0\0\0\x80\x81\0\0\0\0b\x88\x82\0\0\0\0\x03\xe8";
const COMMANDS: [&str; 4] = [
    r#"{"op":"send","id":1,"to":{"queues":["q",{"id":"7"}],"clients":[]},"content":{"a":1.50},"headers":{"x":null}}"#,
    r#"{"id":[1,"x"],"op":"receive","queue":"a\u0062","header.a":"b","count":7,"wait":"1s"}"#,
    r#"{"op":"settle","consumer":1,"complete":["12-0-1"],"requeue":[],"id":null}"#,
    r#"{"op":"watch","what":[{"list":"queues","query":"sort=-ready"},{"of":"queues/q"}],"every_ms":1000}"#,
];
const PACKED: &[u8] = b"\x83\xa2op\xa4ping\xa2id\x01\xa7content\xc4\x02\x00\xff";

fn main() -> std::io::Result<()> {
    let write = |target: &str, number: usize, bytes: &[u8]| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{number}")), bytes)
    };
    for (number, command) in COMMANDS.iter().enumerate() {
        write("commands", number, command.as_bytes())?;
    }
    write("frames", 0, FRAMES)?;
    write("msgpack", 0, PACKED)
}
