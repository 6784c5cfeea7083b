//! The answer at the root path: browsers are led to the console, programs get lines of text.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const CONSOLE: &str = "/console/";

/// Line of the text.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub about: &'static str,
    pub path: &'static str,
}

const LINKS: [Link; 4] = [
    Link {
        about: "Its console",
        path: CONSOLE,
    },
    Link {
        about: "Whether it is ready",
        path: "/health",
    },
    Link {
        about: "Its figures",
        path: "/metrics",
    },
    Link {
        about: "Its API",
        path: "/v1",
    },
];

/// Answers a `GET /`; `more` are further lines.
#[must_use]
pub fn answer(headers: &HeaderMap, more: &[Link]) -> Response {
    let always = [
        (header::VARY, HeaderValue::from_static("accept, upgrade")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    if wants_html(headers) {
        return (StatusCode::FOUND, always, [(header::LOCATION, CONSOLE)]).into_response();
    }
    let links = LINKS.iter().chain(more);
    let lines = links.map(|link| format!("{}: {}\n", link.about, link.path));
    let text = format!(
        "This is Stafett {VERSION}, a message broker.\n{}",
        lines.collect::<String>()
    );
    let content_type = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    (StatusCode::OK, always, content_type, text).into_response()
}

/// Returns true if `Accept` names HTML.
fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut texts = accepted.filter_map(|value| value.to_str().ok());
    texts.any(|text| text.to_ascii_lowercase().contains("text/html"))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    const MORE: [Link; 1] = [Link {
        about: "More",
        path: "/more",
    }];

    fn asked(accept: Option<&'static str>) -> Response {
        let accept = accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
        answer(&accept.into_iter().collect(), &MORE)
    }

    #[test]
    fn browsers_are_led_to_the_console() {
        let response = asked(Some("text/html,application/xhtml+xml,*/*;q=0.8"));
        assert_eq!(response.status(), StatusCode::FOUND);
        let headers = response.headers();
        assert_eq!(headers[header::LOCATION], "/console/");
        assert_eq!(headers[header::VARY], "accept, upgrade");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
    }

    #[tokio::test]
    async fn programs_get_lines_of_text() {
        for accept in [Some("*/*"), None] {
            let response = asked(accept);
            assert_eq!(response.status(), StatusCode::OK);
            let headers = response.headers();
            assert_eq!(headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
            assert_eq!(headers[header::VARY], "accept, upgrade");
            assert_eq!(headers[header::CACHE_CONTROL], "no-store");
            let body = to_bytes(response.into_body(), 1000).await.unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            for line in [
                "This is Stafett",
                "Its API: /v1\n",
                "More: /more\n",
                "Its console: /console/\n",
            ] {
                assert!(text.contains(line), "{text}");
            }
        }
    }
}
