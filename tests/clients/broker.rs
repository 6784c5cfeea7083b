//! One broker under test: a process with its own ports and data folder, ended and removed on drop.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;
use std::{env, process};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::tls::Tls;

/// Guard against a hanging test, not an expectation.
const START_LIMIT: Duration = Duration::from_mins(2);
/// SIGTERM drains and stops within 10 s; the rest is for a machine that is busy with other tests.
const STOP_LIMIT: rustix::event::Timespec = rustix::event::Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// Settings of a broker with TLS; its certificates are added.
const WITH_TLS: &[&str] = &["tls.version_min=1.2"];

/// Number that makes the folders of one test process distinct.
static COUNT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct Broker {
    process: Option<Child>,
    program: PathBuf,
    folder: PathBuf,
    durability: &'static str,
    /// `KEY=VALUE`, as for `--set`.
    settings: &'static [&'static str],
    disk: Option<SmallDisk>,
    kafka: String,
    amqp: String,
    http: String,
    /// No other program gets the ports while the broker is down.
    _ports: Vec<Port>,
    tls: Option<Tls>,
}

/// A port that is bound, and not listened on: a socket that allows it (`SO_REUSEADDR`) can be bound to it and
/// listen, and the system gives it to no other.
pub(crate) struct Port(OwnedFd);

impl Port {
    pub(crate) fn new() -> Self {
        let socket = net::socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        sockopt::set_socket_reuseaddr(&socket, true).unwrap();
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        Self(socket)
    }

    /// `HOST:PORT`.
    pub(crate) fn address(&self) -> String {
        let address = net::getsockname(&self.0).unwrap();
        SocketAddr::try_from(address).unwrap().to_string()
    }
}

impl Broker {
    /// Starts a broker whose new topics have the durability `sync`, the default.
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
                disk: None,
                kafka: address,
                amqp: String::new(),
                http: String::new(),
                _ports: Vec::new(),
                tls: None,
            };
        }
        Self::start_program(binary(), durability, settings)
    }

    /// Starts a broker on a small disk in memory of its own. `None` if such a disk cannot be made.
    pub(crate) fn start_on_small_disk(disk_mib: u32, settings: &'static [&'static str]) -> Option<Self> {
        let folder = new_folder();
        let disk = SmallDisk::mount(disk_mib, &folder.join("data"));
        if disk.is_none() {
            drop(fs::remove_dir_all(&folder));
        }
        Some(Self::start_in(folder, binary(), "sync", settings, Some(disk?)))
    }

    /// Starts Apache Kafka behind our command line.
    pub(crate) fn start_kafka(launcher: PathBuf) -> Self {
        Self::start_program(launcher, "os", &[])
    }

    fn start_program(program: PathBuf, durability: &'static str, settings: &'static [&'static str]) -> Self {
        Self::start_in(new_folder(), program, durability, settings, None)
    }

    fn start_in(
        folder: PathBuf,
        program: PathBuf,
        durability: &'static str,
        settings: &'static [&'static str],
        disk: Option<SmallDisk>,
    ) -> Self {
        let ports = [Port::new(), Port::new(), Port::new()];
        let [kafka, amqp, http] = ports.each_ref().map(Port::address);
        let mut broker = Self {
            process: None,
            program,
            folder,
            durability,
            settings,
            disk,
            kafka,
            amqp,
            http,
            _ports: ports.into(),
            tls: None,
        };
        if settings == WITH_TLS {
            broker.tls = Some(Tls::make(&broker.folder));
        }
        broker.launch();
        broker
    }

    /// Starts a broker that asks for client certificates where there is TLS.
    pub(crate) fn start_with_tls() -> Self {
        Self::start_program(binary(), "os", WITH_TLS)
    }

    /// The certificates of a broker that was started with TLS, and its addresses.
    pub(crate) fn tls(&self) -> &Tls {
        self.tls.as_ref().unwrap()
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

    /// The disk of its own, if it was started on one.
    pub(crate) fn disk(&self) -> Option<&SmallDisk> {
        self.disk.as_ref()
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
        self.kill();
        self.launch();
    }

    /// Kills without any warning.
    pub(crate) fn kill(&mut self) {
        let mut process = self
            .process
            .take()
            .expect("only a broker of the test's own can be killed");
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Stops with SIGTERM and returns the output of a check of its data.
    pub(crate) fn stop_and_check(&mut self) -> Output {
        self.stop();
        let mut command = match &self.disk {
            Some(disk) => disk.command("env"),
            None => Command::new("env"),
        };
        let check = command
            .arg(&self.program)
            .args(["journal", "check"])
            .arg(self.folder.join("data"));
        check.output().unwrap()
    }

    /// Lets the third sync from now of a thread of the running process fail, from outside. Fails with the
    /// reason if that is not possible.
    pub(crate) fn fail_a_sync(&self) -> Result<(), String> {
        let process = self.process.as_ref().expect("a running broker");
        let mut strace = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fdatasync", "-e", "signal=none"])
            .args(["-e", "inject=fdatasync:error=EIO:when=3"])
            .args(["-p", &process.id().to_string()])
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let lines = lines_of(strace.stderr.take().unwrap());
        let mut said = String::new();
        let injected = loop {
            let Ok(line) = lines.recv_timeout(START_LIMIT) else {
                break false;
            };
            said.push_str(&line);
            if line.contains("(INJECTED)") {
                break true;
            }
        };
        // strace detaches from the broker.
        let pid = rustix::process::Pid::from_child(&strace);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        lines.iter().for_each(drop);
        strace.wait().unwrap();
        injected.then_some(()).ok_or(said)
    }

    /// Lets all syncs of the running process fail, from outside, as long as the value lives.
    pub(crate) fn fail_syncs(&self) -> Option<FailingSyncs> {
        let process = self.process.as_ref().expect("a running broker");
        let strace = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", "signal=none"])
            .args(["-e", "inject=fdatasync,fsync:error=EIO", "-o", "/dev/null"])
            .args(["-p", &process.id().to_string()])
            .stderr(Stdio::null())
            .spawn();
        strace.ok().map(FailingSyncs)
    }

    /// Returns the number of log lines that contain `text`.
    pub(crate) fn logged(&self, text: &str) -> usize {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        log.lines().filter(|line| line.contains(text)).count()
    }

    fn stop(&mut self) {
        let mut process = self.process.take().expect("a running broker");
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        // A process descriptor becomes readable when the process has ended.
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

    /// Starts on the same port and data, after an end.
    pub(crate) fn launch(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        // A broker must not outlive its test, even if that is killed.
        let data = self.folder.join("data");
        let mut command = match &self.disk {
            Some(disk) => disk.command("setpriv"),
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
            .args(
                self.tls
                    .iter()
                    .flat_map(Tls::settings)
                    .flat_map(|setting| ["--set".to_owned(), setting]),
            )
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
            if let Some(tls) = &mut self.tls {
                tls.hear(&line);
            }
            if line == "ready" {
                break;
            }
        }
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("stderr.log")
    }

    /// Returns the last lines that the broker wrote to stderr.
    fn log(&self) -> String {
        let text = fs::read_to_string(self.log_path()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
        if self.folder.as_os_str().is_empty() {
            // It is not ours.
            return;
        }
        if thread::panicking() {
            if let Some(disk) = &self.disk {
                let mut keep = Command::new("cp");
                keep.arg("-r").arg(&disk.path).arg(self.folder.join("disk"));
                drop(keep.status());
            }
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

/// Guard that lets syncs fail until it is dropped.
pub(crate) struct FailingSyncs(Child);

impl FailingSyncs {
    /// True if strace could attach and is still running.
    pub(crate) fn works(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for FailingSyncs {
    fn drop(&mut self) {
        // strace detaches from the broker when it is terminated.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        drop(self.0.wait());
    }
}

/// A disk in memory, in namespaces kept by a process of its own. It outlives the broker on it in every case.
pub(crate) struct SmallDisk {
    keeper: Child,
    /// Path of the mount in the namespace of the test.
    path: PathBuf,
}

impl SmallDisk {
    /// Mounts it on a folder. `None` if that is not allowed.
    fn mount(mib: u32, folder: &Path) -> Option<Self> {
        let mount = format!(
            "mkdir -p \"$0\" && mount -t tmpfs -o size={mib}m none \"$0\" && echo mounted && exec cat"
        );
        // It ends with its standard input, so it does not outlive the test.
        let mut keeper = Command::new("unshare")
            .args(["-rm", "sh", "-c", &mount])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut said = String::new();
        BufReader::new(keeper.stdout.take()?)
            .read_line(&mut said)
            .unwrap();
        let root = PathBuf::from(format!("/proc/{}/root", keeper.id()));
        let disk = Self {
            path: root.join(folder.strip_prefix("/").unwrap()),
            keeper,
        };
        let can_enter = || disk.command("true").status().is_ok_and(|status| status.success());
        (said == "mounted\n" && can_enter()).then_some(disk)
    }

    /// Returns a command in the namespaces of the disk.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--preserve-credentials", "--user", "--mount", "--target"])
            .arg(self.keeper.id().to_string())
            .arg(program);
        command
    }

    /// Uses up all free space, until [`Self::free`].
    pub(crate) fn fill(&self) {
        let file = File::create(self.filler()).unwrap();
        let mut taken = 0;
        for bytes in [64 << 20, 1 << 20, 4 << 10] {
            while fallocate(&file, FallocateFlags::empty(), taken, bytes).is_ok() {
                taken += bytes;
            }
        }
    }

    pub(crate) fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.keeper.kill());
        drop(self.keeper.wait());
    }
}

/// The answer to `GET PATH`.
pub(crate) fn get(http: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(http).expect("clients are not refused");
    stream.set_read_timeout(Some(START_LIMIT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {http}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // A process that ends during the answer may cut it off.
    drop(stream.read_to_string(&mut answer));
    answer
}

/// Returns the lines of a process as they come. Once the receiver is dropped, the rest is read and discarded,
/// so that the process never blocks.
pub(crate) fn lines_of(stdout: impl Read + Send + 'static) -> Receiver<String> {
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

/// True if the broker is Stafett, false if another one stands in to try the tests.
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

pub(crate) fn new_folder() -> PathBuf {
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = scratch().join(format!("broker-{}-{number}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
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
