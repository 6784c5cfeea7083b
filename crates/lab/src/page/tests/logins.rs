//! Logins that may run experiments, and those that may look.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

#[tokio::test]
async fn a_page_with_a_login_answers_nothing_without_it() {
    let served = Served::with_login(Some(
        Logins::of("# users\nann:a good password\n\nbob:another one").unwrap(),
    ));
    let asked = async |path: &str, authorization: Option<&str>| {
        let mut request = Request::builder().uri(path).header("host", "127.0.0.1:7072");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let request = request.body(Body::empty()).unwrap();
        served.routes.clone().oneshot(request).await.unwrap()
    };
    let right = format!("Basic {}", STANDARD.encode("ann:a good password"));
    let other = format!("Basic {}", STANDARD.encode("bob:another one"));
    let wrong = format!("Basic {}", STANDARD.encode("ann:another one"));
    for path in [
        "/",
        "/lab/",
        "/lab/v1/runs",
        "/lab/v1/openapi.json",
        "/lab/v1/none",
        "/other",
    ] {
        for given in [
            None,
            Some(&*wrong),
            Some("Basic"),
            Some("Bearer x"),
            Some("Basic !"),
        ] {
            let refused = asked(path, given).await;
            assert_eq!(refused.status(), 401, "{path} {given:?}");
            assert!(refused.headers().contains_key("www-authenticate"));
        }
        for right in [&right, &other] {
            assert_ne!(asked(path, Some(right)).await.status(), 401, "{path}");
        }
    }
    for short in [
        "",
        "# nobody",
        "ann",
        "ann:short",
        ":a good password",
        "ann:a good password\nann:another one",
        "ann:a good password\nbob",
    ] {
        assert!(Logins::of(short).is_err(), "{short}");
    }
}

#[tokio::test]
async fn a_login_that_may_look_starts_and_changes_nothing() {
    let others = Logins::of("bob:another one").unwrap();
    let served = Served::with_login(Some(
        Logins::of("ann:a good password").unwrap().with_lookers(others),
    ));
    let asked = async |request: &str, login: &str, body: &str| {
        let (method, path) = request.split_once(' ').unwrap();
        let request = Request::builder()
            .method(method)
            .uri(format!("/lab/v1{path}"))
            .header("host", "127.0.0.1:7072")
            .header("authorization", format!("Basic {}", STANDARD.encode(login)))
            .extension(ByteBudget::new(BudgetSettings {
                bytes: BODIES_BYTES_MAX,
            }))
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = served.routes.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), 1 << 24).await.unwrap();
        (
            status,
            serde_json::from_slice::<Value>(&bytes).unwrap_or_default(),
        )
    };
    let check = json!({ "toml": TEXT }).to_string();
    for (login, may_run) in [("ann:a good password", true), ("bob:another one", false)] {
        assert_eq!(
            asked("GET /whoami", login, "").await,
            (200, json!({ "may_run": may_run }))
        );
        assert_eq!(asked("GET /runs", login, "").await.0, 200);
        assert_eq!(asked("POST /check", login, &check).await.0, 200);
        let (status, _) = asked("PUT /experiments/mine", login, TEXT).await;
        assert_eq!(status == 403, !may_run, "{status}");
        let (status, _) = asked("DELETE /runs/none", login, "").await;
        assert_eq!(status, if may_run { 404 } else { 403 });
    }
}
