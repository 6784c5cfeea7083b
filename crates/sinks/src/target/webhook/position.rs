//! Positions that the receiver keeps with its data, at `position_url`.
//!
//! ```text
//! POST {"sink", "topic", "topic_id", "partition", "begin"}
//!     → {"next": 1200, "epoch": 7, "topic_id"}         earlier writers are refused
//! POST {"sink", "topic", "topic_id", "partition", "set": 1300}
//!     → the same, at another position; with "epoch": 7 only while that is the epoch, else 409
//! GET  ?sink=NAME                                       → {"positions": [{"topic", "partition", "next"}]}
//! ```
//!
//! The id of the topic is stored with the position, and answered: another one tells that the topic was made
//! again. Of a receiver that does not answer it, only the app of the sink knows.

use bytes::Bytes;
use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{POSITIONS_BYTES_MAX, Webhook, resolved};
use crate::target::{Opened, Place, Start, TargetError};

#[derive(Debug, Deserialize)]
struct Taken {
    next: u64,
    epoch: u64,
    topic_id: Option<Uuid>,
}

#[derive(Debug, Deserialize)]
struct All {
    positions: Vec<One>,
}

#[derive(Debug, Deserialize)]
struct One {
    topic: String,
    partition: u32,
    next: u64,
}

impl Webhook {
    fn position_url(&self) -> Result<String, TargetError> {
        let why = "the positions of this sink are those of its app: stafett app reset moves them";
        let url = self.spec.position_url.as_ref();
        resolved(url.ok_or_else(|| TargetError::Stop(why.to_owned()))?)
    }

    /// Takes a place over at the receiver.
    pub(super) async fn take_over(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        self.post_position(place, "begin", start, None).await
    }

    /// Sets a position; of a place that is given under an epoch, unless another writer has it.
    pub(super) async fn put_position(
        &mut self,
        place: &Place,
        start: Start,
        epoch: Option<u64>,
    ) -> Result<(), TargetError> {
        let opened = self.post_position(place, "set", start, epoch).await?;
        if opened.next == start.next {
            Ok(())
        } else {
            let why = format!("the receiver stays at {} of {place}", opened.next);
            Err(TargetError::Stop(why))
        }
    }

    async fn post_position(
        &mut self,
        place: &Place,
        what: &str,
        start: Start,
        known: Option<u64>,
    ) -> Result<Opened, TargetError> {
        let url = self.position_url()?;
        let Place { topic, partition } = place;
        let mut wanted = json!({
            "sink": self.sink, "topic": topic, "topic_id": start.topic, "partition": partition, what: start.next,
        });
        if let (Some(epoch), Some(wanted)) = (known, wanted.as_object_mut()) {
            wanted.insert("epoch".to_owned(), epoch.into());
        }
        let Taken {
            next,
            epoch,
            topic_id,
        } = self
            .exchange(Method::POST, &url, &wanted, known.map(|_| place))
            .await?;
        if !start.is_of(topic_id) {
            return Err(TargetError::MadeAgain(place.clone()));
        }
        Ok(Opened {
            next,
            epoch,
            begun: None,
            topic: topic_id,
        })
    }

    pub(super) async fn ask_positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let url = self.position_url()?;
        let sink = utf8_percent_encode(&self.sink, NON_ALPHANUMERIC).to_string();
        let mark = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{mark}sink={sink}");
        let All { positions } = self.exchange(Method::GET, &url, &Value::Null, None).await?;
        let place = |One {
                         topic,
                         partition,
                         next,
                     }| (Place { topic, partition }, next);
        Ok(positions.into_iter().map(place).collect())
    }

    /// Asks about positions; if about one that another writer may have taken over, of `place`.
    async fn exchange<T: for<'de> Deserialize<'de>>(
        &mut self,
        method: Method,
        url: &str,
        body: &Value,
        place: Option<&Place>,
    ) -> Result<T, TargetError> {
        let mut headers = HeaderMap::new();
        let mut bytes = Bytes::new();
        if !body.is_null() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            bytes = body.to_string().into();
        }
        let answer = self.ask(method, url, headers, bytes, POSITIONS_BYTES_MAX).await?;
        match self.sorted(&answer, place) {
            // A question has no rows that may be at fault.
            Err(TargetError::Poison { text, .. }) => return Err(TargetError::Stop(text)),
            sorted => sorted?,
        }
        serde_json::from_slice(&answer.body).map_err(|why| {
            let text = format!("the receiver's answer about positions cannot be read: {why}");
            TargetError::Stop(text)
        })
    }
}
