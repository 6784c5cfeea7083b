//! The planted defects still fit the code that they change.

use std::path::Path;
use std::process::Command;

#[test]
fn every_planted_defect_applies_to_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let plants = std::fs::read_dir(root.join("crates/simulation/plants")).unwrap();
    let mut patches: Vec<_> = plants.map(|entry| entry.unwrap().path()).collect();
    patches.sort();
    assert!(!patches.is_empty());
    for patch in patches {
        let mut check = Command::new("git");
        check
            .args(["apply", "--check", "-C1"])
            .arg(&patch)
            .current_dir(&root);
        let Ok(output) = check.output() else {
            eprintln!("skipped: there is no git");
            return;
        };
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {error}", patch.display());
    }
}
