//! One broker under test: a process with its own ports and data folder, which is gone when this value is.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;
use std::{env, process};

/// A guard against hanging for ever, not an expectation.
const START_LIMIT: Duration = Duration::from_mins(2);
/// SIGTERM drains and stops within 10 s; the rest is for a machine that is busy with other tests.
const STOP_LIMIT: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// Tells the folders of one test process apart.
static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Broker {
    process: Option<Child>,
    program: PathBuf,
    folder: PathBuf,
    durability: &'static str,
    /// `KEY=VALUE`, as for `--set`.
    settings: &'static [&'static str],
    /// MiB of a disk of its own, in memory; it goes with the process.
    disk_mib: Option<u32>,
    kafka: String,
    amqp: String,
    http: String,
}

impl Broker {
    /// Starts a broker whose new topics have the durability `sync`, which is what it would have by default.
    pub(crate) fn start() -> Self {
        Self::start_at("sync")
    }

    pub(crate) fn start_at(durability: &'static str) -> Self {
        Self::start_with(durability, &[])
    }

    /// Starts a broker with settings; Apache Kafka's launcher understands those that tests use.
    pub(crate) fn start_with(durability: &'static str, settings: &'static [&'static str]) -> Self {
        if let Some(address) = external() {
            return Self {
                process: None,
                program: PathBuf::new(),
                folder: PathBuf::new(),
                durability,
                settings,
                disk_mib: None,
                kafka: address,
                amqp: String::new(),
                http: String::new(),
            };
        }
        Self::start_program(binary(), durability, settings, None)
    }

    /// Starts a broker on a small disk in memory that nobody else uses; nothing where none can be had.
    pub(crate) fn start_on_small_disk(disk_mib: u32, settings: &'static [&'static str]) -> Option<Self> {
        let probe = on_own_disk(1, &scratch())
            .arg("true")
            .stdin(Stdio::null())
            .output();
        probe
            .is_ok_and(|probe| probe.status.success())
            .then(|| Self::start_program(binary(), "sync", settings, Some(disk_mib)))
    }

    /// Starts Apache Kafka behind the command line of ours.
    pub(crate) fn start_kafka(launcher: PathBuf) -> Self {
        Self::start_program(launcher, "os", &[], None)
    }

    fn start_program(
        program: PathBuf,
        durability: &'static str,
        settings: &'static [&'static str],
        disk_mib: Option<u32>,
    ) -> Self {
        let name = format!(
            "broker-{}-{}",
            process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = scratch().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut broker = Self {
            process: None,
            program,
            folder,
            durability,
            settings,
            disk_mib,
            kafka: "127.0.0.1:0".to_owned(),
            amqp: "127.0.0.1:0".to_owned(),
            http: "127.0.0.1:0".to_owned(),
        };
        broker.launch();
        broker
    }

    /// `HOST:PORT` of the Kafka listener. It stays the same over a restart.
    pub(crate) fn kafka(&self) -> &str {
        &self.kafka
    }

    /// `HOST:PORT` of the AMQP listener. It stays the same over a restart.
    pub(crate) fn amqp(&self) -> &str {
        &self.amqp
    }

    /// `HOST:PORT` of the HTTP listener. It stays the same over a restart.
    pub(crate) fn http(&self) -> &str {
        &self.http
    }

    /// The process, if the test has started it.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// A folder that goes away with the broker, for the files of a test.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = if self.folder.as_os_str().is_empty() {
            scratch().join("external")
        } else {
            self.folder.clone()
        };
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Stops with SIGTERM, checks the exit code, and starts again on the same port and data.
    pub(crate) fn restart(&mut self) {
        if self.process.is_some() {
            self.stop();
            self.launch();
        }
    }

    /// Kills without any warning, and starts again on the same port and data.
    pub(crate) fn kill_and_restart(&mut self) {
        let mut process = self
            .process
            .take()
            .expect("only a broker of the test's own can be killed");
        process.kill().unwrap();
        process.wait().unwrap();
        self.launch();
    }

    /// Lets one sync of the running process fail, from outside; why not, if that is not possible.
    pub(crate) fn fail_a_sync(&self) -> Result<(), String> {
        let process = self.process.as_ref().expect("a running broker");
        let mut strace = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fdatasync", "-e", "signal=none"])
            .args(["-e", "inject=fdatasync:error=EIO:when=3"])
            .args(["-p", &process.id().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut said = String::new();
        let mut lines = BufReader::new(strace.stderr.take().unwrap()).lines();
        let injected = lines.by_ref().map_while(Result::ok).any(|line| {
            said.push_str(&line);
            line.contains("(INJECTED)")
        });
        // It lets go of the broker.
        let pid = rustix::process::Pid::from_child(&strace);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        lines.for_each(drop);
        strace.wait().unwrap();
        injected.then_some(()).ok_or(said)
    }

    fn stop(&mut self) {
        let mut process = self.process.take().expect("a running broker");
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        // A descriptor of the process can be read from once it has ended.
        let ended = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let mut awaited = [rustix::event::PollFd::new(&ended, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut awaited, Some(&STOP_LIMIT)).unwrap();
        let Some(status) = process.try_wait().unwrap() else {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("SIGTERM did not stop the broker\n{}", self.log());
        };
        if is_stafett() {
            assert!(
                status.success(),
                "SIGTERM ended the broker with {status}\n{}",
                self.log()
            );
        }
    }

    fn launch(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        // A broker must not outlive its test, however that ends.
        let data = self.folder.join("data");
        let mut command = match self.disk_mib {
            Some(mib) => {
                let mut command = on_own_disk(mib, &data);
                command.arg("setpriv");
                command
            }
            None => Command::new("setpriv"),
        };
        let mut process = command
            .args(["--pdeathsig", "KILL"])
            .arg(&self.program)
            .args([
                "serve",
                "--kafka",
                &self.kafka,
                "--amqp",
                &self.amqp,
                "--http",
                &self.http,
                "--durability",
                self.durability,
            ])
            .arg("--data-dir")
            .arg(&data)
            .args(self.settings.iter().flat_map(|setting| ["--set", setting]))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let lines = lines_of(process.stdout.take().unwrap());
        self.process = Some(process);
        loop {
            let Ok(line) = lines.recv_timeout(START_LIMIT) else {
                panic!("the broker did not say that it is ready\n{}", self.log());
            };
            if let Some(address) = line.strip_prefix("kafka listening on ") {
                address.clone_into(&mut self.kafka);
            }
            if let Some(address) = line.strip_prefix("amqp listening on ") {
                address.clone_into(&mut self.amqp);
            }
            if let Some(address) = line.strip_prefix("http listening on ") {
                address.clone_into(&mut self.http);
            }
            if line == "ready" {
                break;
            }
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("stderr.log")
    }

    /// The last of what the broker wrote to stderr.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        drop(process.kill());
        drop(process.wait());
        if thread::panicking() {
            let folder = self.folder.display();
            println!(
                "the broker's data is kept in {folder}; the end of its log:\n{}",
                self.log()
            );
        } else {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

/// A command whose arguments are run with a disk of its own, in memory, on a folder.
fn on_own_disk(mib: u32, folder: &Path) -> Command {
    let mount = format!("mkdir -p \"$0\" && mount -t tmpfs -o size={mib}m none \"$0\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &mount]).arg(folder);
    command
}

/// The lines of a process as they come. Once the receiver is dropped, the rest is read and thrown away, so that the
/// process never blocks.
pub(crate) fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = sync_channel(1024);
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            drop(sender.send(line));
        }
    });
    receiver
}

pub(crate) fn external() -> Option<String> {
    env::var("STAFETT_TEST_KAFKA_ADDR").ok()
}

/// Whether the broker is Stafett, and not another one that stands in to try the tests.
pub(crate) fn is_stafett() -> bool {
    external().is_none() && binary().file_name().is_some_and(|name| name == "stafett")
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// `target/PROFILE` of this build.
pub(crate) fn build_folder() -> PathBuf {
    let deps = env::current_exe().unwrap();
    deps.ancestors().nth(2).unwrap().to_path_buf()
}

fn scratch() -> PathBuf {
    build_folder().join("client-tests")
}

pub(crate) fn binary() -> PathBuf {
    let path = match env::var_os("STAFETT_BIN") {
        Some(path) => root().join(path),
        None => build_folder().join("stafett"),
    };
    assert!(
        path.exists(),
        "{} is missing: build it first (cargo build --bin stafett)",
        path.display()
    );
    path
}
