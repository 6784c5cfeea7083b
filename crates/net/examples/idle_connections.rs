//! Measures the memory of an idle connection:
//! `cargo run --release -p stafett-net --example idle_connections [COUNT]`.
//!
//! Each connection first sends and gets back one frame, so that the measured connections have been in use.
//! The peers are in the same process, as bare sockets that take no memory of it.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use prometheus_client::registry::Registry;
use stafett_net::{
    BudgetSettings, ByteBudget, Connection, FrameLimits, FrameReader, Listener, ListenerSettings, NetMetrics,
    Output, Protocol, Shared, Shutdown, Status, WRITE_PACE, serve,
};
use tokio_util::task::TaskTracker;

struct Echo;

impl Protocol for Echo {
    async fn connection(&self, mut connection: Connection) {
        let Connection {
            budget, entry, drain, ..
        } = connection;
        let mut reader = FrameReader::new(FrameLimits::default(), budget, Arc::clone(&entry), drain);
        loop {
            let mut frames = Vec::new();
            let Ok(Status::Frames) = reader.next_frames(&mut connection.stream, &mut frames).await else {
                return;
            };
            let mut output = Output::default();
            for frame in &frames {
                output.push(frame.payload.clone());
            }
            if output
                .write_paced(&mut connection.stream, WRITE_PACE, &entry)
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap_or("0 kB");
    line.trim()
        .trim_end_matches("kB")
        .trim()
        .parse::<usize>()
        .unwrap_or(0)
        * 1024
}

fn connect(address: SocketAddr, payload: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    let length = i32::try_from(payload.len()).unwrap_or(0);
    stream.write_all(&length.to_be_bytes())?;
    stream.write_all(payload)?;
    stream.read_exact(&mut vec![0; payload.len()])?;
    Ok(stream)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(5000), |count| count.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let guard = runtime.enter();
    let families = NetMetrics::register(&mut Registry::default());
    let addresses = [SocketAddr::from(([127, 0, 0, 1], 0))];
    let listener = Listener::bind(&addresses, ListenerSettings::new("echo", usize::MAX), &families)?;
    let address = listener.local_addr()?;
    let shutdown = Shutdown::new();
    let shared = Shared::new(
        shutdown.clone(),
        ByteBudget::new(BudgetSettings { bytes: 64 << 20 }),
    );
    let tasks = TaskTracker::new();
    let served = tasks.spawn(serve(listener, Arc::new(Echo), shared));

    let payload = vec![7; 1000];
    drop(
        (0..100)
            .map(|_| connect(address, &payload))
            .collect::<Result<Vec<_>, _>>()?,
    );
    let before = resident_bytes();
    let streams = (0..count)
        .map(|_| connect(address, &payload))
        .collect::<Result<Vec<_>, _>>()?;
    let after = resident_bytes();
    let each = after.saturating_sub(before) / count.max(1);
    let line = format!(
        "{count} idle connections: {} KiB in all, {each} bytes each\n",
        (after - before) / 1024
    );
    std::io::stdout().write_all(line.as_bytes())?;

    drop(streams);
    shutdown.abort();
    runtime.block_on(served)?;
    drop(guard);
    Ok(())
}
