//! The lines of `docs/http.md`, run as they are printed.

use std::path::Path;
use std::process::Command;

use crate::common::{Folder, Running, serve};

/// Returns the commands with curl in the blocks of a document: lines, those that pack for it, and lines tied
/// by `&&`.
fn curl_lines(document: &str) -> Vec<String> {
    let blocks = document.split("```sh\n").skip(1);
    let text: String = blocks.filter_map(|block| block.split("```").next()).collect();
    let text = text.replace("\\\n", " ").replace("&&\n", "&& ");
    let begins = ["curl ", "gzip ", "MEMBER="];
    let is_command = |line: &&str| begins.iter().any(|begin| line.starts_with(begin));
    let lines = text.lines().filter(is_command);
    lines.map(str::to_owned).collect()
}

#[test]
fn every_line_of_curl_works_as_printed() {
    if Command::new("curl").arg("--version").output().is_err() {
        return;
    }
    let folder = Folder::new();
    let running = Running::start(serve(&folder));
    let address = running.address("http").to_string();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(".curlrc", "fail-with-body\nsilent\nmax-time = 5\n");
    write("photo.png", "a photo");
    write("orders.ndjson", "{\"id\": 1}\n{\"id\": 2}\n");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let lines = curl_lines(&std::fs::read_to_string(document).unwrap());
    assert!(lines.len() > 40, "{lines:?}");
    for line in lines {
        let ran = Command::new("sh")
            .args(["-c", &line.replace("127.0.0.1:7070", &address)])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        // Lines that wait, or go on, are cut off by the limit above.
        let goes_on = line.contains("wait=") || line.contains("curl -N");
        let is_good = ran.status.success() || goes_on && ran.status.code() == Some(28);
        assert!(
            is_good,
            "{line}: {} {}",
            ran.status,
            String::from_utf8_lossy(&ran.stdout)
        );
    }
}
