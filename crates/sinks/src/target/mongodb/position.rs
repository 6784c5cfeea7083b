//! Positions: a document for each place, changed under its epoch alone.

use uuid::Uuid;

use super::answer::Answer;
use super::bson::Fields;
use super::link::Message;
use super::{ID, Mongodb, concern, errors, nested, signed};
use crate::target::{Part, Place, Start, TargetError};

const POSITIONS: &str = "stafett_positions";
/// Positions of an answer.
const POSITIONS_MAX: i64 = 100_000;
/// Tries to set a position while other writers change it.
const TRIES: usize = 8;

/// A position as the database has it.
pub(super) struct Stored {
    pub(super) next: i64,
    pub(super) epoch: i64,
    pub(super) generation: i64,
    pub(super) topic: Option<Uuid>,
}

impl Stored {
    pub(super) fn of(document: &Answer) -> Option<Self> {
        Some(Self {
            next: document.integer("next")?,
            epoch: document.integer("epoch")?,
            generation: document.integer("generation").unwrap_or(0),
            topic: document.text("topic_id").and_then(|id| id.parse().ok()),
        })
    }
}

impl Mongodb {
    fn position_id(&self, place: &Place) -> String {
        format!("{}/{place}", self.sink)
    }

    /// Changes the position of a place, and returns it as it is then; `None` if it is not there, or not under
    /// that epoch.
    pub(super) async fn change(
        &mut self,
        place: &Place,
        epoch: Option<i64>,
        upsert: bool,
        fill: impl FnOnce(&mut Fields<'_>) -> Result<(), TargetError>,
    ) -> Result<Option<Stored>, TargetError> {
        let id = self.position_id(place);
        let mut update = Vec::new();
        fill(&mut Fields(&mut update))?;
        let answer = self
            .ask(|database| {
                Message::new(database, |command| {
                    command.text("findAndModify", POSITIONS);
                    nested(command, "query", |query| {
                        query.text(ID, &id);
                        if let Some(epoch) = epoch {
                            query.long("epoch", epoch);
                        }
                    });
                    nested(command, "update", |inner| inner.0.extend_from_slice(&update));
                    command.boolean("upsert", upsert);
                    command.boolean("new", true);
                    concern(command);
                })
            })
            .await?;
        let Some(value) = answer.document("value") else {
            return Ok(None);
        };
        let stored = Stored::of(value);
        stored
            .map(Some)
            .ok_or_else(|| TargetError::Stop(format!("the position {id} cannot be read")))
    }

    async fn stored(&mut self, place: &Place) -> Result<Option<Stored>, TargetError> {
        let id = self.position_id(place);
        let found = self
            .ask(|database| find(database, |query| query.text(ID, &id)))
            .await?;
        let first = found
            .document("cursor")
            .and_then(|cursor| cursor.documents("firstBatch").next());
        Ok(first.and_then(Stored::of))
    }

    /// Sets a position; that of a known epoch, or whatever is there.
    pub(super) async fn put_position(
        &mut self,
        place: &Place,
        known: Option<i64>,
        start: Start,
    ) -> Result<(), TargetError> {
        let (next, worker) = (signed(start.next)?, self.worker.clone());
        for _ in 0..TRIES {
            let before = self.stored(place).await?;
            if known.is_some() && before.as_ref().map(|it| it.epoch) != known {
                return Err(TargetError::Fenced(place.clone()));
            }
            let epoch = before.as_ref().map(|it| it.epoch);
            // Records of another topic have the same offsets as those of the former one.
            let is_other = before
                .as_ref()
                .is_some_and(|it| start.topic.is_some() && it.topic != start.topic);
            let (sink, topic) = (self.sink.clone(), place.clone());
            let changed = self
                .change(place, epoch, before.is_none(), |update| {
                    nested(update, "$set", |set| {
                        set.long("next", next);
                        set.text("worker", &worker);
                        if let Some(id) = start.topic {
                            set.text("topic_id", &id.to_string());
                        }
                        if before.is_none() {
                            named(set, &sink, &topic);
                        }
                    });
                    nested(update, "$inc", |inc| {
                        inc.long("epoch", 1);
                        inc.long("generation", is_other.into());
                    });
                    Ok(())
                })
                .await?;
            if changed.is_some() {
                self.places.remove(place);
                return Ok(());
            }
        }
        Err(TargetError::Retry(format!(
            "other writers change the position of {place}"
        )))
    }

    /// Refuses a part that does not begin at the position, before anything is written.
    pub(super) async fn check(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let id = self.position_id(part.place);
        let (epoch, from) = (signed(part.epoch)?, signed(part.from)?);
        let found = self
            .ask(|database| {
                find(database, |query| {
                    query.text(ID, &id);
                    query.long("epoch", epoch);
                    query.long("next", from);
                })
            })
            .await?;
        let cursor = found.document("cursor");
        if cursor.is_some_and(|cursor| cursor.documents("firstBatch").next().is_some()) {
            Ok(())
        } else {
            Err(TargetError::Fenced(part.place.clone()))
        }
    }

    pub(super) async fn move_position(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        let id = self.position_id(part.place);
        let (epoch, from, next) = (signed(part.epoch)?, signed(part.from)?, signed(part.next)?);
        let moved = self
            .ask(|database| {
                let mut message = Message::new(database, |fields| {
                    fields.text("update", POSITIONS);
                    concern(fields);
                })
                .with_documents("updates");
                let pushed: Result<usize, ()> = message.push(|update| {
                    nested(update, "q", |query| {
                        query.text(ID, &id);
                        query.long("epoch", epoch);
                        query.long("next", from);
                    });
                    nested(update, "u", |change| {
                        nested(change, "$set", |set| set.long("next", next));
                    });
                    Ok(())
                });
                debug_assert!(pushed.is_ok(), "nothing fails");
                message
            })
            .await?;
        if let Some(error) = moved.documents("writeErrors").next() {
            let why = errors::of_document(error);
            // A position is no row that may be at fault.
            return Err(if let TargetError::Poison { text, .. } = why {
                TargetError::Stop(text)
            } else {
                why
            });
        }
        if moved.integer("n") == Some(1) {
            Ok(())
        } else {
            Err(TargetError::Fenced(part.place.clone()))
        }
    }
}

pub(super) fn find(database: &str, query: impl FnOnce(&mut Fields<'_>)) -> Message {
    Message::new(database, |command| {
        command.text("find", POSITIONS);
        nested(command, "filter", query);
        command.long("batchSize", POSITIONS_MAX);
        command.long("limit", POSITIONS_MAX);
        nested(command, "readConcern", |concern| {
            concern.text("level", "majority");
        });
    })
}

/// Writes the fields of a position that never change.
pub(super) fn named(fields: &mut Fields<'_>, sink: &str, place: &Place) {
    fields.text("sink", sink);
    fields.text("topic", &place.topic);
    fields.long("partition", place.partition.into());
}
