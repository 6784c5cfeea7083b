//! One partition: records are read and gathered while the batch before them is written.
//!
//! Length: reading, gathering, asking and writing of a partition take turns in one loop.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_client::Client;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::warn;
use uuid::Uuid;

use crate::amqp::Feed;
use crate::convert::Converter;
use crate::definition::{Definition, OnGap, SourceSpec};
use crate::gather::{Cause, Gather};
use crate::held::Holding;
use crate::positions::{first_of, pass_gap};
use crate::query::asked;
use crate::quiet::left_ms;
use crate::reader::{Piece, ReadError, Reader, Unwritten, begin};
use crate::runner::RunError;
use crate::status::{Limit, State, Status};
use crate::tables::caught_up;
use crate::target::{Opened, Place, Start, TargetError};
use crate::writer::{Stored, Writer};

/// Wait before reading is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Order to a pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// Nothing is read or written until the next order.
    Pause,
    /// Write the gathered rows, and end.
    Finish,
}

/// News of a pump.
#[derive(Debug)]
pub(crate) enum News {
    /// The target is behind this offset.
    Stored { of: Holding, topic: String, next: u64 },
    /// A batch is about to be sent to a target that holds no position.
    Begin {
        of: Holding,
        topic: String,
        bounds: (u64, u64),
        /// The bounds that are stored then.
        reply: oneshot::Sender<Result<(u64, u64), TargetError>>,
    },
    /// Too much poison in a batch that ends there.
    Poisoned { of: Holding, topic: String, next: u64 },
    /// The records of a queue that were read and not written have to come again.
    Broken { of: Holding },
}

/// A partition on its way into the target.
pub(crate) struct Pump {
    pub(crate) definition: Arc<Definition>,
    pub(crate) of: Holding,
    pub(crate) place: Place,
    /// Of the broker that has the records.
    pub(crate) client: Client,
    /// Of the broker that has the tables.
    pub(crate) broker: Client,
    pub(crate) status: Arc<Status>,
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) news: mpsc::Sender<News>,
    pub(crate) now_ms: fn() -> u64,
    pub(crate) wall_ms: fn() -> i64,
    /// Messages of a queue, until they are read.
    pub(crate) feed: Option<Feed>,
    /// Id of the topic that the target has taken over; `None` before, and without ids.
    pub(crate) topic: Option<Uuid>,
    pub(crate) unwritten: Unwritten,
}

/// A writer that is back, and the end of its batch.
struct Written {
    writer: Writer,
    next: u64,
    stored: Stored,
}

/// Reason why a pump follows its partition no more.
enum End {
    /// It has to finish, or the runner is gone.
    Finished,
    /// It was paused, or the target is elsewhere.
    At(Writer, Opened),
    /// There is another topic of that name now. All records of the one before that were read are written.
    MadeAgain(Writer),
}

/// A pump between two openings of its target.
struct Course {
    converter: Converter,
    gather: Gather,
    reader: Reader,
    /// The writer, while it writes nothing.
    idle: Option<Writer>,
    flight: JoinSet<Written>,
    /// Records that have no room in the batch, or wait for the row of a database.
    ahead: Option<Piece>,
    /// The questions to databases, while there are any.
    asking: JoinSet<()>,
    position: Opened,
    /// True once there is another topic of that name.
    is_over: bool,
}

impl Course {
    /// Gathers records that are there, and returns why a flush is due.
    ///
    /// While the store is left alone, rows are written only at the end.
    fn due(&mut self, order: Order, now_ms: u64, is_quiet: bool) -> Option<Cause> {
        // Records that meet no table stay where they are: the session ends, and they are read again.
        if !self.converter.is_closed()
            && let Some(piece) = self.ahead.take()
        {
            self.ahead = take(&mut self.gather, &mut self.converter, piece);
        }
        match order {
            Order::Run if self.is_over => (!self.gather.is_empty()).then_some(Cause::Stop),
            Order::Finish => self.gather.due_at_end(now_ms),
            Order::Run if is_quiet => None,
            Order::Run => self.gather.due(now_ms),
            Order::Pause => None,
        }
    }

    /// Begins to ask databases for the rows for which the next records wait.
    fn begin_asking(&mut self, place: &Place, status: &Arc<Status>) {
        let Some(piece) = &self.ahead else {
            return;
        };
        if !self.converter.is_waiting() || !self.asking.is_empty() {
            return;
        }
        self.converter.look_ahead(place, piece.records.iter());
        let (queries, place, status) = (self.converter.queries(), place.clone(), Arc::clone(status));
        self.asking.spawn(async move {
            for query in &queries {
                asked(query, &place, &status).await;
            }
        });
    }

    /// Begins to write the batch. Returns false while the one before is being written.
    fn begin_flush(&mut self, cause: Cause, now_ms: u64) -> bool {
        let Some(mut writer) = self.idle.take() else {
            return false;
        };
        let batch = self.gather.take(cause, now_ms);
        self.flight.spawn(async move {
            let stored = writer.store(&batch).await;
            let next = batch.next;
            Written { writer, next, stored }
        });
        true
    }
}

/// The next thing that a pump has to handle.
enum Event {
    Read(Option<Result<Piece, ReadError>>),
    Written(Box<Written>),
    Asked,
    Order,
    Due,
}

impl Pump {
    /// Runs until it is told to finish, or dropped.
    pub(crate) async fn run(mut self, mut writer: Writer) {
        let Some(mut opened) = self.opened(&mut writer).await else {
            return;
        };
        loop {
            if !self.awaits_run().await {
                return;
            }
            let is_queue = self.feed.is_some();
            match self.follow(writer, opened).await {
                End::At(..) if is_queue => {
                    let of = self.of.clone();
                    // The runner is gone if it fails, and this with it.
                    let _ = self.news.send(News::Broken { of }).await;
                    return;
                }
                End::At(back, at) => (writer, opened) = (back, at),
                End::MadeAgain(_) if self.definition.source == SourceSpec::Own => {
                    // The app knows it as well, and the session ends.
                    let _ = self.orders.wait_for(|order| *order == Order::Finish).await;
                    return;
                }
                End::MadeAgain(back) => {
                    writer = back;
                    match self.opened(&mut writer).await {
                        Some(again) => opened = again,
                        None => return,
                    }
                }
                End::Finished => return,
            }
        }
    }

    /// Opens the target. `None` if the pump has to finish before that succeeds.
    async fn opened(&mut self, writer: &mut Writer) -> Option<Opened> {
        let mut orders = self.orders.clone();
        let finished = async {
            // The runner is gone if it fails, and this with it.
            let _ = orders.wait_for(|order| *order == Order::Finish).await;
        };
        let (opened, topic) = tokio::select! {
            opened = async {
                caught_up(&self.broker, &self.definition).await;
                self.opening(writer).await
            } => opened,
            () = finished => return None,
        };
        self.topic = topic;
        Some(opened)
    }

    /// Opens the target behind the tables that it needs, however long that takes. Returns the id of the topic
    /// as well.
    async fn opening(&self, writer: &mut Writer) -> (Opened, Option<Uuid>) {
        loop {
            let (start, end) = self.start().await;
            let why = match writer.open(start).await {
                Ok(opened) => {
                    writer.succeeded();
                    return (opened, start.topic);
                }
                Err(why) => why,
            };
            // None of its records is in the target.
            self.status.rests_at(&self.place, start.earliest, end);
            let why = match self.definition.on_gap {
                OnGap::Stop => why,
                OnGap::Skip => match self.pass_gap(writer).await {
                    Ok(()) => continue,
                    Err(RunError::Target(why)) => why,
                    Err(why) => TargetError::Retry(why.to_string()),
                },
            };
            writer.pause_after(&why).await;
        }
    }

    /// Has the place begin at the first record of the topic that is there now.
    async fn pass_gap(&self, writer: &mut Writer) -> Result<(), RunError> {
        let look = || first_of(&self.client, &self.place, self.definition.begin);
        pass_gap(&mut *writer.target, &self.place, false, look).await
    }

    /// Returns the place as its broker has it, and the end of its records, however long that takes.
    async fn start(&self) -> (Start, u64) {
        if self.feed.is_some() {
            return (Start::at(0), 0);
        }
        loop {
            let why = match begin(&self.client, &self.place, self.definition.begin).await {
                Ok(found) => return found,
                Err(why) => format!("the start of the partition is not known: {why}"),
            };
            if self.status.trouble(&self.place, State::Retrying, &why) {
                warn!(place = %self.place, "{why}");
            }
            sleep(AGAIN).await;
        }
    }

    /// Waits until the sink is not paused. Returns false if the pump has to finish.
    async fn awaits_run(&mut self) -> bool {
        let order = self.orders.wait_for(|order| *order != Order::Pause).await;
        order.is_ok_and(|order| *order == Order::Run)
    }

    /// Reads and writes from the target's position on, until the pump is paused, has to finish, or the target
    /// is elsewhere.
    async fn follow(&mut self, writer: Writer, opened: Opened) -> End {
        self.tell(opened.next).await;
        let mut course = self.course(writer, opened);
        loop {
            let order = *self.orders.borrow();
            let quiet_ms = left_ms(&self.definition.quiet, (self.wall_ms)());
            self.status.set_quiet(quiet_ms > 0);
            let now_ms = (self.now_ms)();
            let cause = course.due(order, now_ms, quiet_ms > 0);
            if course.idle.is_some() {
                self.status.waits_since(&self.place, course.gather.oldest_ms());
            }
            if let Some(cause) = cause
                && course.begin_flush(cause, now_ms)
            {
                continue;
            }
            if order != Order::Run || course.is_over {
                match (order, course.idle.take()) {
                    (Order::Finish, Some(_)) => return End::Finished,
                    (Order::Pause, Some(writer)) => return End::At(writer, course.position),
                    (Order::Run, Some(writer)) if course.ahead.is_none() => return End::MadeAgain(writer),
                    (_, writer) => course.idle = writer,
                }
            }
            if order == Order::Run && cause.is_none() {
                course.begin_asking(&self.place, &self.status);
            }
            let wait = wait_ms(order, cause, quiet_ms, course.gather.deadline(), now_ms);
            let has_room =
                course.ahead.is_none() && order == Order::Run && cause.is_none() && !course.is_over;
            let Some(event) = self.event(&mut course, has_room, wait, quiet_ms).await else {
                return End::Finished;
            };
            match event {
                Event::Order | Event::Due => {}
                Event::Asked => {
                    if course.idle.is_some() {
                        self.status.goes_on(&self.place);
                    }
                }
                Event::Read(Some(Ok(piece))) => {
                    self.status.ends(&self.place, piece.end);
                    if course.idle.is_some() {
                        self.status.goes_on(&self.place);
                    }
                    course.ahead = Some(piece);
                }
                Event::Read(ended) => {
                    if let Reader::Queue { .. } = course.reader {
                        // The connection ended. Its messages come again, and this ends with the claim.
                        return std::future::pending().await;
                    }
                    course.is_over = matches!(ended, Some(Err(ReadError::MadeAgain(_))));
                    self.reading_failed(ended).await;
                    course.reader = self.reader(course.gather.next());
                }
                Event::Written(written) => {
                    if let Some(end) = self.written(&mut course, *written).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Takes the writer back. Returns why the partition is followed no more.
    async fn written(&mut self, course: &mut Course, written: Written) -> Option<End> {
        let Written { writer, next, stored } = written;
        match stored {
            Stored::Whole => {
                course.position = Opened {
                    next,
                    epoch: writer.epoch,
                    begun: None,
                    topic: self.topic,
                };
                self.forget_below(next);
                self.tell(next).await;
                course.idle = Some(writer);
                None
            }
            Stored::Elsewhere(opened) => Some(End::At(writer, opened)),
            Stored::MadeAgain => Some(End::MadeAgain(writer)),
            Stored::Poisoned => {
                // It is read again once an operator resumes the sink.
                let (of, topic) = (self.of.clone(), self.place.topic.clone());
                let _ = self.news.send(News::Poisoned { of, topic, next }).await;
                let rests = self.orders.wait_for(|order| *order != Order::Run).await.is_ok();
                // Parts of the batch may be there: it comes again with the same bounds.
                let begun = Some(next);
                Some(if rests {
                    End::At(
                        writer,
                        Opened {
                            begun,
                            ..course.position
                        },
                    )
                } else {
                    End::Finished
                })
            }
        }
    }

    fn course(&mut self, writer: Writer, opened: Opened) -> Course {
        let definition = Arc::clone(&self.definition);
        let columns = definition.columns.clone();
        let width = columns.len();
        Course {
            converter: Converter::new(columns, definition.steps.clone(), definition.on_unknown),
            gather: Gather::new(
                self.place.clone(),
                definition.flush,
                width,
                opened.next,
                opened.begun,
                (self.now_ms)(),
            )
            .summing(definition.rollup.as_ref()),
            reader: self.reader(opened.next),
            idle: Some(writer),
            flight: JoinSet::new(),
            ahead: None,
            asking: JoinSet::new(),
            position: opened,
            is_over: false,
        }
    }

    /// Waits for the next event, for a time at most. `None` if the runner is gone.
    async fn event(
        &mut self,
        course: &mut Course,
        has_room: bool,
        wait_ms: u64,
        quiet_ms: u64,
    ) -> Option<Event> {
        tokio::select! {
            Some(done) = course.flight.join_next() => {
                // It ends otherwise only with this one. A panic is that of the partition.
                let written = done.unwrap_or_else(|why| resume_unwind(why.into_panic()));
                Some(Event::Written(Box::new(written)))
            }
            Some(done) = course.asking.join_next() => {
                done.unwrap_or_else(|why| resume_unwind(why.into_panic()));
                Some(Event::Asked)
            }
            piece = course.reader.next(), if has_room => Some(Event::Read(piece)),
            changed = self.orders.changed() => changed.ok().map(|()| Event::Order),
            () = sleep(Duration::from_millis(wait_ms)) => {
                self.status.limited(Limit::Quiet, quiet_ms);
                Some(Event::Due)
            }
        }
    }

    fn reader(&mut self, from: u64) -> Reader {
        if let Some(feed) = self.feed.take() {
            let unwritten = Arc::clone(&self.unwritten);
            return Reader::Queue {
                feed,
                base: from,
                unwritten,
            };
        }
        Reader::spawn(
            &self.client,
            self.place.clone(),
            self.topic,
            from,
            self.definition.on_gap,
        )
    }

    /// Forgets the records of a queue that are in the target.
    fn forget_below(&self, next: u64) {
        self.unwritten.lock().retain(|record| record.offset.0 >= next);
    }

    async fn tell(&self, next: u64) {
        self.status.at(&self.place, next);
        let (of, topic) = (self.of.clone(), self.place.topic.clone());
        // The runner is gone if it fails, and this with it.
        let _ = self.news.send(News::Stored { of, topic, next }).await;
    }

    async fn reading_failed(&self, ended: Option<Result<Piece, ReadError>>) {
        if let Some(Err(why)) = ended {
            let state = match why {
                ReadError::Client(_) => State::Retrying,
                ReadError::Gap { .. } | ReadError::MadeAgain(_) | ReadError::Unreadable(_) => State::Stopped,
            };
            if self.status.trouble(&self.place, state, &why.to_string()) {
                warn!(place = %self.place, state = state.word(), "{why}");
            }
        }
        sleep(AGAIN).await;
    }
}

/// Returns the time until a flush may be due by time alone. A deadline that does not lie ahead is no event: a
/// pause, a flush under way and a missing record end with events of their own.
fn wait_ms(order: Order, cause: Option<Cause>, quiet_ms: u64, deadline: Option<u64>, now_ms: u64) -> u64 {
    if quiet_ms > 0 {
        return quiet_ms;
    }
    match deadline {
        Some(at) if order == Order::Run && cause.is_none() && at > now_ms => at - now_ms,
        _ => u64::from(u32::MAX),
    }
}

/// Gathers a piece up to the next flush. Returns the rest of it.
fn take(gather: &mut Gather, converter: &mut Converter, mut piece: Piece) -> Option<Piece> {
    let refused = |record: &_| gather.is_full() || converter.is_closed() || !gather.push(record, converter);
    if let Some(taken) = piece.records.iter().position(refused) {
        piece.records.drain(..taken);
        return Some(piece);
    }
    gather.pass(piece.next);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computed::tests::place_and_record;
    use crate::transform::Step;

    #[test]
    fn a_batch_that_may_not_be_written_is_no_reason_to_wake_up() {
        let never = u64::from(u32::MAX);
        let wait = |order, cause, deadline| wait_ms(order, cause, 0, deadline, 1000);
        assert_eq!(wait(Order::Run, None, Some(1500)), 500);
        assert_eq!(
            wait(Order::Run, None, None),
            never,
            "nothing is gathered, or its end decides"
        );
        for (order, cause) in [
            (Order::Pause, None),
            (Order::Finish, None),
            (Order::Run, Some(Cause::Time)),
            (Order::Run, None),
        ] {
            assert_eq!(
                wait(order, cause, Some(1000)),
                never,
                "{order:?} {cause:?}: it is over"
            );
        }
        assert_eq!(wait(Order::Pause, None, Some(1500)), never);
        assert_eq!(
            wait_ms(Order::Run, None, 70, None, 1000),
            70,
            "the end of the quiet time"
        );
    }

    #[test]
    fn records_ahead_meet_no_table_that_is_closed() {
        let text = "[sink.a]\nfrom = \"t\"\nto = \"topic\"\ntopic = \"u\"\n\
            [[sink.a.transform]]\nlookup = { topic = \"apps\", key = \"key\", add = [\"zone\"], bytes_max = \"1KiB\" }\n";
        let definition = Definition::parse(text).unwrap().remove(0);
        let (place, record) = place_and_record();
        let piece = || Piece {
            records: vec![record.clone(), record.clone()],
            next: record.offset.0 + 1,
            end: record.offset.0 + 1,
        };
        let width = definition.columns.len();
        let mut gather = Gather::new(place, definition.flush, width, record.offset.0, None, 0);
        let steps = definition.steps.clone();
        let mut converter = Converter::new(definition.columns.clone(), steps, definition.on_unknown);
        assert!(take(&mut gather, &mut converter, piece()).is_none());
        let next = gather.next();
        let lookup = definition.steps.iter().find_map(Step::lookup).unwrap();
        let large = format!("{{\"zone\":\"{}\"}}", "x".repeat(2000));
        lookup.take(0, b"k1", Some(large.as_bytes())).unwrap_err();
        let left = take(&mut gather, &mut converter, piece()).unwrap();
        assert_eq!((left.records.len(), gather.next()), (2, next));
    }
}
