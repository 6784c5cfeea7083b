//! Runs without a system: their folders, runs that go on, and points that were half measured.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use stafett_model::Lock;

use super::*;
use crate::results::{Outcome, RunRequest};

const SHORT: &str = "question = \"?\"\nsystems = [\"stafett\"]\n[run]\nrepetitions = 1\nduration = \"1s\"\nwarmup = \"0s\"\n\
                     break_in = \"0s\"\nsettle = \"0s\"\n[roles.p]\ndoes = \"produce\"\n";

/// A run into that folder by a program that is not there: all that needs a system fails.
fn request(out: &Path, text: &str) -> Request {
    Request {
        name: "x".to_owned(),
        source: Source::new("x", text),
        systems: None,
        repetitions: None,
        scale: 1.0,
        out: out.to_owned(),
        addresses: BTreeMap::new(),
        agents: Vec::new(),
        secret: None,
        host: "127.0.0.1".to_owned(),
        clients: None,
        exe: PathBuf::from("/nowhere/stafett-lab"),
        stafett: PathBuf::from("/nowhere/stafett"),
        command: String::new(),
    }
}

/// Remembers all reports.
#[derive(Default)]
struct Heard {
    points: Lock<Vec<String>>,
}

impl Watch for Heard {
    fn begins(&self, _: &Run, _: usize) {}
    fn does(&self, _: &str) {}
    fn point(&self, planned: &Planned, durability: &str, _: usize, _: Duration) {
        let line = format!("{} {durability}", planned.system);
        self.points.lock().push(line);
    }
    fn second(&self, _: &Second) {}
    fn ended(&self, _: &Point) {}
}

async fn ran(request: Request) -> Result<Run, RunError> {
    run(request, Arc::new(Heard::default()), CancellationToken::new()).await
}

#[test]
fn where_the_protocol_is_varied_systems_are_asked_in_those_that_they_speak() {
    let folder = tempfile::tempdir().unwrap();
    let text = "question = \"?\"\nsystems = [\"stafett\", \"kafka\", \"rabbitmq\"]\n[run]\nrepetitions = 1\n\
                [roles.p]\ndoes = \"produce\"\n[grid]\n\"run.protocol\" = [\"kafka\", \"amqp\"]";
    let request = request(folder.path(), text);
    let run = resume::planned(&request, request.source.experiment().unwrap()).unwrap();
    let mut asked: Vec<_> = run
        .order
        .iter()
        .map(|planned| {
            (
                planned.system.as_str(),
                planned.parameters[resume::PROTOCOL].as_str().unwrap(),
            )
        })
        .collect();
    asked.sort_unstable();
    let expected = [
        ("kafka", "kafka"),
        ("rabbitmq", "amqp"),
        ("stafett", "amqp"),
        ("stafett", "kafka"),
    ];
    assert_eq!(asked, expected);
}

/// `stafett serve` stores in `./data`, and `--out .` puts a run beside it.
#[tokio::test]
async fn a_brokers_own_folder_beside_the_run_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("data/journal");
    fs::create_dir_all(&journal).unwrap();
    fs::write(journal.join("1"), "precious").unwrap();
    let run = ran(request(folder.path(), SHORT)).await.unwrap();
    assert_eq!(run.status, Status::Finished);
    assert_eq!(fs::read_to_string(journal.join("1")).unwrap(), "precious");
    assert!(!folder.path().join("lab-systems").exists());
}

#[tokio::test]
async fn a_folder_for_systems_that_holds_something_else_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let strange = folder.path().join("lab-systems/thesis");
    fs::create_dir_all(&strange).unwrap();
    let refusal = ran(request(folder.path(), SHORT)).await.unwrap_err();
    assert!(refusal.to_string().contains("did not put there"), "{refusal}");
    assert!(strange.exists() && !folder.path().join("run.json").exists());
}

type Change = fn(&mut Request);

#[tokio::test]
async fn a_run_goes_on_only_as_what_it_was_begun_as() {
    let folder = tempfile::tempdir().unwrap();
    let text = SHORT.replace("[\"stafett\"]", "[\"stafett\", \"kafka\"]");
    let begun = || {
        let mut begun = request(folder.path(), &text);
        begun.systems = Some(vec!["stafett".to_owned()]);
        begun
    };
    ran(begun()).await.unwrap();
    // What an experiment says anyway may be said.
    let mut same = begun();
    same.repetitions = Some(1);
    assert_eq!(ran(same).await.unwrap().status, Status::Finished);
    let changes: [(Change, &str); 6] = [
        (
            |other| other.systems = None,
            "its systems: stafett; asked for now: kafka, stafett",
        ),
        (
            |other| other.repetitions = Some(2),
            "its repetitions: 1; asked for now: 2",
        ),
        (
            |other| {
                other
                    .addresses
                    .insert("stafett".to_owned(), "127.0.0.1:1".to_owned());
            },
            "its addresses: none; asked for now: stafett=127.0.0.1:1",
        ),
        (
            |other| other.clients = Some(PathBuf::from("/other")),
            "its program with clients: none; asked for now: /other",
        ),
        (|other| other.scale = 0.5, "its scale is 1, and not 0.5"),
        (
            |other| other.source.text.push('\n'),
            "its experiment is another one",
        ),
    ];
    for (change, said) in changes {
        let mut other = begun();
        change(&mut other);
        let refusal = ran(other).await.unwrap_err().to_string();
        assert!(
            refusal.contains("holds another run") && refusal.contains(said),
            "{refusal}"
        );
    }
}

#[tokio::test]
async fn a_run_of_another_machine_or_of_unknown_settings_does_not_go_on() {
    let folder = tempfile::tempdir().unwrap();
    ran(request(folder.path(), SHORT)).await.unwrap();
    let stored = Folder::new(folder.path());
    let first = stored.read_run().unwrap();
    let refused = async |run: Run| {
        stored.write_run(&run).unwrap();
        let refusal = ran(request(folder.path(), SHORT)).await.unwrap_err();
        refusal.to_string()
    };
    let mut elsewhere = first.clone();
    elsewhere.environment.cores += 1;
    assert!(refused(elsewhere).await.contains("its machine: "));
    let mut older = first;
    older.asked = None;
    assert!(refused(older).await.contains("older program"));
}

/// A ceiling whose measurement was interrupted is not stored. The run that is resumed measures it again.
#[tokio::test]
async fn what_was_half_measured_is_not_stored_as_a_ceiling() {
    let folder = tempfile::tempdir().unwrap();
    // The program announces its address as a stub does. The first connection finds the run interrupted and
    // is closed.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let exe = folder.path().join("exe");
    std::os::unix::fs::symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/src/systems/fake"), &exe).unwrap();
    fs::write(
        folder.path().join("script"),
        format!("echo kafka listening on {address}\nexec sleep 600\n"),
    )
    .unwrap();
    let stop = CancellationToken::new();
    let interrupted = stop.clone();
    let accepting = std::thread::spawn(move || {
        let accepted = listener.accept();
        interrupted.cancel();
        drop(accepted);
    });
    let mut request = request(&folder.path().join("run"), SHORT);
    request.exe = exe;
    let run = run(request, Arc::new(Heard::default()), stop).await.unwrap();
    accepting.join().unwrap();
    assert_eq!(run.status, Status::Interrupted);
    assert_eq!(run.ceilings, []);
}

#[tokio::test]
async fn a_disk_that_runs_short_stops_the_run_with_what_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let heard = Arc::new(Heard::default());
    let watch = Arc::clone(&heard) as Arc<dyn Watch>;
    let stopped = run_within(
        request(folder.path(), SHORT),
        watch,
        CancellationToken::new(),
        u64::MAX,
    );
    let stopped = stopped.await.unwrap();
    assert_eq!(stopped.status, Status::Stopped);
    let reason = stopped.reason.unwrap();
    assert!(reason.contains("runs short"), "{reason}");
    let stored = Folder::new(folder.path());
    assert_eq!(stored.read_run().unwrap().status, Status::Stopped);
    assert!(!stored.has_point(1), "it is nobody's result");
    assert_eq!(*heard.points.lock(), ["stafett os"]);
    // With space it goes on where it was.
    let run = ran(request(folder.path(), SHORT)).await.unwrap();
    assert_eq!(run.status, Status::Finished);
    let point = stored.read_point(1).unwrap();
    assert_ne!(point.outcome, Outcome::done());
}

/// A system elsewhere fills its own disk.
#[tokio::test]
async fn a_system_elsewhere_needs_no_space_here_and_is_not_reached_over_loopback() {
    let folder = tempfile::tempdir().unwrap();
    // The listener accepts connections like a remote system. Its settings cannot be changed, so the run does
    // not wait for an answer.
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let text = format!("{SHORT}[system]\nstafett.set = {{ x = 1 }}\n");
    let mut request = request(folder.path(), &text);
    request.addresses.insert("stafett".to_owned(), address.clone());
    let run = run_within(
        request,
        Arc::new(Heard::default()),
        CancellationToken::new(),
        u64::MAX,
    );
    let run = run.await.unwrap();
    assert_eq!(run.status, Status::Finished);
    assert_eq!(run.network, None);
    let [reached] = run.reached.as_slice() else {
        panic!("{:?}", run.reached)
    };
    assert_eq!((&reached.address, &reached.reason), (&address, &None));
    assert!(reached.connect.as_ref().is_some_and(|connect| connect.count > 0));
    let asked: RunRequest = run.asked.unwrap();
    assert_eq!(asked.addresses["stafett"], address);
}
