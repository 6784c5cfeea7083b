//! Requests that wait, and lose their rights.

use axum::http::StatusCode;
use stafett_access::{Actions, Change, Effect, Form, Kind, Rule, SUPERUSER, Subject, User, Verifiers};

use super::World;

/// `ann:pw`.
const ANN: (&str, &str) = ("authorization", "Basic YW5uOnB3");

fn rule(effect: Effect, form: Form, name: &str) -> Change {
    Change::SetRule(Rule {
        subject: Subject::User("ann".into()),
        effect,
        kinds: Kind::Queue.into(),
        namespace: None,
        form,
        name: name.into(),
        host: None,
        actions: Actions::ALL,
    })
}

#[tokio::test]
async fn a_wait_on_many_queues_gets_nothing_of_one_that_may_no_longer_be_read() {
    let world = World::new().await;
    let names: Vec<String> = (0..70).map(|number| format!("q{number}")).collect();
    for name in &names {
        world.queue("/", name).await;
    }
    let directory = world.broker.access().directory();
    let verifiers = Verifiers::of_password(b"pw", b"a salt of 16 byt");
    directory.apply([
        Change::PutUser(User::new("root", verifiers.clone(), &[SUPERUSER]).unwrap()),
        Change::PutUser(User::new("ann", verifiers, &[]).unwrap()),
        rule(Effect::Allow, Form::Prefix, "q"),
    ]);
    // From here on the password is known to be right, so that the next login does not wait.
    let known = world.response_to("GET /v1/whoami", &[ANN], "").await;
    assert_eq!(known.status(), StatusCode::OK);
    let request = format!("POST /v1/receive?wait=60s&queue={}", names.join(","));
    let receiving = world.response_to(&request, &[ANN], "");
    let acting = async {
        directory.apply([rule(Effect::Deny, Form::Literal, "q69")]);
        world.publish("q69", b"secret", 0, None).await;
    };
    let (received, ()) = tokio::join!(receiving, acting);
    assert_eq!(received.status(), StatusCode::FORBIDDEN);
}
