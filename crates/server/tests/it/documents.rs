//! The lines of `docs/http.md`, and of the first section of `docs/security.md`, run as they are printed.

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
    write(".curlrc", "fail-with-body\nsilent\n");
    write("photo.png", "a photo");
    write("orders.ndjson", "{\"id\": 1}\n{\"id\": 2}\n");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/http.md");
    let lines = curl_lines(&std::fs::read_to_string(document).unwrap());
    assert!(lines.len() > 40, "{lines:?}");
    for line in lines {
        // Lines that wait, or go on, are cut off.
        let goes_on = line.contains("wait=") || line.contains("curl -N");
        let cut = if goes_on { "curl --max-time 5" } else { "curl" };
        let line = line.replacen("curl", cut, 1);
        let ran = Command::new("sh")
            .args(["-c", &line.replace("127.0.0.1:7070", &address)])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        let is_good = ran.status.success() || goes_on && ran.status.code() == Some(28);
        assert!(
            is_good,
            "{line}: {} {}",
            ran.status,
            String::from_utf8_lossy(&ran.stdout)
        );
    }
}

/// A command of a page, and a text that it says when it is refused, which is its comment.
struct Line {
    command: String,
    refused: Option<String>,
}

/// Returns the commands in the blocks of a section; one with a document behind it is several lines.
fn commands(section: &str) -> Vec<Line> {
    let blocks = section.split("```sh\n").skip(1);
    let text: String = blocks.filter_map(|block| block.split("```").next()).collect();
    let mut found: Vec<Line> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let (command, refused) = match line.split_once("  # ") {
            Some((command, text)) => (command, Some(text.to_owned())),
            None => (line, None),
        };
        let mut command = command.to_owned();
        if line.contains("<<'END'") {
            for line in lines.by_ref() {
                command = format!("{command}\n{line}");
                if line == "END" {
                    break;
                }
            }
        }
        found.push(Line { command, refused });
    }
    found
}

#[test]
fn the_ten_minutes_of_security_work_as_printed() {
    let has = |program: &str, argument: &str| {
        let ran = Command::new(program).arg(argument).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/clients/venv/bin/python");
    let python = python.to_str().unwrap();
    if !has("curl", "--version") || !has("kcat", "-V") {
        return;
    }
    let has_python = has(python, "--version");
    let page = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
    let section = page
        .split("\n## ")
        .find(|part| part.starts_with("In ten minutes"));
    let lines = commands(section.unwrap());
    assert!(lines.len() >= 20, "{}", lines.len());
    let folder = Folder::new();
    let binary = env!("CARGO_BIN_EXE_stafett");
    let mut running: Option<Running> = None;
    for Line { command, refused } in lines {
        let is_missing = command.starts_with("python3 ") && !has_python;
        if command.starts_with("cargo ") || is_missing {
            continue;
        }
        if let Some(settings) = command.strip_prefix("stafett serve ") {
            let mut server = serve(&folder);
            server.current_dir(folder.path());
            server.args(settings.trim_end_matches('&').split_whitespace());
            for listener in ["kafka", "amqp", "http"] {
                server.args(["--set", &format!("{listener}.tls_listen=127.0.0.1:0")]);
            }
            running = Some(Running::start(server));
            continue;
        }
        let command = match &running {
            None => command.replace("stafett ", &format!("{binary} ")),
            Some(running) => {
                let http = running.address("http");
                let mut command = command.replace("python3 ", &format!("{python} "));
                for (listener, port) in [("kafka", "9093"), ("amqp", "5671"), ("http", "7443")] {
                    let own = running.address(&format!("{listener}-tls")).port().to_string();
                    command = command.replace(port, &own);
                }
                match command.strip_prefix("stafett ") {
                    Some(rest) => format!("{binary} {rest} --http {http}"),
                    None => command,
                }
            }
        };
        let ran = Command::new("sh")
            .args(["-c", &command])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        match refused {
            Some(text) => assert!(said.contains(&text), "{command}: {said}"),
            None => assert!(
                ran.status.success() && !said.contains("problems/"),
                "{command}: {said}"
            ),
        }
    }
}
