//! `stafett lab` with a stand-in for `stafett-lab`: a shell, which does what its arguments say.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with the binary, deleted with its test. It lies beside the built one, which is linked and not
/// copied.
struct Installed(PathBuf);

impl Installed {
    fn new(name: &str) -> Self {
        let built = Path::new(env!("CARGO_BIN_EXE_stafett"));
        let folder = built.with_file_name(format!("lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::hard_link(built, folder.join("stafett")).unwrap();
        Self(folder)
    }

    fn lab(&self, arguments: &[&str]) -> (u32, Output) {
        let child = Command::new(self.0.join("stafett"))
            .arg("lab")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (child.id(), child.wait_with_output().unwrap())
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_lab_takes_the_place_of_the_process_with_all_arguments_and_its_exit_code() {
    let installed = Installed::new("there");
    symlink("/bin/sh", installed.0.join("stafett-lab")).unwrap();
    let (process, output) = installed.lab(&["-c", "echo $$ \"$0\"; exit 7"]);
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said, format!("{process} stafett lab\n"));
    let arguments = ["run", "--help", "-V", "--", "--out=x y", ""];
    let all: Vec<&str> = ["-c", "printf '%s\\n' \"$@\"", "name"]
        .into_iter()
        .chain(arguments)
        .collect();
    let (_, output) = installed.lab(&all);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().collect::<Vec<_>>(), arguments);
}

#[test]
fn without_the_lab_the_path_is_said_and_how_it_is_built() {
    let installed = Installed::new("missing");
    let (_, output) = installed.lab(&["list"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let tried = installed.0.join("stafett-lab");
    assert_eq!(
        said,
        format!(
            "stafett: {}: there is no such program; `make build` builds all\n",
            tried.display()
        )
    );
}
