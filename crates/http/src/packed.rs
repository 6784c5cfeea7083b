//! Answers as gzip, for clients of other machines that take them so. On one machine nothing is won: the
//! network costs nothing there, and packing does.

use std::io::Write as _;

use axum::body::{Body, Bytes, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::server::peer;

/// Smaller answers stay as they are.
const BYTES_MIN: u64 = 4 << 10;
/// So do larger ones.
const BYTES_MAX: u64 = 64 << 20;
/// Answers beyond this are packed on another thread.
const INLINE_BYTES_MAX: usize = 64 << 10;
const PACKED_TYPES: [&str; 4] = [
    "application/json",
    "application/problem+json",
    "application/openmetrics-text",
    "text/",
];

/// Returns true if the client takes gzip and is not on this machine.
pub(crate) fn is_wanted(request: &Request) -> bool {
    let is_far = peer(request).is_some_and(|peer| !peer.to_canonical().is_loopback());
    is_far && takes_gzip(request.headers())
}

/// Returns true if `Accept-Encoding` names gzip without refusing it.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().trim_start_matches("q=").parse::<f32>();
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

/// Packs an answer if it is a text whose length is known. Streams stay as they are.
pub(crate) async fn pack(response: Response) -> Response {
    let length = response.body().size_hint().exact();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text = PACKED_TYPES.iter().any(|known| kind.starts_with(known));
    let is_packed = response.headers().contains_key(header::CONTENT_ENCODING);
    let has_length = length.is_some_and(|length| (BYTES_MIN..=BYTES_MAX).contains(&length));
    if !is_text || is_packed || !has_length {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let packed = if bytes.len() > INLINE_BYTES_MAX {
        let bytes = bytes.clone();
        let packing = tokio::task::spawn_blocking(move || gzip(&bytes));
        packing.await.ok().flatten()
    } else {
        gzip(&bytes)
    };
    let Some(packed) = packed else {
        return Response::from_parts(parts, Body::from(bytes));
    };
    let headers = &mut parts.headers;
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    Response::from_parts(parts, Body::from(packed))
}

fn gzip(bytes: &Bytes) -> Option<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    packed.write_all(bytes).ok()?;
    packed.finish().ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;
    use crate::answer;

    #[tokio::test]
    async fn long_texts_are_packed_and_nothing_else() {
        let long = format!("[{}0]", "1,".repeat(100_000));
        let response = pack(answer::json(StatusCode::OK, long.clone())).await;
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(bytes.len() < long.len() / 100);
        let mut text = String::new();
        GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, long);
        let image = answer::of_type("image/png", StatusCode::OK, Body::from(long.clone()));
        let short = answer::json(StatusCode::OK, "[]");
        let mut packed = answer::json(StatusCode::OK, long);
        packed
            .headers_mut()
            .insert(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        for (response, coding) in [(image, None), (short, None), (packed, Some("zstd"))] {
            let response = pack(response).await;
            let found = response.headers().get(header::CONTENT_ENCODING);
            assert_eq!(found.and_then(|found| found.to_str().ok()), coding);
        }
    }

    #[test]
    fn gzip_is_taken_unless_it_has_no_weight() {
        for (accepted, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            assert_eq!(takes_gzip(&headers), expected, "{accepted}");
        }
    }
}
