//! A PostgreSQL server of one test: on a socket in a temporary folder, as a user of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};
use tokio_util::task::TaskTracker;

#[path = "skip.rs"]
mod skip;

#[allow(
    unused_imports,
    reason = "each test is a program of its own, and not all of them skip for other reasons"
)]
pub(crate) use skip::skip;

/// Port that names the socket.
const PORT: u16 = 5432;
const PATIENCE: Duration = Duration::from_mins(2);

/// The server; it ends with this.
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    child: Child,
    tasks: TaskTracker,
}

/// Returns the folder of PostgreSQL's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    folders.filter(|folder| folder.join("initdb").exists()).max()
}

/// Returns the ids of the user that the server runs as: it refuses root.
fn user() -> Option<(u32, u32)> {
    let own = fs::metadata("/proc/self").ok()?;
    if own.uid() != 0 {
        return Some((own.uid(), own.gid()));
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

impl Server {
    /// Returns `None`, and says so, where there is no PostgreSQL.
    pub(crate) async fn start() -> Option<Self> {
        Self::start_with(PORT, &|_| Vec::new()).await
    }

    /// As [`Self::start`], with more settings; `settings` gets the folder of the data, which is the server's.
    pub(crate) async fn start_with(
        port: u16,
        settings: &(dyn Fn(&Path) -> Vec<String> + Sync),
    ) -> Option<Self> {
        let (Some(programs), Some((uid, gid))) = (programs(), user()) else {
            skip("PostgreSQL");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        chown(&data, Some(uid), Some(gid)).unwrap();
        let program = |name: &str| {
            let mut command = Command::new("setpriv");
            command
                .arg(format!("--reuid={uid}"))
                .arg(format!("--regid={gid}"))
                .args(["--clear-groups", "--pdeathsig", "QUIT"])
                .arg(programs.join(name))
                .current_dir(&data)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        };
        let mut initdb = program("initdb");
        initdb.args([
            "--auth=trust",
            "--username=postgres",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "-D",
        ]);
        assert!(initdb.arg(&data).status().unwrap().success(), "initdb");
        let mut postgres = program("postgres");
        postgres.arg("-D").arg(&data).arg("-k").arg(&data);
        postgres.args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-p",
            &port.to_string(),
        ]);
        for setting in settings(&data) {
            postgres.arg("-c").arg(setting);
        }
        // Files that the settings name are the server's too: it refuses keys of others.
        for entry in fs::read_dir(&data).unwrap() {
            chown(entry.unwrap().path(), Some(uid), Some(gid)).unwrap();
        }
        let server = Self {
            child: postgres.spawn().unwrap(),
            folder,
            port,
            tasks: TaskTracker::new(),
        };
        let begun = Instant::now();
        while tokio_postgres::connect(&server.url(), NoTls).await.is_err() {
            assert!(begun.elapsed() < PATIENCE, "the server does not answer");
            tokio::task::yield_now().await;
        }
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        let socket = self.folder.path().join("data");
        format!(
            "host={} port={} user=postgres dbname=postgres",
            socket.display(),
            self.port
        )
    }

    /// Returns a connection that ends with the runtime of the test.
    pub(crate) async fn connect(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        self.tasks.spawn(async move {
            let _ = connection.await;
        });
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
