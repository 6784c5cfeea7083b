//! Refusals, sorted by the code of the server's exception.

use hyper::StatusCode;

use crate::remote::Answer;
use crate::target::TargetError;

const CODE: &str = "x-clickhouse-exception-code";
/// Bytes of an answer in messages.
const CITED_BYTES: usize = 300;

/// Codes of errors that pass: time-outs, memory, parts, replicas, Keeper, shutdowns.
const PASSING: [u16; 17] = [
    3, 159, 160, 164, 201, 202, 209, 210, 236, 241, 242, 252, 285, 286, 319, 394, 999,
];
/// Codes of values that the table does not take.
const POISON: [u16; 24] = [
    6, 25, 26, 27, 33, 38, 41, 44, 69, 70, 72, 117, 131, 190, 321, 349, 376, 407, 441, 467, 469, 636, 675,
    691,
];

/// Sorts an answer by the code of its exception; without one, by its status.
pub(super) fn sorted(answer: &Answer) -> Result<(), TargetError> {
    let code = answer.headers.get(CODE);
    let code: Option<u16> = code.and_then(|code| code.to_str().ok()?.parse().ok());
    if answer.status.is_success() && code.is_none() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&answer.body);
    let cut = said
        .char_indices()
        .take_while(|(at, _)| *at < CITED_BYTES)
        .count();
    let said: String = said.trim().chars().take(cut).collect();
    let text = format!("ClickHouse refuses ({}): {said}", answer.status);
    Err(match code {
        Some(code) if PASSING.contains(&code) => TargetError::Retry(text),
        Some(code) if POISON.contains(&code) => TargetError::Poison {
            class: code.to_string(),
            text,
        },
        Some(_) => TargetError::Stop(text),
        None => match answer.status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => TargetError::Retry(text),
            StatusCode::PAYLOAD_TOO_LARGE => TargetError::Poison {
                class: "413".to_owned(),
                text,
            },
            status if status.is_server_error() => TargetError::Retry(text),
            _ => TargetError::Stop(text),
        },
    })
}
