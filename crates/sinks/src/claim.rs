//! A task of the worker, as the app has it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http::HttpError;
use crate::target::Place;

/// A task of the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) task: String,
    pub(crate) epoch: u64,
    pub(crate) partition: u32,
    /// Number of the last commit.
    pub(crate) seq: u64,
    /// Positions by topic, as the app knows them.
    pub(crate) next: BTreeMap<String, u64>,
    /// Offsets by topic from which another worker would go on.
    pub(crate) safe: BTreeMap<String, u64>,
    /// A commit without an answer. It may be stored.
    pub(crate) unanswered: Option<Bounds>,
    /// The only topic of the task. `None` is all topics of the sink.
    pub(crate) topic: Option<String>,
    /// True if a batch of the task has paused the sink for its poison, and is not written yet.
    pub(crate) is_marked: bool,
}

/// Key under which the app has the mark of a batch that paused the sink. It goes once the position passes it.
pub(crate) const MARK: &str = "stafett.poison";

/// Position of a topic, and the end of the batch that was begun there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) topic: String,
    pub(crate) safe: u64,
    pub(crate) next: u64,
    /// True if the batch has paused the sink for its poison.
    pub(crate) is_mark: bool,
}

impl Claim {
    /// Returns the claim of one partition of one topic.
    pub(crate) fn of_place(topic: &str, partition: u32) -> Self {
        Self {
            task: format!("{topic}/{partition}"),
            epoch: 0,
            partition,
            seq: 0,
            next: BTreeMap::new(),
            safe: BTreeMap::new(),
            unanswered: None,
            topic: Some(topic.to_owned()),
            is_marked: false,
        }
    }

    /// Returns the places of the task, of a sink with these topics.
    pub(crate) fn places(&self, topics: &[String]) -> Vec<Place> {
        let topics = self.topic.as_ref().map_or(topics, std::slice::from_ref);
        let place = |topic: &String| Place {
            topic: topic.clone(),
            partition: self.partition,
        };
        topics.iter().map(place).collect()
    }

    /// Returns position and end of a batch that was begun, as the app knows them.
    pub(crate) fn bounds(&self, topic: &str) -> (u64, u64) {
        let of = |offsets: &BTreeMap<String, u64>| offsets.get(topic).copied().unwrap_or(0);
        (of(&self.safe), of(&self.next))
    }

    /// Returns the bounds to store before a batch is sent, unless they are stored. The end of a batch stays
    /// where it was begun, also if another one was to be begun: batches that are sent have stored bounds.
    pub(crate) fn begin(&self, topic: &str, (from, next): (u64, u64)) -> Option<Bounds> {
        let stored = self.bounds(topic);
        (stored != (from, next) && stored.1 <= next).then(|| Bounds {
            topic: topic.to_owned(),
            safe: from,
            next,
            is_mark: false,
        })
    }

    /// Returns the bounds to store behind a batch, unless that is known.
    pub(crate) fn end(&self, topic: &str, next: u64) -> Option<Bounds> {
        let (safe, known) = self.bounds(topic);
        (next > safe).then(|| Bounds {
            topic: topic.to_owned(),
            safe: next,
            next: known.max(next),
            is_mark: false,
        })
    }

    /// Returns the bounds that mark a batch as one that has paused the sink.
    pub(crate) fn mark(&self, topic: &str, next: u64) -> Option<Bounds> {
        let (safe, known) = self.bounds(topic);
        (next > safe).then(|| Bounds {
            topic: topic.to_owned(),
            safe,
            next: known.max(next),
            is_mark: true,
        })
    }

    /// Returns the next commit, with new bounds of one topic. It names all topics: of one that is absent, the
    /// app would take the end of a begun batch for its position.
    pub(crate) fn commit(&self, bounds: &Bounds) -> Value {
        let (mut next, mut safe) = (self.next.clone(), self.safe.clone());
        next.insert(bounds.topic.clone(), bounds.next);
        safe.insert(bounds.topic.clone(), bounds.safe);
        let mut commit = json!({
            "task": self.task, "epoch": self.epoch, "seq": self.seq + 1, "next": next, "safe": safe,
        });
        if let Some(commit) = commit.as_object_mut().filter(|_| bounds.is_mark) {
            let last = json!({ (bounds.topic.as_str()): bounds.next.saturating_sub(1) });
            commit.insert("done".to_owned(), json!([[MARK, last]]));
        }
        commit
    }

    /// Takes the answer to a commit. `again` says that it was sent before, with the same bounds.
    pub(crate) fn answered(
        &mut self,
        bounds: Bounds,
        again: bool,
        answer: Result<Value, HttpError>,
    ) -> Result<(), HttpError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                // The app compares offsets only of a commit that is new to it.
                let is_refused = match &why {
                    HttpError::Refused { code, .. } if again => code == "bad_offset",
                    HttpError::Refused { status, .. } => *status < 500,
                    HttpError::Away { .. } => false,
                };
                if is_refused {
                    self.unanswered = None;
                }
                return Err(why);
            }
        };
        if !again && answer.get("repeated") == Some(&Value::Bool(true)) {
            let detail = format!(
                "commit {} of task {} is stored with other offsets",
                self.seq + 1,
                self.task
            );
            return Err(HttpError::Refused {
                status: 409,
                code: "repeated".to_owned(),
                detail,
            });
        }
        self.seq += 1;
        self.unanswered = None;
        self.next.insert(bounds.topic.clone(), bounds.next);
        self.safe.insert(bounds.topic, bounds.safe);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The app's side: the same commit counts once, and an absent topic is done up to its `next`.
    #[derive(Debug, Default)]
    struct App {
        seq: u64,
        bounds: BTreeMap<String, (u64, u64)>,
    }

    impl App {
        fn commit(&mut self, commit: &Value) -> Result<Value, HttpError> {
            let seq = commit["seq"].as_u64().unwrap();
            if seq == self.seq {
                return Ok(json!({"seq": seq, "repeated": true}));
            }
            assert_eq!(seq, self.seq + 1);
            let (mut bounds, mut is_bad) = (self.bounds.clone(), false);
            for (topic, (safe, next)) in &mut bounds {
                let new = commit["next"][topic].as_u64().unwrap_or(*next);
                let new_safe = commit["safe"][topic].as_u64().unwrap_or(new);
                is_bad |= new < *next || new_safe < *safe || new_safe > new;
                (*safe, *next) = (new_safe, new);
            }
            if is_bad {
                return Err(refused(422, "bad_offset"));
            }
            (self.seq, self.bounds) = (seq, bounds);
            Ok(json!({"seq": seq, "repeated": false}))
        }
    }

    fn refused(status: u16, code: &str) -> HttpError {
        HttpError::Refused {
            status,
            code: code.to_owned(),
            detail: String::new(),
        }
    }

    fn lost() -> HttpError {
        HttpError::Away {
            address: String::new(),
            why: "the answer is lost".to_owned(),
        }
    }

    fn start() -> (App, Claim) {
        let mut claim = Claim::of_place("a", 0);
        let mut app = App::default();
        for topic in ["a", "b"] {
            claim.next.insert(topic.to_owned(), 100);
            claim.safe.insert(topic.to_owned(), 100);
            app.bounds.insert(topic.to_owned(), (100, 100));
        }
        (app, claim)
    }

    /// Sends a commit; its answer may be lost.
    fn send(
        app: &mut App,
        claim: &mut Claim,
        bounds: Bounds,
        again: bool,
        is_lost: bool,
    ) -> Result<(), HttpError> {
        claim.unanswered = Some(bounds.clone());
        let answer = app.commit(&claim.commit(&bounds));
        claim.answered(bounds, again, if is_lost { Err(lost()) } else { answer })
    }

    #[test]
    fn a_begun_batch_of_one_topic_stays_while_others_are_committed() {
        let (mut app, mut claim) = start();
        let begun = claim.begin("b", (100, 200)).unwrap();
        send(&mut app, &mut claim, begun, false, false).unwrap();
        let begun = claim.begin("a", (100, 150)).unwrap();
        send(&mut app, &mut claim, begun, false, false).unwrap();
        let stored = claim.end("a", 150).unwrap();
        send(&mut app, &mut claim, stored, false, false).unwrap();
        assert_eq!(app.bounds["a"], (150, 150));
        assert_eq!(app.bounds["b"], (100, 200));
        assert_eq!(claim.bounds("b"), (100, 200));
        let stored = claim.end("b", 200).unwrap();
        send(&mut app, &mut claim, stored, false, false).unwrap();
        assert_eq!(app.bounds["b"], (200, 200));
    }

    #[test]
    fn bounds_whose_answer_was_lost_are_those_of_the_batch() {
        let (mut app, mut claim) = start();
        let begun = claim.begin("a", (100, 150)).unwrap();
        assert!(send(&mut app, &mut claim, begun, false, true).is_err());
        assert_eq!(claim.bounds("a"), (100, 100));
        let unanswered = claim.unanswered.clone().unwrap();
        send(&mut app, &mut claim, unanswered, true, false).unwrap();
        assert_eq!(claim.begin("a", (100, 150)), None);
        // A shorter batch is not begun: the caller has to send the one that was.
        assert_eq!(claim.begin("a", (100, 120)), None);
        assert_eq!(claim.bounds("a"), (100, 150));
        // A longer one was not sent yet, so its bounds are stored before it is.
        let begun = claim.begin("a", (100, 180)).unwrap();
        send(&mut app, &mut claim, begun, false, false).unwrap();
        assert_eq!(app.bounds["a"], (100, 180));
    }

    #[test]
    fn a_commit_with_other_offsets_under_the_same_number_is_no_success() {
        let (mut app, mut claim) = start();
        let begun = claim.begin("a", (100, 150)).unwrap();
        app.commit(&claim.commit(&begun)).unwrap();
        let other = claim.begin("a", (100, 180)).unwrap();
        let why = send(&mut app, &mut claim, other, false, false).unwrap_err();
        assert_eq!(why.code(), Some("repeated"));
        assert_eq!(claim.bounds("a"), (100, 100));
    }

    #[test]
    fn a_refused_commit_is_not_sent_again_and_one_of_unknown_outcome_is() {
        let (_, mut claim) = start();
        let begun = claim.begin("a", (100, 150)).unwrap();
        for (status, code, again, is_left) in [
            (422, "bad_offset", false, false),
            (422, "bad_offset", true, false),
            (401, "unauthorized", false, false),
            (401, "unauthorized", true, true),
            (503, "overloaded", false, true),
        ] {
            claim.unanswered = Some(begun.clone());
            assert!(
                claim
                    .answered(begun.clone(), again, Err(refused(status, code)))
                    .is_err()
            );
            assert_eq!(claim.unanswered.is_some(), is_left, "{code} {again}");
        }
    }

    #[test]
    fn a_mark_leaves_the_position_and_ends_with_its_batch() {
        let (mut app, mut claim) = start();
        assert_eq!(claim.mark("a", 100), None);
        let mark = claim.mark("a", 150).unwrap();
        assert_eq!(claim.commit(&mark)["done"], json!([[MARK, {"a": 149}]]));
        send(&mut app, &mut claim, mark, false, false).unwrap();
        assert_eq!(app.bounds["a"], (100, 150));
        let stored = claim.end("a", 150).unwrap();
        assert!(claim.commit(&stored)["done"].is_null());
        send(&mut app, &mut claim, stored, false, false).unwrap();
        assert_eq!(app.bounds["a"], (150, 150));
    }

    #[test]
    fn a_position_within_a_begun_batch_leaves_its_end() {
        let (mut app, mut claim) = start();
        let begun = claim.begin("a", (100, 200)).unwrap();
        send(&mut app, &mut claim, begun, false, false).unwrap();
        let stored = claim.end("a", 150).unwrap();
        send(&mut app, &mut claim, stored, false, false).unwrap();
        assert_eq!(app.bounds["a"], (150, 200));
        assert_eq!(claim.end("a", 150), None);
    }
}
