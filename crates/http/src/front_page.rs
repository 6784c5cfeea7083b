//! The answer at the root path: a page for browsers, lines of text for programs.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Link on the page.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub about: &'static str,
    pub path: &'static str,
}

const LINKS: [Link; 3] = [
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

/// Answers a `GET /`. `more` links are added without escaping.
#[must_use]
pub fn answer(headers: &HeaderMap, more: &[Link]) -> Response {
    let links = LINKS.iter().chain(more);
    let (content_type, text) = if wants_html(headers) {
        let body = links.map(|link| format!("<p>{}: <a href=\"{1}\">{1}</a>\n", link.about, link.path));
        let page = format!(
            "<!doctype html><meta charset=\"utf-8\"><title>Stafett</title>\n\
             <p>This is Stafett {VERSION}, a message broker.\n{}",
            body.collect::<String>()
        );
        ("text/html; charset=utf-8", page)
    } else {
        let body = links.map(|link| format!("{}: {}\n", link.about, link.path));
        let text = format!(
            "This is Stafett {VERSION}, a message broker.\n{}",
            body.collect::<String>()
        );
        ("text/plain; charset=utf-8", text)
    };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(content_type)),
        (header::VARY, HeaderValue::from_static("accept, upgrade")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (StatusCode::OK, headers, text).into_response()
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

    #[tokio::test]
    async fn browsers_get_a_page_and_programs_lines_of_text() {
        let more = [Link {
            about: "More",
            path: "/more",
        }];
        for (accept, content_type, line) in [
            (
                Some("text/html,application/xhtml+xml,*/*;q=0.8"),
                "text/html; charset=utf-8",
                "<p>More: <a href=\"/more\">/more</a>\n",
            ),
            (Some("*/*"), "text/plain; charset=utf-8", "More: /more\n"),
            (None, "text/plain; charset=utf-8", "Its API: /v1\n"),
        ] {
            let accept = accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
            let response = answer(&accept.into_iter().collect(), &more);
            let headers = response.headers();
            assert_eq!(headers[header::CONTENT_TYPE], content_type);
            assert_eq!(headers[header::VARY], "accept, upgrade");
            assert_eq!(headers[header::CACHE_CONTROL], "no-store");
            let body = to_bytes(response.into_body(), 1000).await.unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert!(text.contains("This is Stafett") && text.contains(line), "{text}");
        }
    }
}
