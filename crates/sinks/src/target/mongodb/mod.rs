//! MongoDB: a document for each row, under an `_id` of the record's place, and the position in a collection
//! of its own.
//!
//! ```text
//! find stafett_positions {_id, epoch, next}    none: fenced
//! insert …, unordered                          an _id that is there: the document is replaced
//! update stafett_positions {_id, epoch, next}  0 documents: fenced
//! ```
//!
//! Documents come first, and the position behind them: after a crash in between the same records are written
//! again under the same ids, so each is there once. A topic that was made again has records at the same
//! places: positions count generations of the topic, and ids name those behind the first.

mod address;
mod answer;
mod bson;
mod errors;
mod link;
mod position;
mod rows;
mod scram;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::{Opened, Part, Place, Promise, Start, Steps, Target, TargetError};
use crate::columns::Column;
use crate::definition::MongodbSpec;
use address::Address;
use answer::Answer;
use bson::Fields;
use errors::DUPLICATE;
use link::{Link, Message};
use position::{find, named};

pub(crate) use rows::ID;

/// Digits of a decimal.
pub(crate) const DIGITS_MAX: u16 = 34;
/// Bytes of a command, from which on the next document goes into another one. A server takes 48 MB.
const COMMAND_BYTES: usize = 16 << 20;
/// Documents of a command, as servers take them.
const COMMAND_ROWS: usize = 100_000;
/// Bytes of a document, as servers take them.
const DOCUMENT_BYTES_MAX: usize = 16 << 20;
/// Poison that never reached the server.
const NO_DOCUMENT: &str = "no_document";

/// A collection of a database.
pub struct Mongodb {
    sink: String,
    spec: MongodbSpec,
    columns: Vec<Column>,
    steps: Steps,
    worker: String,
    link: Option<Link>,
    /// Generations of the topics of places that this writer has.
    places: HashMap<Place, i64>,
}

impl std::fmt::Debug for Mongodb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mongodb({})", self.spec.url)
    }
}

/// Place of a row in a command.
type Row<'a> = (u64, &'a [crate::rows::Cell]);

impl Mongodb {
    pub fn new(sink: &str, spec: &MongodbSpec, columns: &[Column], steps: Steps) -> Self {
        Self {
            sink: sink.to_owned(),
            spec: spec.clone(),
            columns: columns.to_vec(),
            steps,
            worker: Uuid::new_v4().simple().to_string(),
            link: None,
            places: HashMap::new(),
        }
    }

    fn address(&self) -> Result<(Address, String), TargetError> {
        let url = self.spec.url.resolve();
        let url = url.map_err(|why| TargetError::Stop(format!("{}: {why}", self.spec.url)))?;
        let address = Address::parse(&url)?;
        let database = self.spec.database.clone().or_else(|| address.database.clone());
        let database = database.ok_or_else(|| {
            TargetError::Stop("there is no database: name it, database = \"…\", or in the address".to_owned())
        })?;
        Ok((address, database))
    }

    /// Sends a command to the database of the sink. A connection that has failed is not used again.
    async fn ask(&mut self, command: impl FnOnce(&str) -> Message) -> Result<Answer, TargetError> {
        let (address, database) = self.address()?;
        let message = command(&database);
        let mut link = if let Some(link) = self.link.take() {
            link
        } else {
            let patience = Duration::from_millis(self.spec.timeout_ms);
            Link::open(&address, self.spec.ca.as_deref(), patience).await?
        };
        let answer = link.ask(message).await?;
        self.link = Some(link);
        Ok(answer)
    }

    /// Writes rows by commands of bounded size. Returns those whose ids are there already, unless they are
    /// replaced.
    async fn put<'a>(
        &mut self,
        part: &Part<'a>,
        ahead: impl Iterator<Item = Row<'a>>,
        replace: bool,
    ) -> Result<Vec<Row<'a>>, TargetError> {
        let (_, database) = self.address()?;
        let generation = self.places.get(part.place).copied().unwrap_or(0);
        let mut ahead = ahead.peekable();
        let mut there = Vec::new();
        while ahead.peek().is_some() {
            let (command, list) = if replace {
                ("update", "updates")
            } else {
                ("insert", "documents")
            };
            let mut message = Message::new(&database, |fields| {
                fields.text(command, &self.spec.collection);
                fields.boolean("ordered", false);
                concern(fields);
            })
            .with_documents(list);
            let mut sent: Vec<Row<'a>> = Vec::new();
            while let Some(row) =
                ahead.next_if(|_| message.len() < COMMAND_BYTES && sent.len() < COMMAND_ROWS)
            {
                let (offset, cells) = row;
                let id = document_id(part.place, offset, generation);
                let fill =
                    |fields: &mut Fields<'_>| rows::write(fields, &id, &self.columns, part.rows.rows, cells);
                let written = if replace {
                    message.push(|update| {
                        nested(update, "q", |query| query.text(ID, &id));
                        update.document("u", fill)?;
                        update.boolean("upsert", true);
                        Ok(())
                    })
                } else {
                    message.push(fill)
                };
                match written {
                    Ok(bytes) if bytes <= DOCUMENT_BYTES_MAX => sent.push(row),
                    Ok(bytes) => return Err(no_document(format!("the document has {bytes} bytes"))),
                    Err(why) => return Err(no_document(why)),
                }
            }
            let answer = self.ask(|_| message).await?;
            for error in answer.documents("writeErrors") {
                let row = error
                    .integer("index")
                    .and_then(|index| sent.get(usize::try_from(index).ok()?));
                match row {
                    Some(row) if !replace && error.integer("code") == Some(DUPLICATE) => there.push(*row),
                    _ => return Err(errors::of_document(error)),
                }
            }
        }
        Ok(there)
    }
}

/// Writes a document whose fields cannot fail.
fn nested(fields: &mut Fields<'_>, name: &str, fill: impl FnOnce(&mut Fields<'_>)) {
    let written: Result<(), ()> = fields.document(name, |inner| {
        fill(inner);
        Ok(())
    });
    debug_assert!(written.is_ok(), "nothing fails");
}

/// Writes are confirmed once a majority of servers has them on disk.
fn concern(command: &mut Fields<'_>) {
    nested(command, "writeConcern", |concern| {
        concern.text("w", "majority");
        concern.boolean("j", true);
    });
}

fn document_id(place: &Place, offset: u64, generation: i64) -> String {
    match generation {
        0 => format!("{place}@{offset}"),
        _ => format!("{place}@{offset}#{generation}"),
    }
}

fn signed(number: u64) -> Result<i64, TargetError> {
    i64::try_from(number).map_err(|_| TargetError::Stop(format!("{number} is no offset")))
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn no_document(text: String) -> TargetError {
    let class = NO_DOCUMENT.to_owned();
    TargetError::Poison { class, text }
}

#[async_trait]
impl Target for Mongodb {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        // A command that hangs in an earlier connection must not hold this one up.
        self.link = None;
        self.places.remove(place);
        let (next, worker, sink) = (signed(start.next)?, self.worker.clone(), self.sink.clone());
        let taken = self
            .change(place, None, true, |update| {
                nested(update, "$inc", |inc| inc.long("epoch", 1));
                nested(update, "$set", |set| set.text("worker", &worker));
                nested(update, "$setOnInsert", |first| {
                    named(first, &sink, place);
                    first.long("next", next);
                    first.long("generation", 0);
                });
                Ok(())
            })
            .await?;
        let gone = || TargetError::Retry(format!("the position of {place} is gone"));
        let mut taken = taken.ok_or_else(gone)?;
        if !start.is_of(taken.topic) {
            return Err(TargetError::MadeAgain(place.clone()));
        }
        if let (None, Some(id)) = (taken.topic, start.topic) {
            let named = self.change(place, Some(taken.epoch), false, |update| {
                nested(update, "$set", |set| set.text("topic_id", &id.to_string()));
                Ok(())
            });
            taken = named.await?.ok_or_else(|| TargetError::Fenced(place.clone()))?;
        }
        self.steps.reach("opened")?;
        self.places.insert(place.clone(), taken.generation);
        Ok(Opened {
            next: unsigned(taken.next),
            epoch: unsigned(taken.epoch),
            begun: None,
            topic: taken.topic,
        })
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        self.check(part).await?;
        self.steps.reach("checked")?;
        if !part.rows.is_empty() {
            let there = self.put(part, part.rows.iter(), false).await?;
            self.steps.reach("inserted")?;
            // Of a flush that was not finished, or of a replay.
            self.put(part, there.into_iter(), true).await?;
            self.steps.reach("replaced")?;
        }
        self.move_position(part).await?;
        self.steps.reach("position")
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let sink = self.sink.clone();
        let found = self
            .ask(|database| find(database, |query| query.text("sink", &sink)))
            .await?;
        let cursor = found.document("cursor");
        let positions = cursor
            .into_iter()
            .flat_map(|cursor| cursor.documents("firstBatch"));
        let position = |document: &Answer| {
            let place = Place {
                topic: document.text("topic")?.to_owned(),
                partition: u32::try_from(document.integer("partition")?).ok()?,
            };
            Some((place, unsigned(document.integer("next")?)))
        };
        let mut positions: Vec<_> = positions.filter_map(position).collect();
        positions.sort();
        Ok(positions)
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        self.put_position(place, None, start).await
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        let epoch = signed(epoch)?;
        self.put_position(place, Some(epoch), start).await
    }

    async fn prepare(&mut self, _: bool) -> Result<Vec<String>, TargetError> {
        // A collection is made by its first document; an address that cannot be used is told before.
        self.address()?;
        Ok(Vec::new())
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}
