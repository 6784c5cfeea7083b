//! A receiver of batches over HTTP: signed, under an id that stays the same when a batch is sent again.
//!
//! ```text
//! with position_url:  the receiver has the positions, and refuses (409) other batches
//! without:            the ledger has them; bounds first, then the batch, then the position
//! ```
//!
//! Ids, time stamps and signatures are those of Standard Webhooks.

mod body;
mod position;
mod sign;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, StatusCode};
use tokio::time::{Instant, sleep_until};

use super::files::WallClock;
use super::{Ledger, Opened, Part, Place, Promise, Start, Steps, Surroundings, Target, TargetError};
use crate::columns::Column;
use crate::definition::WebhookSpec;
use crate::remote::{Address, Allowed, Answer, Link};

/// Longest wait that a receiver may ask for.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// Bytes that are read of an answer to a batch; nothing in it is of use but its beginning.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Bytes of an answer about positions.
const POSITIONS_BYTES_MAX: usize = 16 << 20;
/// Bytes of an answer in messages.
const CITED_BYTES: usize = 300;

/// A receiver over HTTP.
pub struct Webhook {
    sink: String,
    spec: WebhookSpec,
    columns: Vec<Column>,
    wall: WallClock,
    steps: Steps,
    allowed: Allowed,
    ledger: Option<Arc<dyn Ledger>>,
    link: Option<Link>,
    /// The receiver asked for no request before this time.
    not_before: Option<Instant>,
    /// Positions of places that this writer has.
    places: HashMap<Place, u64>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Webhook({})", self.spec.url)
    }
}

impl Webhook {
    pub fn new(sink: &str, spec: &WebhookSpec, columns: &[Column], surroundings: &Surroundings) -> Self {
        Self {
            sink: sink.to_owned(),
            spec: spec.clone(),
            columns: columns.to_vec(),
            wall: surroundings.wall,
            steps: surroundings.steps.clone(),
            allowed: Allowed::new(&surroundings.webhook_allow),
            ledger: surroundings.ledger.clone(),
            link: None,
            not_before: None,
            places: HashMap::new(),
        }
    }

    fn ledger(&self) -> Result<&dyn Ledger, TargetError> {
        let why = "the positions of this sink are those of its app";
        self.ledger
            .as_deref()
            .ok_or_else(|| TargetError::Stop(why.to_owned()))
    }

    /// Sends a request, on a connection that is there or a new one.
    async fn ask(
        &mut self,
        method: Method,
        url: &str,
        mut headers: HeaderMap,
        body: Bytes,
        bytes_max: usize,
    ) -> Result<Answer, TargetError> {
        if let Some(time) = self.not_before.take() {
            sleep_until(time).await;
        }
        for (name, secret) in &self.spec.headers {
            let value = resolved(secret)?;
            let name = HeaderName::try_from(name).map_err(|why| TargetError::Stop(why.to_string()))?;
            let value = HeaderValue::try_from(value);
            let value = value.map_err(|_| TargetError::Stop(format!("{secret} is no value of a header")))?;
            headers.insert(name, value);
        }
        headers.insert(USER_AGENT, HeaderValue::from_static("stafett"));
        let to = Address::parse(url)?;
        let mut link = match Link::take(&mut self.link, &to) {
            Some(link) => link,
            None => Link::open(&to, &self.allowed, self.spec.ca.as_deref(), self.timeout()).await?,
        };
        let answer = link
            .ask(method, &to, headers, body, self.timeout(), bytes_max)
            .await?;
        if link.is_open() {
            self.link = Some(link);
        }
        Ok(answer)
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.spec.timeout_ms)
    }

    /// Sends the rows of a part. Returns if the receiver has taken them.
    async fn send(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let url = resolved(&self.spec.url)?;
        let (body, kind) = body::of(self.spec.form, &self.sink, &self.columns, part);
        let id = sign::id(&self.sink, part);
        let now_s = (self.wall)() / 1000;
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(CONTENT_TYPE.as_str(), kind);
        set("webhook-id", &id);
        set("webhook-timestamp", &now_s.to_string());
        if let Some(secret) = &self.spec.secret {
            let key = sign::key(&resolved(secret)?);
            set("webhook-signature", &sign::signature(&key, &id, now_s, &body));
        }
        set("stafett-sink", &self.sink);
        set("stafett-topic", &part.place.topic);
        set("stafett-partition", &part.place.partition.to_string());
        set("stafett-first", &part.from.to_string());
        set("stafett-next", &part.next.to_string());
        set("stafett-epoch", &part.epoch.to_string());
        let answer = self
            .ask(Method::POST, &url, headers, body.into(), ANSWER_BYTES_MAX)
            .await?;
        self.sorted(&answer, Some(part.place))
    }

    /// Sorts an answer by its status. Of `place`, another writer may have the position.
    fn sorted(&mut self, answer: &Answer, place: Option<&Place>) -> Result<(), TargetError> {
        let status = answer.status;
        if status.is_success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&answer.body);
        let cut = said
            .char_indices()
            .take_while(|(at, _)| *at < CITED_BYTES)
            .count();
        let said: String = said.chars().take(cut).collect();
        let text = format!("the receiver answered {status}: {said}");
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                self.wait_as_asked(&answer.headers);
                Err(TargetError::Retry(text))
            }
            status if status.is_server_error() => {
                self.wait_as_asked(&answer.headers);
                Err(TargetError::Retry(text))
            }
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                let class = status.as_str().to_owned();
                Err(TargetError::Poison { class, text })
            }
            StatusCode::CONFLICT if self.spec.position_url.is_some() => match place {
                Some(place) => Err(TargetError::Fenced(place.clone())),
                None => Err(TargetError::Stop(text)),
            },
            status if status.is_redirection() => {
                Err(TargetError::Stop(format!("{text} (redirects are not followed)")))
            }
            _ => Err(TargetError::Stop(text)),
        }
    }

    /// Notes the time that a receiver asked to wait, in seconds.
    fn wait_as_asked(&mut self, headers: &HeaderMap) {
        let seconds = headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(seconds) = seconds {
            self.not_before = Some(Instant::now() + Duration::from_secs(seconds).min(WAIT_MAX));
        }
    }
}

/// Returns a text of the definition, as it is now.
fn resolved(secret: &crate::secret::Secret) -> Result<String, TargetError> {
    secret
        .resolve()
        .map_err(|why| TargetError::Stop(format!("{secret}: {why}")))
}

#[async_trait]
impl Target for Webhook {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        self.places.remove(place);
        let opened = match &self.spec.position_url {
            Some(_) => self.take_over(place, start).await?,
            None => self.ledger()?.open(place, start).await?,
        };
        self.steps.reach("opened")?;
        self.places.insert(place.clone(), opened.next);
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        if self.places.get(part.place) != Some(&part.from) {
            return Err(TargetError::Fenced(part.place.clone()));
        }
        let holds_positions = self.spec.position_url.is_some();
        if !holds_positions {
            self.ledger()?.begin_part(part).await?;
            self.steps.reach("bounds")?;
        }
        if holds_positions || !part.rows.is_empty() {
            self.send(part).await?;
        }
        self.steps.reach("sent")?;
        if !holds_positions {
            self.ledger()?.end_part(part);
        }
        self.places.insert(part.place.clone(), part.next);
        Ok(())
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        self.ask_positions().await
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        self.put_position(place, start, None).await
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        self.put_position(place, start, Some(epoch)).await
    }

    async fn prepare(&mut self, _: bool) -> Result<Vec<String>, TargetError> {
        // Nothing can be made at a receiver; an address that cannot be used is told before the first batch.
        Address::parse(&resolved(&self.spec.url)?)?;
        Ok(Vec::new())
    }

    fn promise(&self) -> Promise {
        if self.spec.position_url.is_some() {
            Promise::ExactlyOnce
        } else {
            Promise::AtLeastOnce
        }
    }
}
