//! The routes, without a listener and without a system.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::*;
use crate::agents::{Agent, AgentAddress, Crew};

mod logins;

const TEXT: &str = "question = \"?\"\nsystems = [\"stafett\"]\n[run]\nrepetitions = 2\nduration = \"3s\"\nwarmup = \"1s\"\n\
                    [roles.p]\ndoes = \"produce\"\n[grid]\n\"roles.p.clients\" = [1, 2, 4]\n\
                    [[figures]]\ntitle = \"t\"\nkind = \"bars\"\nx = \"system\"\ny = [\"produce_rate\"]\n";

struct Served {
    folder: TempDir,
    routes: Router,
    lab: Lab,
}

impl Served {
    fn new() -> Self {
        Self::with_login(None)
    }

    fn with_login(login: Option<Logins>) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["runs", "own"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let queue = queue::Queue::open(&at("runs")).unwrap();
        let agents = agents::List::open(&at("runs")).unwrap();
        let settings = Settings {
            listen: String::new(),
            runs: at("runs"),
            experiments: at("own"),
            exe: at("nowhere"),
            secret_file: None,
            login,
            source: at("source"),
        };
        let lab = Lab {
            settings: Arc::new(settings),
            queue: Arc::new(queue),
            runs: Arc::default(),
            agents: Arc::new(agents),
            jobs: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self {
            routes: routes(lab.clone()),
            folder,
            lab,
        }
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(format!("/lab/v1{path}"))
            .header("host", "127.0.0.1:7072")
            .extension(ByteBudget::new(BudgetSettings {
                bytes: BODIES_BYTES_MAX,
            }))
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = self.routes.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = to_bytes(response.into_body(), 1 << 24).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn got(&self, path: &str) -> Value {
        let (status, answer) = self.ask(Method::GET, path, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    async fn refused(&self, method: Method, path: &str, body: &str, code: &str) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert_eq!(answer["code"], code, "{path}: {status} {answer}");
        answer
    }
}

#[tokio::test]
async fn own_experiments_are_kept_as_text_and_those_of_the_program_stay() {
    let served = Served::new();
    let (status, _) = served.ask(Method::PUT, "/experiments/mine", "question = 1").await;
    assert_eq!(status, StatusCode::CREATED);
    let shown = served.got("/experiments/mine").await;
    assert_eq!(
        (&shown["toml"], &shown["origin"]),
        (&json!("question = 1"), &json!("own"))
    );
    assert!(
        shown["error"].as_str().unwrap().contains("expected a string"),
        "{shown}"
    );
    let (status, _) = served.ask(Method::PUT, "/experiments/mine", TEXT).await;
    assert_eq!(status, StatusCode::OK);
    served.ask(Method::PUT, "/experiments/copy?clone=mine", "").await;
    assert_eq!(served.got("/experiments/copy").await["toml"], TEXT);
    let list = served.got("/experiments?q=mine").await;
    assert_eq!(list["items"][0]["question"], "?");
    served
        .refused(Method::PUT, "/experiments/peak", TEXT, "is_default")
        .await;
    served
        .refused(Method::DELETE, "/experiments/peak", "", "is_default")
        .await;
    served
        .refused(Method::PUT, "/experiments/.hidden", TEXT, "bad_request")
        .await;
    served
        .refused(Method::PUT, "/experiments/..%2Fx", TEXT, "bad_request")
        .await;
    served
        .refused(Method::GET, "/experiments/none", "", "no_such_experiment")
        .await;
    served.refused(Method::GET, "/nothing", "", "no_such_path").await;
    let (status, _) = served.ask(Method::DELETE, "/experiments/mine", "").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    served
        .refused(Method::GET, "/experiments/mine", "", "no_such_experiment")
        .await;
}

#[tokio::test]
async fn a_check_tells_points_and_time_or_the_line_of_a_mistake() {
    let served = Served::new();
    let asked = |text: &str| json!({"toml": text, "repetitions": 5}).to_string();
    let (_, plan) = served.ask(Method::POST, "/check", &asked(TEXT)).await;
    assert_eq!(
        (&plan["points"], &plan["seconds"]),
        (&json!(15), &json!(60.0)),
        "{plan}"
    );
    assert_eq!(
        plan["grid"][0],
        json!({"path": "roles.p.clients", "values": [1, 2, 4]})
    );
    let over_amqp = TEXT.replace("[run]", "[topics.t]\nkind = \"live\"\n[run]");
    let (_, plan) = served.ask(Method::POST, "/check", &asked(&over_amqp)).await;
    let skipped = &plan["skipped"][0];
    assert_eq!(
        (&skipped["system"], &skipped["points"]),
        (&json!("stafett"), &json!(15)),
        "{plan}"
    );
    assert!(
        skipped["why"].as_str().unwrap().contains("no such program"),
        "{plan}"
    );
    let wrong = TEXT.replace("duration = \"3s\"", "duration = \"soon\"");
    let (_, plan) = served.ask(Method::POST, "/check", &asked(&wrong)).await;
    assert_eq!(
        (&plan["points"], &plan["errors"][0]["line"]),
        (&json!(0), &json!(5)),
        "{plan}"
    );
}

#[tokio::test]
async fn runs_wait_in_the_order_that_was_asked_for_also_for_another_process() {
    let served = Served::new();
    served.ask(Method::PUT, "/experiments/mine", TEXT).await;
    let mut ids = Vec::new();
    for label in ["a", "b", "c"] {
        let asked = json!({"experiment": "mine", "scale": 0.5, "labels": [label]}).to_string();
        let (status, waiting) = served.ask(Method::POST, "/runs", &asked).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{waiting}");
        ids.push(waiting["id"].as_str().unwrap().to_owned());
    }
    let shown = served.got(&format!("/runs/{}", ids[1])).await;
    assert_eq!(
        (&shown["state"], &shown["notes"]["labels"]),
        (&json!("queued"), &json!(["b"]))
    );
    let order = json!({"ids": [ids[2], ids[0]]}).to_string();
    served.ask(Method::PUT, "/queue", &order).await;
    let twice = json!({"ids": [ids[2], ids[2]]}).to_string();
    served.refused(Method::PUT, "/queue", &twice, "no_such_run").await;
    let reopened = queue::Queue::open(&served.folder.path().join("runs")).unwrap();
    let waiting: Vec<String> = reopened.waiting().into_iter().map(|it| it.id).collect();
    assert_eq!(waiting, [ids[2].clone(), ids[0].clone()]);
    let (status, _) = served
        .ask(Method::POST, &format!("/runs/{}/stop", ids[2]), "")
        .await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let path = format!("/runs/{}/stop", ids[2]);
    served.refused(Method::POST, &path, "", "in_use").await;
    let (status, _) = served.ask(Method::DELETE, &format!("/runs/{}", ids[2]), "").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(served.lab.queue.waiting().len(), 1);
    let unknown = json!({"experiment": "mine", "systems": ["oracle"]}).to_string();
    served
        .refused(Method::POST, "/runs", &unknown, "bad_request")
        .await;
    served
        .refused(
            Method::POST,
            "/runs",
            r#"{"experiment": "none"}"#,
            "no_such_experiment",
        )
        .await;
}

#[tokio::test]
async fn a_program_that_cannot_be_started_refuses_the_run_and_the_next_one_begins() {
    let served = Served::new();
    served.ask(Method::PUT, "/experiments/mine", TEXT).await;
    for _ in 0..2 {
        served
            .ask(Method::POST, "/runs", r#"{"experiment": "mine"}"#)
            .await;
    }
    let ended = async {
        while !served.lab.queue.is_idle() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = queue::run(served.lab.clone()) => {}
        () = ended => {}
    }
    let list = served.got("/runs").await;
    for run in list["items"].as_array().unwrap() {
        assert_eq!(run["state"], "refused", "{run}");
        let reason = run["reason"].as_str().unwrap();
        assert!(reason.starts_with("the program cannot be started"), "{reason}");
    }
    assert_eq!(list["matched"], 2);
}

#[tokio::test]
async fn pages_of_other_sites_and_other_addresses_are_refused() {
    let served = Served::new();
    let request = Request::builder()
        .method(Method::POST)
        .uri("/lab/v1/runs")
        .header("host", "127.0.0.1:7072")
        .header("origin", "https://example.com")
        .body(Body::empty())
        .unwrap();
    let response = served.routes.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    let settings = Settings {
        listen: "0.0.0.0:0".to_owned(),
        ..(*served.lab.settings).clone()
    };
    let refused = serve(settings, |_| {}, CancellationToken::new()).await;
    assert!(matches!(refused, Err(PageError::NotLoopback(_))));
}

#[tokio::test]
async fn a_model_is_computed_and_one_without_bounds_is_refused() {
    let served = Served::new();
    let asked = json!({"station": {"service_rate": 500.0, "servers": 1}, "rates": [125.0, 600.0],
        "centres": [{"name": "cpu", "demand_s": 2.0}], "think_s": 4.0, "clients": 2});
    let (_, answer) = served.ask(Method::POST, "/models", &asked.to_string()).await;
    assert_eq!(answer["open"][0]["utilisation"], 0.25);
    assert_eq!(answer["open"][1], Value::Null, "the queue grows");
    assert_eq!(answer["closed"].as_array().unwrap().len(), 2);
    for wrong in [
        json!({"clients": 1_000_000}),
        json!({"station": {"service_rate": 0.0, "servers": 1}}),
        json!({"station": {"service_rate": 1.0, "servers": 5000}}),
        json!({"clients": 2}),
    ] {
        served
            .refused(Method::POST, "/models", &wrong.to_string(), "bad_request")
            .await;
    }
}

#[tokio::test]
async fn a_change_of_a_text_keeps_its_comments_and_a_wrong_one_is_refused() {
    let served = Served::new();
    let text = format!("# why\n{TEXT}");
    let asked = json!({"toml": text, "changes": [{"path": "run.duration", "value": "5s"},
        {"path": "grid.\"roles.p.size\"", "value": [100, 200]}]});
    let (status, edited) = served.ask(Method::POST, "/edit", &asked.to_string()).await;
    assert_eq!(status, 200, "{edited}");
    let toml = edited["toml"].as_str().unwrap();
    assert!(
        toml.starts_with("# why\n") && toml.contains("duration = \"5s\""),
        "{toml}"
    );
    assert_eq!(edited["tree"]["grid"]["roles.p.size"], json!([100, 200]));
    let wrong = json!({"toml": text, "changes": [{"path": "question.x", "value": 1}]});
    served
        .refused(Method::POST, "/edit", &wrong.to_string(), "bad_request")
        .await;
    served
        .refused(Method::POST, "/edit", r#"{"toml": "= 1"}"#, "bad_settings")
        .await;
}

#[tokio::test]
async fn a_fraction_is_checked_with_the_effects_that_fall_together() {
    let served = Served::new();
    let grid = "\"roles.p.clients\" = [1, 2]\n\"roles.p.size\" = [100, 200]\n\"roles.p.window\" = [1, 10]\n";
    let text = TEXT.replace("\"roles.p.clients\" = [1, 2, 4]\n", grid).replace(
        "[run]\n",
        "[run]\ndesign = \"factorial\"\nfraction = \"w = cs\"\n",
    );
    let (_, plan) = served
        .ask(Method::POST, "/check", &json!({"toml": text}).to_string())
        .await;
    assert_eq!(
        (&plan["points"], &plan["resolution"]),
        (&json!(8), &json!(3)),
        "{plan}"
    );
    let aliases = plan["aliases"].as_array().unwrap();
    assert!(
        aliases.contains(&json!({"effect": "w", "with": ["cs"]})),
        "{plan}"
    );
    let wrong = text.replace("w = cs", "w = cx");
    let (_, plan) = served
        .ask(Method::POST, "/check", &json!({"toml": wrong}).to_string())
        .await;
    assert_eq!(plan["errors"][0]["line"], 5, "{plan}");
    assert!(
        plan["errors"][0]["message"]
            .as_str()
            .unwrap()
            .contains("x is no factor"),
        "{plan}"
    );
}

#[tokio::test]
async fn agents_are_listed_with_the_reason_why_one_is_not_there() {
    let served = Served::new();
    // A port that was free a moment ago, and is not listened on.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let far = json!({"name": "far", "address": address}).to_string();
    let (status, _) = served.ask(Method::POST, "/agents", &far).await;
    assert_eq!(status, StatusCode::CREATED);
    let list = served.got("/agents").await;
    assert_eq!(
        (&list["items"][0]["state"], &list["has_secret"]),
        (&json!("absent"), &json!(false)),
        "{list}"
    );
    assert!(
        list["items"][0]["reason"].as_str().unwrap().contains("far"),
        "{list}"
    );
    let wrong = r#"{"name": "a b", "address": "h:1"}"#;
    served
        .refused(Method::POST, "/agents", wrong, "bad_request")
        .await;
    served
        .refused(Method::DELETE, "/agents/near", "", "no_such_agent")
        .await;
    let reopened = agents::List::open(&served.folder.path().join("runs")).unwrap();
    assert_eq!(format!("{reopened:?}"), format!("{:?}", served.lab.agents));
    let (status, _) = served.ask(Method::DELETE, "/agents/far", "").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn an_agent_that_another_look_has_not_left_yet_is_asked_again() {
    let served = Served::new();
    let (told, mut refusals) = tokio::sync::mpsc::channel(1);
    let say = move |text: &str| {
        if text.ends_with("was refused") {
            told.try_send(()).ok();
        }
    };
    let drivers = crate::systems::lean_drivers();
    let agent = Agent::bind("127.0.0.1:0", None, drivers, say).await.unwrap();
    let address = agent.address().unwrap().to_string();
    let stop = CancellationToken::new();
    let look = async {
        let near = AgentAddress::parse_all(&[format!("near={address}")]).unwrap();
        let other = Crew::gather(near, None, Duration::ZERO).await.unwrap();
        let near = json!({"name": "near", "address": address}).to_string();
        served.ask(Method::POST, "/agents", &near).await;
        let leave = async {
            refusals.recv().await.unwrap();
            drop(other);
        };
        let (list, ()) = tokio::join!(served.got("/agents"), leave);
        stop.cancel();
        list
    };
    let (list, ()) = tokio::join!(look, agent.serve(stop.clone()));
    assert_eq!(list["items"][0]["state"], "ready", "{list}");
}

#[tokio::test]
async fn a_list_of_runs_follows_their_files_and_runs_are_compared() {
    let served = Served::new();
    served
        .refused(Method::GET, "/compare?runs=a", "", "bad_request")
        .await;
    served
        .refused(Method::GET, "/compare?runs=a,b", "", "no_such_run")
        .await;
    let source = crate::experiment::Source::new("x", TEXT);
    let run = |status| crate::results::Run {
        format: crate::results::FORMAT,
        name: "mine".to_owned(),
        experiment: source.experiment().unwrap(),
        source: source.text.clone(),
        command: "stafett lab run mine".to_owned(),
        scale: 1.0,
        asked: None,
        seed: 1,
        environment: crate::results::Environment::default(),
        network: None,
        reached: Vec::new(),
        ceilings: Vec::new(),
        started_ms: 1,
        ended_ms: None,
        status,
        reason: None,
        order: Vec::new(),
    };
    for id in ["a", "b"] {
        let folder = crate::results::Folder::new(served.folder.path().join("runs").join(id));
        for (status, state) in [
            (crate::results::Status::Stopped, "stopped"),
            (crate::results::Status::Finished, "finished"),
        ] {
            folder.write_run(&run(status)).unwrap();
            let list = served.got(&format!("/runs?q={id}")).await;
            assert_eq!(list["items"][0]["state"], state, "{list}");
        }
    }
    let compared = served.got("/compare?runs=a,b").await;
    assert_eq!(
        (&compared["metric"]["name"], &compared["lines"]),
        (&json!("produce_rate"), &json!([]))
    );
    served
        .refused(Method::GET, "/compare?runs=a,b&metric=none", "", "bad_request")
        .await;
}
