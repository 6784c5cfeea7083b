//! Writes the first inputs of the fuzz targets under `corpus/`.

use std::fs;
use std::path::Path;

const RECORD: &str = r#"{"a":{"b":[1,2.5,{"c":"x\n\u00e9"}],"d":null},"n":-7,"t":"2026-10-25T00:30:00Z","ip":"10.0.0.1"}"#;
const EXPRESSIONS: [&str; 12] = [
    "value.n + 1 < 3 && value.a.b[1] >= 2.5 || !has(value.x)",
    "value.a.b[2].c.matches('^x.*é$') ? key.size() : -value.n",
    "timestamp(value.t).getHours('Europe/Stockholm') == 2",
    "local(timestamp(value.t), 'Asia/Kathmandu') + week(timestamp(value.t), '+01:00')",
    "value.n in [1, -7, 2.0, 'a', b'\\x00', null, r'\\d']",
    "'a' in value.a && 'b' in headers && headers.a != headers['a']",
    "int('9223372036854775807') / value.n % 3 * 2 - 1",
    "duration('1h30m') + timestamp(0) > timestamp(value.t)",
    "value == value.a || value.a.b == [1, 2.5]",
    "double(value.n) / 0.0 == 1e3 && string(value.n).lowerAscii().trim() == '-7'",
    "topic.startsWith('a') && routing_key.endsWith('b') && exchange.contains('.')",
    "priority > 3 && offset == 7 && partition != 1",
];

fn main() -> std::io::Result<()> {
    let write = |target: &str, number: usize, text: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("seed-{number}")), text)
    };
    for (number, expression) in EXPRESSIONS.iter().enumerate() {
        write("evaluate", number, &format!("{expression}\n{RECORD}"))?;
    }
    write("paths", 0, RECORD)?;
    write("paths", 1, r#" {"a": 1, "\u0061": {"b": [], "\u0062": true}, "é\"": "x"} "#)
}
