//! Measures what TLS costs a server, against plain connections:
//! `cargo run --release -p stafett-net --example tls_cost`.
//!
//! Clients are a process of their own; the processor time is that of this one. A *request* is 1 MiB that is
//! answered shortly, an *answer* 1 MiB in slices of 16 KiB for a short request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prometheus_client::registry::Registry;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use stafett_net::{
    BudgetSettings, ByteBudget, ClientCertificates, ClientName, Connection, FrameLimits, FrameReader,
    Listener, ListenerSettings, NetMetrics, Output, Protocol, Security, Shared, Shutdown, Status, Tls,
    TlsSettings, WRITE_PACE, serve,
};
use tokio_util::task::TaskTracker;

const MIB: usize = 1 << 20;
const SLICE: usize = 16 * 1024;
const ROUNDS: usize = 2;
const TRANSFERS: usize = 1000;
const HANDSHAKES: usize = 500;
const IDLE: usize = 1000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Answers long frames shortly, and short ones with a mebibyte.
struct Transfers(Bytes);

impl Protocol for Transfers {
    async fn connection(&self, mut connection: Connection) {
        let Connection {
            budget, entry, drain, ..
        } = connection;
        let mut reader = FrameReader::new(FrameLimits::default(), budget, Arc::clone(&entry), drain);
        let mut output = Output::default();
        let mut frames = Vec::new();
        while let Ok(Status::Frames) = reader.next_frames(&mut connection.stream, &mut frames).await {
            for frame in frames.drain(..) {
                if frame.payload.len() > 4 {
                    output.push(Bytes::from_static(b"done"));
                } else {
                    for at in (0..MIB).step_by(SLICE) {
                        output.push(self.0.slice(at..at + SLICE));
                    }
                }
            }
            let written = output.write_paced(&mut connection.stream, WRITE_PACE, &entry);
            if written.await.is_err() {
                return;
            }
        }
    }
}

trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

fn connect(address: SocketAddr, ca: Option<&str>) -> Outcome<Box<dyn Wire>> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    let Some(ca) = ca else { return Ok(Box::new(socket)) };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
    Ok(Box::new(StreamOwned::new(session, socket)))
}

/// Exchanges one short request and its long answer, or the reverse.
fn exchange(wire: &mut dyn Wire, request: &[u8], answer: &mut [u8]) -> Outcome<()> {
    wire.write_all(request)?;
    wire.flush()?;
    Ok(wire.read_exact(answer)?)
}

fn framed(bytes: usize) -> Vec<u8> {
    let length = u32::try_from(bytes).unwrap_or(0).to_be_bytes();
    [&length[..], &vec![7; bytes]].concat()
}

/// The clients' process: `tls_cost WORK ADDRESS [CA]`.
fn client(args: &[String]) -> Outcome<()> {
    let [work, address, ca @ ..] = args else {
        return Err("no address".into());
    };
    let (address, ca) = (address.parse()?, ca.first().map(String::as_str));
    let (request, answer) = match work.as_str() {
        "requests" => (framed(MIB), 4),
        "answers" | "idle" => (framed(4), MIB),
        _ => (framed(8), 4),
    };
    let mut answer = vec![0; answer];
    match work.as_str() {
        "requests" | "answers" => {
            let mut wire = connect(address, ca)?;
            for _ in 0..TRANSFERS {
                exchange(&mut *wire, &request, &mut answer)?;
            }
        }
        "handshakes" => {
            for _ in 0..HANDSHAKES {
                exchange(&mut *connect(address, ca)?, &request, &mut answer)?;
            }
        }
        _ => {
            let mut wires = Vec::new();
            for _ in 0..IDLE {
                let mut wire = connect(address, ca)?;
                exchange(&mut *wire, &request, &mut answer)?;
                wires.push(wire);
            }
            std::io::stdout().write_all(b"open\n")?;
            std::io::stdin().read_line(&mut String::new())?;
        }
    }
    Ok(())
}

fn spawn(work: &str, address: SocketAddr, ca: Option<&str>) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([work, &address.to_string()]).args(ca);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Returns the processor time of this process, in ms.
fn cpu_ms() -> Outcome<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<u64>().ok())
            .unwrap_or(0)
    };
    Ok((ticks(11) + ticks(12)) * 10)
}

fn resident_kib() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line
        .and_then(|line| line.split_whitespace().next())
        .unwrap_or("0");
    Ok(number.parse()?)
}

/// Returns the time and the processor time of a client's work, in ms.
fn measure(work: &str, address: SocketAddr, ca: Option<&str>) -> Outcome<(u64, u64)> {
    let (begun, cpu) = (Instant::now(), cpu_ms()?);
    if !spawn(work, address, ca)?.wait()?.success() {
        return Err("the client failed".into());
    }
    Ok((u64::try_from(begun.elapsed().as_millis())?, cpu_ms()? - cpu))
}

fn idle_kib(address: SocketAddr, ca: Option<&str>) -> Outcome<usize> {
    let before = resident_kib()?;
    let mut clients = spawn("idle", address, ca)?;
    let stdout = clients.stdout.take().ok_or("no output")?;
    BufReader::new(stdout).read_line(&mut String::new())?;
    let after = resident_kib()?;
    drop(clients.stdin.take());
    clients.wait()?;
    Ok(after.saturating_sub(before))
}

fn listen(
    name: &'static str,
    security: Security,
    shared: &Shared,
    tasks: &TaskTracker,
) -> Outcome<SocketAddr> {
    let families = NetMetrics::register(&mut Registry::default());
    let addresses = [SocketAddr::from(([127, 0, 0, 1], 0))];
    let listener = Listener::bind(&addresses, ListenerSettings::new(name, usize::MAX), &families)?;
    let listener = listener.secured(security);
    let address = listener.local_addr()?;
    let protocol = Arc::new(Transfers(vec![7; MIB].into()));
    tasks.spawn(serve(listener, protocol, shared.clone()));
    Ok(address)
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.is_empty() {
        return client(&args);
    }
    let folder = tempfile::tempdir()?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let (pem, private) = (folder.path().join("server.pem"), folder.path().join("server.key"));
    std::fs::write(&pem, certificate.pem())?;
    std::fs::write(&private, key.serialize_pem())?;
    let tls = Tls::load(TlsSettings {
        certificate: pem.clone(),
        key: private,
        clients: ClientCertificates::None,
        client_ca: None,
        client_name: ClientName::CommonName,
        version_min: stafett_net::tls::VersionMin::Tls12,
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _guard = runtime.enter();
    let shutdown = Shutdown::new();
    let budget = ByteBudget::new(BudgetSettings { bytes: 256 << 20 });
    let (shared, tasks) = (Shared::new(shutdown.clone(), budget), TaskTracker::new());
    let plain = listen("plain", Security::Plain, &shared, &tasks)?;
    let encrypted = listen("tls", Security::Tls(tls), &shared, &tasks)?;
    let ca = pem.to_str();
    let mut out = std::io::stdout();
    for round in 1..=ROUNDS {
        for work in ["requests", "answers"] {
            let (plain_ms, plain_cpu) = measure(work, plain, None)?;
            let (tls_ms, tls_cpu) = measure(work, encrypted, ca)?;
            let share = |one: u64, other: u64| one as f64 / other.max(1) as f64;
            writeln!(
                out,
                "{round} {work}: {TRANSFERS} MiB plain {plain_ms} ms, CPU {plain_cpu} ms; TLS {tls_ms} ms, CPU {tls_cpu} ms; \
                 rate {:.2}, CPU {:.2}",
                share(plain_ms, tls_ms),
                share(tls_cpu, plain_cpu)
            )?;
        }
        let (_, plain_cpu) = measure("handshakes", plain, None)?;
        let (_, tls_cpu) = measure("handshakes", encrypted, ca)?;
        let each = tls_cpu.saturating_sub(plain_cpu) * 1000 / HANDSHAKES as u64;
        writeln!(out, "{round} handshakes: {each} us of CPU more each")?;
    }
    for (name, address, ca) in [("plain", plain, None), ("TLS", encrypted, ca)] {
        let kib = idle_kib(address, ca)?;
        writeln!(
            out,
            "{IDLE} idle {name} connections: {} bytes each",
            kib * 1024 / IDLE
        )?;
    }
    shutdown.abort();
    Ok(())
}
