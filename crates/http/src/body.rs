//! The body of a request, within limits: its bytes are reserved from the process's budget before they are
//! kept, and it must arrive in time.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::BodyDataStream;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use stafett_net::{Arrival, ByteBudget, Permit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::code::Code;
use crate::problem::Problem;
use crate::{slot, stamp};

/// Time limit for the whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a refused body that are still read, at most.
const DISCARDED_MAX: usize = 4 << 20;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// A body and its share of the budget.
#[derive(Debug)]
pub struct Body {
    bytes: Bytes,
    _permit: Option<Permit>,
}

impl Body {
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub fn text(&self) -> Result<&str, Problem> {
        std::str::from_utf8(&self.bytes).map_err(|_| Problem::bad_request("the body is not UTF-8"))
    }
}

/// Maximum bytes of a JSON body.
const JSON_BYTES_MAX: usize = 16 << 20;

/// Reads a JSON body. Unknown fields are refused if the type denies them.
pub async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    let limit = Limit {
        bytes_max: JSON_BYTES_MAX,
        setting: "of JSON",
    };
    let body = read(request, limit).await?;
    parse(if body.bytes.is_empty() { b"{}" } else { &body.bytes })
}

/// Reads JSON. Unknown fields are refused if the type denies them.
pub fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, Problem> {
    // All at once: a slice is checked text by text.
    let read = match std::str::from_utf8(json) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(json),
    };
    read.map_err(|why| refused("the body", &why))
}

/// A part of a body that is an object. A type that derives its reader takes a list of its fields as well.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Refuses JSON that could not be read; `subject` is its name for people.
#[must_use]
pub fn refused(subject: &str, why: &serde_json::Error) -> Problem {
    let said = why.to_string();
    // serde: "unknown field `a`, expected `b` or `c`".
    let mut names = said.split('`').skip(1).step_by(2);
    if said.starts_with("unknown field")
        && let Some(field) = names.next()
    {
        return Problem::unknown_field(field, &names.collect::<Vec<_>>());
    }
    let code = if why.is_data() {
        Code::BadRequest
    } else {
        Code::BadJson
    };
    Problem::new(code, format!("{subject}: {said}"))
        .with("line", why.line())
        .with("column", why.column())
}

/// Bound on a body.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub bytes_max: usize,
    /// Name of the setting.
    pub setting: &'static str,
}

impl Limit {
    fn exceeded(self) -> Problem {
        let why = format!(
            "the body is larger than {} bytes, the setting {}",
            self.bytes_max, self.setting
        );
        Problem::new(Code::TooLarge, why).with("bytes_max", self.bytes_max)
    }
}

fn broken(_: axum::Error) -> Problem {
    Problem::bad_request("the body is malformed or was cut off")
}

fn slow() -> Problem {
    Problem::new(Code::SlowBody, "the body took too long to come")
}

/// Coding of a compressed body.
#[derive(Debug, Clone, Copy)]
pub struct Packing {
    /// Largest number of bytes that one byte can stand for.
    pub ratio_max: usize,
    /// Unpacks a body to at most this number of bytes.
    pub unpack: fn(&[u8], usize) -> Result<Vec<u8>, Problem>,
}

/// Reads a body within a limit.
pub async fn read(request: Request, limit: Limit) -> Result<Body, Problem> {
    read_packed(request, limit, None).await
}

/// Reads a body that may be compressed. The limit holds for it both as it comes and unpacked.
pub async fn read_packed(request: Request, limit: Limit, packing: Option<Packing>) -> Result<Body, Problem> {
    let mut body = stamp::receiving(read_within(request, limit, packing)).await?;
    if let Some(Packing { unpack, .. }) = packing {
        let packed = std::mem::take(&mut body.bytes);
        let unpacked = tokio::task::spawn_blocking(move || unpack(&packed, limit.bytes_max)).await;
        body.bytes = unpacked.map_err(|_| slot::closed())??.into();
    }
    Ok(body)
}

async fn read_within(request: Request, limit: Limit, packing: Option<Packing>) -> Result<Body, Problem> {
    // The size of a chunked body is not known in advance.
    let announced = announced(request.headers()).unwrap_or(limit.bytes_max);
    let unpacked = packing.map_or(0, |packing| {
        announced.saturating_mul(packing.ratio_max).min(limit.bytes_max)
    });
    let whole = announced.saturating_add(unpacked);
    let budget = request.extensions().get::<Arc<ByteBudget>>().cloned();
    let mut body = request.into_body().into_data_stream();
    if announced > limit.bytes_max {
        discard(&mut body).await;
        return Err(limit.exceeded());
    }
    let mut memory = match budget {
        Some(budget) => Some(match Arrival::try_begin(&budget, whole) {
            Some(memory) => memory,
            None => Arrival::begin(&budget, whole)
                .await
                .map_err(|_| limit.exceeded())?,
        }),
        None => None,
    };
    let collecting = async {
        let bytes = collect(&mut body, limit, memory.as_mut()).await?;
        let needed = if packing.is_some() { whole } else { 0 };
        grow_to(needed, limit, memory.as_mut()).await?;
        Ok(bytes)
    };
    let collected = timeout(BODY_TIMEOUT, collecting).await;
    let bytes = collected.unwrap_or_else(|_| Err(slow()))?;
    Ok(Body {
        bytes,
        _permit: memory.map(Arrival::into_permit),
    })
}

async fn collect(
    body: &mut BodyDataStream,
    limit: Limit,
    mut memory: Option<&mut Arrival>,
) -> Result<Bytes, Problem> {
    let mut whole = BytesMut::new();
    while let Some(part) = next_in_time(body, memory.as_deref_mut(), whole.len()).await? {
        if whole.len() + part.len() > limit.bytes_max {
            discard(body).await;
            return Err(limit.exceeded());
        }
        grow_to(whole.len() + part.len(), limit, memory.as_deref_mut()).await?;
        whole.extend_from_slice(&part);
    }
    Ok(whole.freeze())
}

/// Waits until there is memory for this number of bytes, or for all that are expected.
async fn grow_to(bytes: usize, limit: Limit, memory: Option<&mut Arrival>) -> Result<(), Problem> {
    let Some(memory) = memory else { return Ok(()) };
    while memory.room() < bytes && !memory.is_whole() {
        if !memory.try_grow() {
            memory.grow().await.map_err(|_| limit.exceeded())?;
        }
    }
    Ok(())
}

/// Returns the next part of a body of which `received` bytes have arrived. Fails if the body makes no
/// progress while others wait for memory.
async fn next_in_time(
    body: &mut BodyDataStream,
    memory: Option<&mut Arrival>,
    received: usize,
) -> Result<Option<Bytes>, Problem> {
    let Some(memory) = memory else {
        return next(body).await.transpose().map_err(broken);
    };
    loop {
        let window_end = memory.window_end(Instant::now(), received);
        let part = timeout_at(window_end, next(body)).await;
        let now = Instant::now();
        if memory.is_due(now) && !matches!(part, Ok(None)) && memory.gives_way(now, received) {
            tracing::warn!(received, "a request body made way to others that wait for memory");
            return Err(slow());
        }
        if let Ok(part) = part {
            return part.transpose().map_err(broken);
        }
    }
}

/// Reads on for a while: a client that sends too much is still sending, and would not see the response on a
/// connection that is reset.
async fn discard(body: &mut BodyDataStream) {
    let all = async {
        let mut left = DISCARDED_MAX;
        while let Some(Ok(part)) = next(body).await {
            left = left.saturating_sub(part.len());
            if left == 0 {
                return;
            }
        }
    };
    drop(timeout(DISCARD_TIMEOUT, all).await);
}

async fn next(body: &mut BodyDataStream) -> Option<Result<Bytes, axum::Error>> {
    poll_fn(|cx| Pin::new(&mut *body).poll_next(cx)).await
}

fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll};

    use axum::body;
    use stafett_net::BudgetSettings;

    const MIB: usize = 1 << 20;

    fn limit(bytes_max: usize) -> Limit {
        Limit {
            bytes_max,
            setting: "some.bytes_max",
        }
    }

    /// A body that never continues.
    struct Silent(Option<Bytes>);

    impl Stream for Silent {
        type Item = Result<Bytes, std::io::Error>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0
                .take()
                .map_or(Poll::Pending, |part| Poll::Ready(Some(Ok(part))))
        }
    }

    fn request(budget: &Arc<ByteBudget>, announced: usize, body: body::Body) -> Request {
        Request::builder()
            .header(header::CONTENT_LENGTH, announced)
            .extension(Arc::clone(budget))
            .body(body)
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_gives_way_to_one_that_waits_for_memory() {
        let budget = ByteBudget::new(BudgetSettings { bytes: 4 * MIB });
        let part = Bytes::from_static(b"the beginning");
        let silent = request(&budget, MIB, body::Body::from_stream(Silent(Some(part))));
        let other = request(&budget, 900_000, body::Body::from(vec![b'x'; 900_000]));
        let start = Instant::now();
        let (silent, other) = tokio::join!(read(silent, limit(MIB)), read(other, limit(MIB)));
        assert_eq!(silent.err(), Some(slow()));
        assert_eq!(other.ok().map(|body| body.bytes.len()), Some(900_000));
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(budget.in_use(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_takes_its_memory_as_it_comes() {
        let budget = ByteBudget::new(BudgetSettings { bytes: 4 * MIB });
        let large = request(&budget, 5 * MIB / 2, body::Body::from_stream(Silent(None)));
        let mut reading = Box::pin(read(large, limit(3 * MIB)));
        let polled = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_pending())).await;
        assert!(polled);
        assert_eq!(budget.in_use(), MIB);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_too_large_slow_or_no_text_is_refused_by_its_kind() {
        let budget = ByteBudget::new(BudgetSettings { bytes: 4 * MIB });
        let whole = |bytes: &'static [u8]| body::Body::from(bytes);
        for (announced, body, status, code) in [
            (5, whole(b"large"), 413, "too_large"),
            (4, whole(b"large"), 413, "too_large"),
            (4, body::Body::from_stream(Silent(None)), 408, "slow_body"),
            (4, whole(b"\xff"), 400, "bad_request"),
        ] {
            let read = read(request(&budget, announced, body), limit(4)).await;
            let problem = read.and_then(|body| body.text().map(str::to_owned)).unwrap_err();
            assert_eq!((problem.status().as_u16(), problem.code.word()), (status, code));
            assert_eq!(problem.detail.contains("some.bytes_max"), status == 413);
        }
        assert_eq!(budget.in_use(), 0);
    }
}
