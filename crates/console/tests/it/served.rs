//! Answers of the routes.

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use stafett_console::Console;
use tower::ServiceExt;

async fn ask(path: &str, codings: &str) -> Response {
    ask_of(Console::default(), path, codings).await
}

async fn ask_of(console: Console, path: &str, codings: &str) -> Response {
    let request = Request::get(path).header(header::ACCEPT_ENCODING, codings);
    let request = request.body(Body::empty()).unwrap();
    stafett_console::router(console).oneshot(request).await.unwrap()
}

async fn text(response: Response) -> String {
    let body = to_bytes(response.into_body(), 1 << 22).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Returns the path of the page's first script.
async fn script() -> String {
    let page = text(ask("/console/", "").await).await;
    let (_, rest) = page.split_once("src=\"").unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

#[tokio::test]
async fn every_path_of_a_page_is_the_page_which_is_asked_for_anew() {
    let response = ask("/console", "").await;
    assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
    assert_eq!(response.headers()[header::LOCATION], "/console/");
    for path in ["/console/", "/console/queues", "/console/queues/%2F/a%2Fb"] {
        let response = ask(path, "").await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let headers = response.headers();
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}

#[tokio::test]
async fn named_files_are_cached_and_compressed_for_clients_that_take_it() {
    let path = script().await;
    let plain = ask(&path, "identity").await;
    assert_eq!(plain.headers().get(header::CONTENT_ENCODING), None);
    assert_eq!(
        plain.headers()[header::CACHE_CONTROL],
        "public, max-age=31536000, immutable"
    );
    assert_eq!(
        plain.headers()[header::CONTENT_TYPE],
        "text/javascript; charset=utf-8"
    );
    let plain = to_bytes(plain.into_body(), 1 << 22).await.unwrap();
    for (codings, takes) in [
        ("gzip, deflate, br", true),
        ("br;q=1, GZIP;q=0.5", true),
        ("gzip;q=0", false),
        ("br", false),
    ] {
        let response = ask(&path, codings).await;
        assert_eq!(
            response.headers().contains_key(header::CONTENT_ENCODING),
            takes,
            "{codings}"
        );
        assert_eq!(response.headers()[header::VARY], "accept-encoding");
        let body = to_bytes(response.into_body(), 1 << 22).await.unwrap();
        assert_eq!(body.len() < plain.len(), takes, "{codings}");
    }
}

#[tokio::test]
async fn other_files_are_not_found() {
    for path in [
        "/console/assets/none.js",
        "/console/assets/..%2Findex.html",
        "/console/assets/sources.sha256",
    ] {
        assert_eq!(ask(path, "").await.status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn files_of_a_folder_take_the_place_of_those_in_the_binary() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    std::fs::create_dir_all(page.join("assets")).unwrap();
    std::fs::write(page.join("index.html"), "of the folder").unwrap();
    std::fs::write(page.join("assets/app.js"), "0").unwrap();
    std::fs::write(folder.path().join("secret.js"), "outside").unwrap();
    let console = || Console {
        folder: Some(page.clone()),
        settings: "{\"shows_only\":true}".to_owned(),
    };
    let response = ask_of(console(), "/console/queues", "gzip").await;
    assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
    assert_eq!(text(response).await, "of the folder");
    assert_eq!(
        text(ask_of(console(), "/console/assets/app.js", "").await).await,
        "0"
    );
    for path in [
        "..%2F..%2Fsecret.js",
        "..",
        "none.js",
        "%2Fetc%2Fpasswd.js",
        ".js",
    ] {
        let response = ask_of(console(), &format!("/console/assets/{path}"), "").await;
        assert_ne!(response.status(), StatusCode::OK, "{path}");
    }
    let settings = ask_of(console(), "/console/settings.json", "").await;
    assert_eq!(settings.headers()[header::CONTENT_TYPE], "application/json");
    assert_eq!(text(settings).await, "{\"shows_only\":true}");
}

#[tokio::test]
async fn a_console_that_is_switched_off_says_so() {
    for path in ["/console", "/console/", "/console/queues"] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = stafett_console::without_pages().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert!(text(response).await.contains("console.enabled"), "{path}");
    }
}
