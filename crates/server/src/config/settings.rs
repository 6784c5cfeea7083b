//! The table of settings.
//!
//! A row is `name: Kind = "default", in MIN..=MAX, flag "name", reloads true;` with its text above it. The
//! range, the flag and `reloads` are optional. Rows are grouped by their table in the file; the first group
//! has no table.
//!
//! Length: one table of all settings.

use super::cluster::{GroupList, OptionalDatabase, OptionalLogin, OptionalObjects};
use super::definition::Definition;
use super::error::ConfigError;
use super::http::{HostList, OptionalSite, PageActions, SiteList};
use super::kind::{
    Advertised, AutoCount, Bytes, BytesLimit, Count, Folder, Kind, Level, LogFilter, LogFormat,
    MigrationPolicy, OnOverload, OptionalFolder, OptionalListen, Share, Switch, Time, TimeLimit, Words,
};
use super::live::{DuplicateRules, LogRules, OriginList};
use super::table::settings;
use super::tls::{OldestVersion, OnClientCertificates, OptionalFile, UserOfCertificate};
use super::values::Values;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const SECOND: u64 = 1000;
const DAY: u64 = 86_400_000;

settings! {
    Settings {
        /// Folder of everything that is stored. It is created if it is absent.
        data_dir: Folder = "./data", flag "data-dir";

        /// When a write is acknowledged, for topics that say nothing else. `memory`: accepted; `os`: written
        /// to the operating system, survives a killed process; `interval:RECORDS,MILLISECONDS`: like `os`,
        /// and synced at the latest after that many records or milliseconds; `sync`: synced to the disk,
        /// survives a power loss.
        durability: Level = "sync", flag "durability";

        /// How long topics keep their records that say nothing else. -1: for ever.
        retention_ms: TimeLimit = "7d", in 1..=100_000 * DAY;

        /// How many bytes each partition keeps of topics that say nothing else. -1: all.
        retention_bytes: BytesLimit = "-1", in 1..=1024 * TIB;

        /// Bytes of requests that may be in memory at once. More waits in the sockets. A quarter is
        /// for requests of up to 64 KiB, another for those of up to 2 MiB, so that they never wait behind
        /// larger ones. Larger ones take their bytes as they arrive; one at a time may go beyond the rest, so
        /// that all come to their end. While others wait, a request of which less than 64 KiB comes in two
        /// seconds is ended.
        request_memory_bytes: Bytes = "256MiB", in 4 * MIB..=TIB;

        /// Connections to the message listeners. It is lowered to what the limit of open descriptors allows,
        /// which is raised as far as the user may at start.
        connections_max: Count = "20000", in 1..=10_000_000;

        /// Threads that serve connections. `auto`: one per processor core.
        worker_threads: AutoCount = "auto", in 1..=1024;

        /// Allows listeners that can be reached from other machines without authentication. Without it, only
        /// loopback addresses are listened on.
        allow_unauthenticated: Switch = "false";

        /// Requires a login of clients from other machines at all times, which also allows listeners that
        /// they can reach. Without it, clients need no login until a user is an administrator. Users are made
        /// from this machine: `stafett user add`.
        require_login: Switch = "false";
    }
    tls: Tls {
        /// PEM file with the certificate of the node, and those between it and its root. With it, listeners
        /// with TLS are open beside the plain ones. It is read again when it changes. Empty: no TLS, but at
        /// listeners with a certificate of their own.
        certificate: OptionalFile = "", reloads true;

        /// PEM file with its key.
        key: OptionalFile = "", reloads true;

        /// Whether clients show certificates. `none`: they are not asked; `optional`: one that is shown has
        /// to be good; `required`: connections without one are refused.
        clients: OnClientCertificates = "none", reloads true;

        /// PEM file with the authorities whose client certificates are good.
        client_ca: OptionalFile = "", reloads true;

        /// Which name in a client certificate is that of the user: the `common_name` or the
        /// `distinguished_name` of its subject, or the first `dns`, `email` or `uri` among its alternative
        /// names.
        client_user: UserOfCertificate = "common_name", reloads true;

        /// The oldest version of TLS that is spoken.
        version_min: OldestVersion = "1.2", reloads true;
    }
    oauth: Oauth {
        /// JSON file with the public keys (JWKS) of an authorization server, whose tokens are logins then, or
        /// its URL (`https://…`, `http://…`). A file is read again on a reload; a URL is fetched again, and
        /// when a token names an unknown key. Empty: no such tokens are taken.
        keys: OptionalFile = "", reloads true;

        /// PEM file with the authorities that are trusted with the URL. Empty: those of the system.
        keys_ca: OptionalFile = "", reloads true;

        /// Interval in which keys are fetched from the URL.
        keys_interval_ms: Time = "5m", in SECOND..=DAY, reloads true;

        /// Issuer of the tokens, as in their claim `iss`.
        issuer: Words = "", reloads true;

        /// Audience that a token has to be for, as in its claim `aud`.
        audience: Words = "stafett", reloads true;

        /// Claim that is the name of the user.
        user_claim: Words = "sub", reloads true;
    }
    kafka: Kafka {
        /// Where clients of the Kafka protocol connect. Port 0 picks a free one and prints it. Empty: nowhere
        /// without TLS.
        listen: OptionalListen = "127.0.0.1:9092", flag "kafka";

        /// Where clients connect with TLS, if there is a certificate (`tls.certificate`). Empty: nowhere.
        tls_listen: OptionalListen = "127.0.0.1:9093";

        /// PEM file with the certificate of this listener, and those between it and its root, instead of
        /// `tls.certificate`.
        tls_certificate: OptionalFile = "", reloads true;

        /// PEM file with its key.
        tls_key: OptionalFile = "", reloads true;

        /// Whether `kafka.listen` takes TLS as well as plain connections, told apart by their first byte.
        listen_takes_tls: Switch = "false";

        /// The address that clients are told to connect to. Empty: the address that they came by.
        advertised: Advertised = "";

        /// The address that clients with TLS are told to connect to. Empty: the host of `kafka.advertised`
        /// with the port of `kafka.tls_listen`, or the address that they came by.
        tls_advertised: Advertised = "";

        /// In a cluster of several cells: port of the listeners of the cells behind the first one. Cell N
        /// takes clients at this port + N, and those with TLS at this port + 16 + N, on the hosts of
        /// `kafka.listen` and `kafka.tls_listen`. 0: free ports.
        cells_port: Count = "0", in 0..=65_500;

        /// Whether a client that asks about a topic that does not exist can create it by that, if its request
        /// allows it.
        auto_create_topics: Switch = "true";

        /// In a cluster of several cells: whether topics that clients of the Kafka protocol create lie in all
        /// cells, where their creator does not say (`stafett.spread`).
        spread_topics: Switch = "false";

        /// In a cluster of several cells: groups of consumers that are spread over them by name, as names and
        /// as prefixes with `*` at their end, separated by commas. Those of all nodes count at each, and stay
        /// once they were there. Members over HTTP, apps, sinks and share groups take other names.
        spread_groups: GroupList = "";

        /// Partitions of topics whose creator does not say how many.
        default_partitions: Count = "1", in 1..=100_000;

        /// Size of the largest batch of records that is accepted, as it is sent.
        message_bytes_max: Bytes = "1048588", in KIB..=GIB;

        /// Size of the largest request that is read.
        request_bytes_max: Bytes = "100MiB", in 64 * KIB..=GIB;

        /// A connection without a request for this long is closed.
        idle_timeout_ms: Time = "10m", in SECOND..=DAY;

        /// Behaviour when more is asked for than can be done. `backpressure`: requests wait, and their
        /// clients with them. `shed`: produce requests that waited longer than `shed.waiting_ms` are refused
        /// with `REQUEST_TIMED_OUT`, which producers answer by sending again, and consumers are told to hold
        /// back.
        overload: OnOverload = "backpressure";
    }
    amqp: Amqp {
        /// Where clients of the AMQP 0-9-1 protocol (RabbitMQ's) connect. Port 0 picks a free one and prints
        /// it. Empty: nowhere without TLS.
        listen: OptionalListen = "127.0.0.1:5672", flag "amqp";

        /// Where clients connect with TLS, if there is a certificate (`tls.certificate`). Empty: nowhere.
        tls_listen: OptionalListen = "127.0.0.1:5671";

        /// PEM file with the certificate of this listener, and those between it and its root, instead of
        /// `tls.certificate`.
        tls_certificate: OptionalFile = "", reloads true;

        /// PEM file with its key.
        tls_key: OptionalFile = "", reloads true;

        /// Whether `amqp.listen` takes TLS as well as plain connections, told apart by their first byte.
        listen_takes_tls: Switch = "false";

        /// Where RabbitMQ's management HTTP API (`/api`) is served alone, such as `127.0.0.1:15672`, the port
        /// of its tools. The HTTP listener always serves it too. Empty: no listener of its own.
        management: OptionalListen = "";

        /// Where metrics under RabbitMQ's names are served alone, as `/metrics`, such as `127.0.0.1:15692`.
        /// The HTTP listener always serves them as `/metrics/rabbitmq`. Empty: no listener of its own.
        prometheus: OptionalListen = "";

        /// As `amqp.management`, with TLS and the certificate of the HTTP listener, such as
        /// `127.0.0.1:15671`.
        tls_management: OptionalListen = "";

        /// As `amqp.prometheus`, with TLS and the certificate of the HTTP listener, such as
        /// `127.0.0.1:15691`.
        tls_prometheus: OptionalListen = "";

        /// Size of the largest frame, as clients are told. They may agree on less.
        frame_bytes_max: Bytes = "131072", in 4 * KIB..=16 * MIB;

        /// Channels of one connection, as clients are told.
        channels_max: Count = "2047", in 1..=65_535;

        /// How often both sides show that they are there, as clients are told; they decide. 0: never.
        heartbeat_ms: Time = "60s", in 0..=DAY / 2;

        /// Size of the largest message body.
        message_bytes_max: Bytes = "16MiB", in KIB..=GIB / 2;

        /// Whether a connection creates its virtual host if that does not exist.
        create_virtual_hosts: Switch = "false";

        /// Behaviour when more is asked for than can be done. `backpressure`: publishers wait. `shed`:
        /// messages that waited longer than `shed.waiting_ms` are refused with `basic.nack`; where a
        /// publisher has no confirms, its channel is closed with 506 (`RESOURCE_ERROR`).
        overload: OnOverload = "backpressure";
    }
    groups: Groups {
        /// How long the first generation of a group waits for more members. Each that comes prolongs it by as
        /// much, up to the longest time that a member allows for a rebalance. 0: it does not wait.
        initial_delay_ms: Time = "50ms", in 0..=DAY;

        /// The shortest time of silence after which members may ask to be given up.
        session_ms_min: Time = "6s", in 1..=DAY;

        /// The longest.
        session_ms_max: Time = "30m", in SECOND..=24 * DAY;

        /// How long the answer to a sign of life of a member is kept back while its group stays as it is, for
        /// clients that go on meanwhile (Kafka's own, librdkafka): they hear of a rebalance when it begins.
        /// At most a fourth of the member's session; whatever the client asks next ends it. 0: every answer
        /// is given at once.
        heartbeat_hold_ms: Time = "2500ms", in 0..=10 * SECOND;

        /// Members of one group.
        members_max: Count = "10000", in 1..=1_000_000;

        /// How long a member of a group whose partitions the broker assigns may be silent before it is given
        /// up.
        consumer_session_ms: Time = "45s", in SECOND..=DAY;

        /// The longest that such members are told to wait until they report again. They hear of changes when
        /// they report.
        consumer_heartbeat_ms: Time = "5s", in 100..=DAY;

        /// The shortest that they are told to wait, while there are few of them. One that waits for
        /// partitions which others have to give back reports sooner.
        consumer_heartbeat_min_ms: Time = "1s", in 100..=DAY;

        /// Reports of such members a second, all together: the more members there are, the less often each
        /// reports.
        consumer_heartbeats_per_second: Count = "2000", in 1..=1_000_000;

        /// Such members of one group.
        consumer_members_max: Count = "10000", in 1..=1_000_000;

        /// Which groups may move between the classic protocol and that of consumer groups while they have
        /// members: `upgrade` to the newer one, `downgrade` back, both (`bidirectional`), or none
        /// (`disabled`).
        consumer_migration: MigrationPolicy = "bidirectional";

        /// Groups there may be.
        groups_max: Count = "1000000", in 1..=1_000_000_000;

        /// Bytes that the members of all groups may take in memory, with their metadata and assignments.
        memory_bytes_max: Bytes = "256MiB", in MIB..=TIB;

        /// Size of the text that members may write beside a committed offset.
        commit_text_bytes_max: Bytes = "4KiB", in 0..=MIB;

        /// How long the committed offsets of a group are kept once it has no members. -1: for ever.
        commit_retention_ms: TimeLimit = "7d", in 1..=100_000 * DAY;

        /// How often expired offsets are looked for.
        sweep_ms: Time = "10m", in SECOND..=DAY;
    }
    history: History {
        /// Memory for the histories of queues, topics, exchanges and groups: those that changed last have
        /// one, of an hour. A queue's takes 8 KiB. 0: none; the node's own is always kept.
        bytes_max: Bytes = "64MiB", in 0..=TIB, reloads true;
    }
    http: Http {
        /// Where `/health`, `/metrics`, the API (`/v1`) and live topics (`/live`) are served. Port 0 picks a
        /// free one and prints it. Empty: nowhere without TLS.
        listen: OptionalListen = "127.0.0.1:7070", flag "http";

        /// Where clients connect with TLS, if there is a certificate (`tls.certificate`). Empty: nowhere.
        tls_listen: OptionalListen = "127.0.0.1:7443";

        /// PEM file with the certificate of this listener, and those between it and its root, instead of
        /// `tls.certificate`.
        tls_certificate: OptionalFile = "", reloads true;

        /// PEM file with its key.
        tls_key: OptionalFile = "", reloads true;

        /// Whether `http.listen` takes TLS as well as plain connections, told apart by their first byte.
        listen_takes_tls: Switch = "false";

        /// Where `/health`, `/health/any` and `/metrics` of this node alone are served, with TLS. In a
        /// cluster they are relayed to the owner where they come with TLS to another listener.
        tls_own: OptionalListen = "";

        /// Connections to this listener, those to live topics among them.
        connections_max: Count = "10000", in 1..=10_000_000;

        /// Web pages of which other sites may use the API, such as `https://console.example`. Pages that come
        /// from the broker itself may.
        origins: SiteList = "";

        /// Names by which the API may be called, beside addresses and `localhost`, such as `broker.example`.
        /// Programs in containers call by such names.
        hosts: HostList = "";

        /// Names of JSON fields and of headers, separated by commas, whose values are shown as `•••` where
        /// messages of queues are looked at, unless the caller may operate the broker. Receiving shows all.
        mask: Words = "";

        /// Behaviour when more is asked for than can be done. `backpressure`: requests wait. `shed`:
        /// requests that waited longer than `shed.waiting_ms` are refused with 503 `overloaded`, and messages
        /// to live topics with that error, before a body is read. Settling, committing, deleting, purging and
        /// the routes of the node are never refused.
        overload: OnOverload = "backpressure";
    }
    console: Console {
        /// Whether the console is served at `/console/` of the HTTP listeners.
        enabled: Switch = "true";

        /// Actions of pages of the broker itself. `all`: those that rights permit; `none`: they show and do
        /// nothing, and their requests that would do something are refused. Programs are not concerned.
        actions: PageActions = "all";

        /// Address of a Prometheus server, such as `https://prometheus.example`, for a link beside the
        /// charts. An hour of history is the broker's; a longer one is there.
        prometheus_url: OptionalSite = "";

        /// Address of the lab's page (`stafett lab serve`), for a link.
        lab_url: OptionalSite = "";

        /// Folder of files that are served in place of those in the program, while the pages are worked on.
        dir: OptionalFolder = "";
    }
    shed: Shed {
        /// How long a request may wait before it begins, at a listener whose `overload` is `shed`. While most
        /// requests wait longer, for five times as long, those that do are refused. It has to be longer than
        /// storing takes when little is asked for: a few syncs of the disk at `sync`.
        waiting_ms: Time = "100ms", in 1..=60 * SECOND;

        /// Requests of one such listener that may be read and not answered yet; more are refused, however
        /// long they waited. 0: any number.
        requests_max: Count = "0", in 0..=1_000_000_000;
    }
    live: Live {
        /// Size of the largest message that is read, with a command or a list of them.
        message_bytes_max: Bytes = "1MiB", in KIB..=64 * MIB;

        /// Size of the longest name of a topic, or pattern.
        topic_bytes_max: Bytes = "1KiB", in 1..=64 * KIB;

        /// Subscriptions of one client. A list that would take it beyond is refused as a whole.
        subscriptions_max: Count = "4194304", in 1..=1_000_000_000;

        /// Patterns that all clients may subscribe to together.
        patterns_max: Count = "100000", in 0..=100_000_000;

        /// Distinct filters that all clients may listen with together.
        filters_max: Count = "1000", in 0..=1_000_000;

        /// Clients that may have subscriptions or listen.
        clients_max: Count = "10000000", in 1..=1_000_000_000;

        /// Bytes that may wait for one connection that does not read them in time, unless its client wants
        /// otherwise.
        outbox_bytes: Bytes = "1MiB", in KIB..=GIB;

        /// The most that a client may want.
        outbox_bytes_max: Bytes = "64MiB", in KIB..=GIB;

        /// A connection from which nothing comes for this long, not even the answer to a ping, is closed.
        idle_timeout_ms: Time = "1m", in SECOND..=DAY;

        /// Messages to deliver only once. Rules with spaces in between, each `PREFIX=WINDOW`: of messages to
        /// the same topic, whose name begins with the prefix, and with the same payload, those after the
        /// first are dropped until none has come for as long as the window. Behind a comma: `fixed` counts
        /// the window from the first; `field:NAME` compares a field of the payload, and `id` the publisher's
        /// `message_id`, instead of the payload. The longest prefix counts; `%20` is a space. Such as
        /// `songs/=4m news/=30s,fixed,field:title`.
        duplicates: DuplicateRules = "", reloads true;

        /// Messages that the filter of duplicates remembers, about 40 bytes each.
        duplicates_max: Count = "1000000", in 1..=1_000_000_000, reloads true;

        /// Topics to keep. Rules with spaces in between, each `PREFIX=TOPIC` or `PREFIX=TOPIC,PARTITIONS`:
        /// live topics whose names begin with the prefix are kept in that stored topic, which is created if
        /// it is absent, and whose retention is set like that of any other. `%20` is a space. Such as
        /// `charts/=charts,4`.
        logs: LogRules = "", reloads true;

        /// Web pages of which sites may use live topics. `near`: those on this machine, those from files, and
        /// those that come from the address that they connect to. Sites, such as
        /// `https://songs.example,https://b.example`, are added to these; `any` allows all.
        origins: OriginList = "near";
    }
    ingest: Ingest {
        /// File with endpoints: paths of the HTTP listener that take events, such as `/event/log`. They need
        /// no login of the broker's, but the tokens that the file says. Empty: none.
        endpoints: OptionalFile = "";
    }
    sinks: SinkSettings {
        /// Whether the broker starts a process for the sinks that it keeps (`PUT /v1/sinks/NAME`). It needs
        /// the plain listeners of Kafka's protocol and of HTTP.
        run: Switch = "true";

        /// Threads of that process.
        threads: Count = "2", in 1..=256;

        /// Hosts on this machine or in private networks to which webhooks may go, separated by commas; `*` is
        /// all. Others of these networks are refused.
        webhook_allow: Words = "";
    }
    journal: Journal {
        /// Size of a segment file.
        segment_bytes: Bytes = "64MiB", in MIB..=GIB;

        /// Recently written batches that are kept in memory for readers who are close behind.
        tail_cache_bytes: Bytes = "32MiB", in MIB..=TIB;

        /// Bytes of segments in the order of arrival, before their batches are gathered per log.
        arrival_bytes_max: Bytes = "8GiB", in 256 * MIB..=1024 * TIB;

        /// How fast the background may rewrite segments, so that it leaves the disk to writers and readers.
        /// What compaction by key only reads counts a quarter.
        rewrite_bytes_per_second: Bytes = "96MiB", in MIB..=TIB;

        /// Memory for the keys of compacted topics while they are compacted: 30 bytes per key that is new
        /// since the last time. If it does not suffice, compaction takes several passes.
        compaction_memory_bytes: Bytes = "64MiB", in 64 * KIB..=TIB;

        /// How often the background looks for topics to compact.
        compaction_interval_ms: Time = "15s", in 100..=DAY;

        /// Empty segment files that ordinary appends leave alone, so that there is always room to delete and
        /// to free space.
        recycle_segments: Count = "2", in 0..=1024;

        /// Folder of the backups that requests name by a name alone, on the file system of `data_dir`. Empty:
        /// only absolute paths are taken, from this machine.
        backup_dir: OptionalFolder = "";

        /// Below so much free space on the disk, publishers over AMQP wait and what others append is refused;
        /// reading and freeing go on.
        disk_free_bytes_min: Bytes = "512MiB", in 0..=1024 * TIB;
    }
    cluster: Cluster {
        /// PostgreSQL database that the nodes of a cluster share, such as `postgres://USER@HOST/DATABASE`.
        /// The node that owns the cell serves; the others relay clients to it, and wait. Empty: this node is
        /// alone, and stores in its `data_dir`.
        database: OptionalDatabase = "";

        /// Number of cells of a new cluster, which does not change: 0 is one cell, or as many as the cluster
        /// has. With several, virtual hosts are spread over nodes.
        cells: Count = "0", in 0..=16;

        /// PEM file with the authorities that are trusted with the database, if its address has
        /// `sslmode=require`. Empty: those of the system.
        database_ca: OptionalFile = "";

        /// Where other nodes connect, which bring clients that came to them. Only nodes that read the same
        /// database and have the same `cluster.secret` get an answer, over TLS. Port 0 picks a free one.
        /// Empty: nowhere, so that clients have to come to this node.
        listen: OptionalListen = "127.0.0.1:0";

        /// The address that other nodes are told to connect to. Empty: that of `cluster.listen`, with the
        /// address by which this node comes to the database if it listens on all.
        advertised: Advertised = "";

        /// Secret that all nodes share, `env:NAME` or `file:PATH` of a text of at least 16 characters.
        /// Several lines are several secrets: a node proves the first one, and takes all. Required if
        /// `cluster.listen` is reached from other machines. Empty: the table of nodes is proof enough.
        secret: OptionalLogin = "";

        /// Name of this node in lists. A node that comes back under its name keeps its number. Empty: the
        /// address of its first listener.
        name: Words = "";

        /// Time without a sign of life of the owner after which another node takes its place.
        lease_ms: Time = "2500ms", in 500..=10 * 60 * SECOND;

        /// Object store under the database, the same for all nodes:
        /// `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`, or `file:///FOLDER` on a file system that they
        /// share. Empty: everything is in the database.
        objects: OptionalObjects = "";

        /// Login of the object store, `env:NAME` or `file:PATH` of a text `KEY:SECRET`. Empty:
        /// `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` of the environment.
        objects_login: OptionalLogin = "";

        /// With an object store: larger commits and files are objects. 0: all are.
        inline_bytes_max: Bytes = "64KiB", in 0..=MIB;

        /// With an object store: bytes per second that are committed within the database.
        inline_bytes_per_second: Bytes = "4MiB", in 0..=TIB;

        /// Time between two puts of commits, each with the records that gathered meanwhile.
        linger_ms: Time = "50ms", in 0..=10 * SECOND;

        /// Space in `data_dir` for copies of objects, and of own segments that are objects.
        cache_bytes: Bytes = "4GiB", in 0..=1024 * TIB;

        /// Age at which objects are deleted to which nothing refers any more. Above the time to which the
        /// database may be set back.
        garbage_after_ms: Time = "1h", in 0..=365 * DAY;

        /// Connections that this node relays to the owner, of all listeners together. Each takes two open
        /// descriptors and 32 KiB. Connections beyond the limit are closed, and counted.
        relays_max: Count = "10000", in 1..=10_000_000;
    }
    trace: Trace {
        /// Folder of the performance log: a line of JSON for each sampled request, append and sync, with the
        /// time of each part. It is created if it is absent. Empty: there is no such log.
        dir: OptionalFolder = "";

        /// Part of the requests that is written, 0 to 1.
        share: Share = "0.01", reloads true;

        /// Requests that took longer are written whatever the share. 0: they are not.
        slow_ms: Time = "0", in 0..=DAY, reloads true;

        /// Bytes of all its files; the oldest go.
        bytes_max: Bytes = "1GiB", in MIB..=TIB;
    }
    log: Log {
        /// Logging levels: `off`, `error`, `warn`, `info`, `debug` or `trace`, also per part, as in
        /// `info,stafett_net=debug`.
        level: LogFilter = "info", flag "log-level", reloads true;

        /// How log lines look.
        format: LogFormat = "text", flag "log-format";
    }
}
