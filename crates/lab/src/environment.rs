//! The machine, and the software on it.

use std::fs;
use std::path::Path;
use std::process::Command;

use procfs::{CpuInfo, Current as _, Meminfo};

use crate::results::Environment;

/// Describes the machine; fields stay empty if they are not known. `data`: the folder of the systems' data.
pub fn describe(data: &Path, exe: &Path) -> Environment {
    Environment {
        cpu: cpu().unwrap_or_default(),
        cores: cores(),
        memory_bytes: Meminfo::current().map_or(0, |memory| memory.mem_total),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
            .map_or_else(|_| String::new(), |text| text.trim().to_owned()),
        distribution: distribution(),
        disk: disk(data),
        stafett: env!("CARGO_PKG_VERSION").to_owned(),
        revision: revision(exe),
        ..Environment::default()
    }
}

/// Cores that this process may use.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(1))
}

fn cpu() -> Option<String> {
    let info = CpuInfo::current().ok()?;
    info.model_name(0).map(str::to_owned)
}

fn distribution() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim_matches('"').to_owned()
}

/// The file system that holds `path`, such as `ext4 on /dev/sda1`.
fn disk(path: &Path) -> String {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = procfs::mounts().unwrap_or_default().into_iter();
    let holding = mounts.filter(|mount| path.starts_with(&mount.fs_file));
    let disk = holding.max_by_key(|mount| mount.fs_file.len());
    disk.map_or_else(String::new, |disk| {
        format!("{} on {}", disk.fs_vfstype, disk.fs_spec)
    })
}

/// The revision of the checkout that the program lies in, if it does.
pub(crate) fn revision(exe: &Path) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(exe.parent()?)
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores_memory_and_a_disk() {
        let folder = tempfile::tempdir().unwrap();
        let environment = describe(folder.path(), Path::new("/nowhere/stafett"));
        assert!(environment.cores >= 1);
        assert!(environment.memory_bytes > 1 << 20);
        assert!(environment.disk.contains(" on "), "{}", environment.disk);
        assert!(!environment.kernel.is_empty());
        assert_eq!(environment.revision, None);
    }
}
