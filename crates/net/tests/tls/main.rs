//! TLS listeners with real sockets and certificates that are made here.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod certificates;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use stafett_net::{
    BudgetSettings, ByteBudget, ClientCertificates, Connection, Connections, FrameLimits, FrameReader,
    Handed, Listener, ListenerMetrics, ListenerSettings, NetMetrics, Output, Protocol, Security, Shared,
    Shutdown, Status, Stream, Tls, TlsSession, WRITE_PACE, resolve, serve, serve_handed,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use certificates::Authority;

/// Time limit for events that are expected at once.
const SOON: Duration = Duration::from_secs(20);

/// Sends frames back, without their length.
struct Echo;

impl Protocol for Echo {
    async fn connection(&self, mut connection: Connection) {
        let (budget, entry) = (connection.budget, connection.entry);
        let limits = FrameLimits::default();
        let mut reader = FrameReader::new(limits, budget, Arc::clone(&entry), connection.drain);
        let (mut read, mut write) = connection.stream.split();
        let mut output = Output::default();
        let mut frames = Vec::new();
        loop {
            match reader.next_frames(&mut read, &mut frames).await {
                Ok(Status::Frames) => {}
                Ok(_) => {
                    entry.metrics.error("ended_well");
                    return;
                }
                Err(_) => return,
            }
            for frame in frames.drain(..) {
                output.push(frame.payload);
            }
            if output.write_paced(&mut write, WRITE_PACE, &entry).await.is_err() {
                return;
            }
        }
    }
}

struct Server {
    address: SocketAddr,
    tls: Arc<Tls>,
    metrics: Arc<ListenerMetrics>,
    connections: Arc<Connections>,
    shutdown: Shutdown,
    _tasks: TaskTracker,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.abort();
    }
}

async fn server(tls: Arc<Tls>, security: fn(Arc<Tls>) -> Security) -> Server {
    started(tls, security, |listener, shared| {
        serve(listener, Arc::new(Echo), shared)
    })
    .await
}

async fn started<F: Future<Output = ()> + Send + 'static>(
    tls: Arc<Tls>,
    security: fn(Arc<Tls>) -> Security,
    serving: impl FnOnce(Listener, Shared) -> F,
) -> Server {
    let families = NetMetrics::register(&mut Registry::default());
    let addresses = resolve("127.0.0.1:0").await.unwrap();
    let listener = Listener::bind(&addresses, ListenerSettings::new("echo", 100), &families).unwrap();
    let listener = listener.secured(security(Arc::clone(&tls)));
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let budget = ByteBudget::new(BudgetSettings { bytes: 64 << 20 });
    let shared = Shared::new(shutdown.clone(), budget);
    let connections = Arc::clone(&shared.connections);
    let tasks = TaskTracker::new();
    tasks.spawn(serving(listener, shared));
    Server {
        address,
        tls,
        metrics: families.listener("echo"),
        connections,
        shutdown,
        _tasks: tasks,
    }
}

async fn server_of(authority: &Authority) -> Server {
    authority.issue_server("server");
    let tls = Tls::load(authority.settings("server")).unwrap();
    server(tls, Security::Tls).await
}

async fn try_connect(server: &Server, config: Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(server.address).await?;
    let name = "localhost".try_into().unwrap();
    timeout(SOON, TlsConnector::from(config).connect(name, socket)).await?
}

async fn ask<S: AsyncReadExt + AsyncWriteExt + Unpin>(stream: &mut S, payload: &[u8]) -> std::io::Result<()> {
    let length = i32::try_from(payload.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length[..], payload].concat()).await?;
    stream.flush().await?;
    let mut answer = vec![0; payload.len()];
    timeout(SOON, stream.read_exact(&mut answer)).await??;
    assert!(answer == payload, "{} bytes came back changed", payload.len());
    Ok(())
}

async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, waiting).await.unwrap();
}

/// Returns the session of the only connection.
fn session(server: &Server) -> Arc<TlsSession> {
    server.connections.all().first().unwrap().tls().unwrap()
}

#[tokio::test]
async fn frames_of_all_sizes_come_back_in_both_versions() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    for (version, word) in [(&TLS12, "1.2"), (&TLS13, "1.3")] {
        let mut client = try_connect(&server, authority.client(&[version], None))
            .await
            .unwrap();
        for bytes in [1, 100, 16_379, 16_380, 16_384, 16_385, 100_000, 1 << 20, 5 << 20] {
            let payload: Vec<u8> = (0..bytes).map(|at: u32| (at % 251) as u8).collect();
            ask(&mut client, &payload).await.unwrap();
        }
        let session = session(&server);
        assert_eq!((session.version, &session.client), (word, &None));
        assert!(session.cipher.contains("AES"), "{session:?}");
        client.shutdown().await.unwrap();
        until(|| server.connections.is_empty()).await;
    }
    assert_eq!(
        (server.metrics.handshakes(), server.metrics.errors("ended_well")),
        (2, 2)
    );
}

#[tokio::test]
async fn many_small_frames_in_one_record_and_one_frame_in_many_records_are_read() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let mut client = try_connect(&server, authority.client(&[&TLS13], None))
        .await
        .unwrap();
    let frames: Vec<u8> = (0..500_u32).flat_map(|_| [0, 0, 0, 5, 1, 2, 3, 4, 5]).collect();
    client.write_all(&frames).await.unwrap();
    let mut answers = vec![0; 2500];
    timeout(SOON, client.read_exact(&mut answers))
        .await
        .unwrap()
        .unwrap();
    for byte in [0, 0, 0, 3, 7, 8, 9] {
        client.write_all(&[byte]).await.unwrap();
        client.flush().await.unwrap();
    }
    let mut answer = [0; 3];
    timeout(SOON, client.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer, [7, 8, 9]);
}

#[tokio::test]
async fn a_reader_that_comes_late_gets_all_of_a_large_answer() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let client = try_connect(&server, authority.client(&[&TLS13], None))
        .await
        .unwrap();
    let payload: Vec<u8> = (0..30_u32 << 20).map(|at| (at % 253) as u8).collect();
    let (mut read, mut write) = tokio::io::split(client);
    let length = i32::try_from(payload.len()).unwrap().to_be_bytes();
    write.write_all(&length).await.unwrap();
    write.write_all(&payload).await.unwrap();
    write.flush().await.unwrap();
    // The server waits for the socket.
    until(|| server.connections.all().first().unwrap().waits_for().is_some()).await;
    let mut answer = vec![0; payload.len()];
    timeout(SOON, read.read_exact(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer == payload);
}

#[tokio::test]
async fn an_end_without_a_word_is_an_end_as_on_a_plain_connection() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let mut client = try_connect(&server, authority.client(&[&TLS13], None))
        .await
        .unwrap();
    ask(&mut client, b"hello").await.unwrap();
    let (mut socket, _) = client.into_inner();
    socket.shutdown().await.unwrap();
    until(|| server.metrics.errors("ended_well") == 1).await;
}

#[tokio::test(start_paused = true)]
async fn half_a_handshake_is_ended_after_its_time() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(&[22, 3, 1, 1, 0, 1, 0]).await.unwrap();
    assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
    until(|| server.metrics.handshake_failures("slow") == 1).await;
    assert!(server.connections.is_empty());
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off_as_on_a_plain_connection() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let mut client = try_connect(&server, authority.client(&[&TLS13], None))
        .await
        .unwrap();
    let payload = vec![7; 20 << 20];
    let length = i32::try_from(payload.len()).unwrap().to_be_bytes();
    client.write_all(&[&length[..], &payload].concat()).await.unwrap();
    client.flush().await.unwrap();
    // The server writes. Time that is paused passes also while it waits for bytes of the client.
    client.read_exact(&mut [0]).await.unwrap();
    tokio::time::pause();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(server.metrics.errors("write_stalled"), 1);
    assert!(server.connections.is_empty());
}

#[tokio::test]
async fn bytes_that_are_no_handshake_are_refused() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let plain = b"GET / HTTP/1.1\r\n\r\n".to_vec();
    let malformed = vec![22, 3, 1, 0, 4, 9, 0, 0, 0];
    let too_long = vec![22, 3, 1, 0xff, 0xff];
    // A message that says to be of almost 16 MiB, in whole records.
    let record = [&[22, 3, 1, 0x40, 0][..], &[1, 0xff, 0, 0], &[0; 16 * 1024 - 4]].concat();
    let more = [&[22, 3, 1, 0x40, 0][..], &[0; 16 * 1024]].concat();
    let large = [&record[..], &more.repeat(5)].concat();
    for (bytes, reasons) in [
        (plain, ["plain", "plain"]),
        (malformed, ["malformed", "malformed"]),
        (too_long, ["malformed", "malformed"]),
        (large, ["malformed", "too_large"]),
    ] {
        let before = reasons.map(|reason| server.metrics.handshake_failures(reason));
        let mut client = TcpStream::connect(server.address).await.unwrap();
        // The server may end the connection before it has read all of it.
        drop(client.write_all(&bytes).await);
        drop(timeout(SOON, client.read_to_end(&mut Vec::new())).await.unwrap());
        let counted = || reasons.map(|reason| server.metrics.handshake_failures(reason));
        until(|| counted() != before).await;
    }
    assert!(server.connections.is_empty());
    assert_eq!(server.metrics.handshakes(), 0);
}

#[tokio::test]
async fn one_port_takes_both_only_where_that_is_asked_for() {
    let authority = Authority::new();
    authority.issue_server("server");
    let tls = Tls::load(authority.settings("server")).unwrap();
    let both = server(tls, Security::Either).await;
    let mut plain = TcpStream::connect(both.address).await.unwrap();
    ask(&mut plain, b"plain").await.unwrap();
    let entry = both.connections.all().first().cloned().unwrap();
    assert_eq!(entry.tls(), None);
    let mut encrypted = try_connect(&both, authority.client(&[&TLS13], None))
        .await
        .unwrap();
    ask(&mut encrypted, b"encrypted").await.unwrap();
    assert_eq!(both.connections.len(), 2);
}

#[tokio::test]
async fn client_certificates_are_asked_for_as_the_settings_say() {
    let (authority, other) = (Authority::new(), Authority::new());
    authority.issue_server("server");
    authority.issue_client("ann");
    other.issue_client("eve");
    let (ann, eve) = (authority.path("ann"), other.path("eve"));
    for (clients, none_is_good, eve_is_good) in [
        (ClientCertificates::None, true, true),
        (ClientCertificates::Optional, true, false),
        (ClientCertificates::Required, false, false),
    ] {
        let settings = stafett_net::TlsSettings {
            clients,
            ..authority.settings("server")
        };
        let server = server(Tls::load(settings).unwrap(), Security::Tls).await;
        for (path, is_good) in [
            (None, none_is_good),
            (Some(&eve), eve_is_good),
            (Some(&ann), true),
        ] {
            let config = authority.client(&[&TLS13], path.map(|path| &**path));
            // In TLS 1.3 a client hears of the refusal when it reads.
            let asked = async { ask(&mut try_connect(&server, config).await?, b"hello").await };
            assert_eq!(asked.await.is_ok(), is_good, "{clients:?} {path:?}");
        }
        let refused = ["no_certificate", "bad_certificate"].map(|why| server.metrics.handshake_failures(why));
        assert_eq!(refused, [u64::from(!none_is_good), u64::from(!eve_is_good)]);
        until(|| server.connections.is_empty()).await;
        if clients != ClientCertificates::None {
            let mut client = try_connect(&server, authority.client(&[&TLS12], Some(&ann)))
                .await
                .unwrap();
            ask(&mut client, b"hello").await.unwrap();
            let shown = session(&server).client.clone().unwrap();
            assert_eq!((&*shown.subject, shown.user.as_deref()), ("CN=ann", Some("ann")));
            assert_eq!(&*shown.issuer, "CN=authority of a test");
        }
    }
}

#[tokio::test]
async fn a_client_that_speaks_only_an_older_version_is_refused() {
    let authority = Authority::new();
    authority.issue_server("server");
    let settings = stafett_net::TlsSettings {
        version_min: stafett_net::tls::VersionMin::Tls13,
        ..authority.settings("server")
    };
    let server = server(Tls::load(settings).unwrap(), Security::Tls).await;
    try_connect(&server, authority.client(&[&TLS12], None))
        .await
        .unwrap_err();
    until(|| server.metrics.handshake_failures("incompatible") == 1).await;
    try_connect(&server, authority.client(&[&TLS13], None))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_certificate_is_counted() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let stranger = Authority::new().client(&[&TLS13], None);
    try_connect(&server, stranger).await.unwrap_err();
    until(|| server.metrics.handshake_failures("rejected_by_client") == 1).await;
}

#[tokio::test]
async fn a_new_certificate_is_for_new_connections_and_a_bad_one_changes_nothing() {
    let authority = Authority::new();
    let server = server_of(&authority).await;
    let config = || authority.client(&[&TLS13], None);
    let shown = |client: &TlsStream<TcpStream>| client.get_ref().1.peer_certificates().unwrap()[0].clone();
    let mut before = try_connect(&server, config()).await.unwrap();
    ask(&mut before, b"before").await.unwrap();
    let settings = server.tls.settings();
    assert!(!server.tls.has_changed());

    std::fs::write(authority.path("server.pem"), "no certificate").unwrap();
    assert!(server.tls.has_changed());
    let error = server.tls.reload(settings.clone()).unwrap_err().to_string();
    assert!(error.ends_with("server.pem has no certificate"), "{error}");
    assert!(!server.tls.has_changed(), "it is tried once");
    authority.issue_server("other");
    std::fs::copy(authority.path("other.pem"), authority.path("server.pem")).unwrap();
    let error = server.tls.reload(settings.clone()).unwrap_err().to_string();
    assert!(error.ends_with("server.key do not belong together"), "{error}");
    let meanwhile = try_connect(&server, config()).await.unwrap();
    assert_eq!(shown(&meanwhile), shown(&before));

    std::fs::copy(authority.path("other.key"), authority.path("server.key")).unwrap();
    assert!(server.tls.has_changed());
    server.tls.reload(settings).unwrap();
    let mut after = try_connect(&server, config()).await.unwrap();
    assert_ne!(shown(&after), shown(&before));
    ask(&mut after, b"after").await.unwrap();
    ask(&mut before, b"still there").await.unwrap();
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new();
    authority.issue_server("server");
    let good = authority.settings("server");
    std::fs::write(authority.path("empty.pem"), "").unwrap();
    std::fs::write(authority.path("large.pem"), vec![b'x'; (1 << 20) + 1]).unwrap();
    let load = |change: &dyn Fn(&mut stafett_net::TlsSettings)| {
        let mut settings = good.clone();
        change(&mut settings);
        Tls::load(settings).unwrap_err().to_string()
    };
    for (error, expected) in [
        (
            load(&|it| it.certificate = authority.path("none.pem")),
            "none.pem cannot be read",
        ),
        (
            load(&|it| it.certificate = authority.path("empty.pem")),
            "empty.pem has no certificate",
        ),
        (
            load(&|it| it.key = authority.path("empty.pem")),
            "empty.pem has no key",
        ),
        (
            load(&|it| it.key = authority.path("large.pem")),
            "large.pem is larger than a mebibyte",
        ),
        (
            load(&|it| {
                it.clients = ClientCertificates::Required;
                it.client_ca = None;
            }),
            "client certificates need a file of authorities",
        ),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

/// Another program may have taken the place of such a client on the way.
#[tokio::test]
async fn a_handed_connection_that_needs_the_tls_of_its_client_is_served_with_that_alone() {
    let authority = Authority::new();
    authority.issue_server("server");
    let plain: fn(Arc<Tls>) -> Security = |_| Security::Plain;
    for (security, takes_plain) in [(plain, true), (Security::Either, true), (Security::Tls, false)] {
        let tls = Tls::load(authority.settings("server")).unwrap();
        let (door, handed) = mpsc::channel(1);
        let server = started(tls, security, |listener, shared| {
            serve_handed(listener, handed, Arc::new(Echo), shared)
        });
        let server = server.await;
        let accepting = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hand = async |needs_tls| {
            let connecting = TcpStream::connect(accepting.local_addr().unwrap());
            let (client, accepted) = tokio::join!(connecting, accepting.accept());
            let (socket, peer) = accepted.unwrap();
            let stream = Stream::Plain(socket);
            let handed = Handed {
                stream,
                peer,
                needs_tls,
                is_relayed: true,
            };
            door.send(handed).await.unwrap();
            client.unwrap()
        };
        let mut plain = hand(false).await;
        assert_eq!(ask(&mut plain, b"plain").await.is_ok(), takes_plain);
        let mut plain = hand(true).await;
        assert!(ask(&mut plain, b"plain").await.is_err());
        let connector = TlsConnector::from(authority.client(&[&TLS13], None));
        let name = "localhost".try_into().unwrap();
        let shaken = timeout(SOON, connector.connect(name, hand(true).await));
        if let Ok(mut client) = shaken.await.unwrap() {
            ask(&mut client, b"encrypted").await.unwrap();
        } else {
            assert_eq!(server.metrics.errors("handed"), 2, "a plain listener");
        }
    }
}
