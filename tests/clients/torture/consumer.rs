//! AMQP consumers, which settle their messages and drop their connections now and then.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use stafett_amqp_wire::Method;
use stafett_amqp_wire::methods::{Basic, Connection, Queue, basic, queue};

use super::PATIENCE;
use super::amqp::Client;
use super::load::{Load, Sent, Work};

const PREFETCH: u16 = 10;
/// Maximum deliveries per connection.
const TAKEN_MAX: u64 = 40;
/// Acknowledgements after which a consumer sends a request: its answer proves that they were processed.
const UNSURE_MAX: usize = 4;
/// Time between two checks for the end of the load.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Delivered,
    /// Acknowledged, but the broker may not have received it.
    Unsure,
    /// Acknowledged; the answer to a later request had arrived at this time.
    Settled(Instant),
}

/// Deliveries to the consumers of a queue.
#[derive(Debug, Default)]
pub(super) struct Taken {
    fates: BTreeMap<u64, Fate>,
    /// The last message that was not marked as redelivered.
    last_first: Option<u64>,
}

impl Taken {
    fn deliver(&mut self, queue: &str, number: u64, redelivered: bool, load: &Load) {
        let before = self.fates.insert(number, Fate::Delivered);
        if redelivered {
            check_return(queue, number, before, load);
            return;
        }
        assert_eq!(before, None, "{queue}: {number} comes again as if it were new");
        assert!(
            self.last_first.is_none_or(|last| last < number),
            "{queue}: {number} behind {:?}",
            self.last_first
        );
        self.last_first = Some(number);
    }

    fn set(&mut self, numbers: impl IntoIterator<Item = u64>, fate: Fate) {
        for number in numbers {
            self.fates.insert(number, fate);
        }
    }

    /// Compares the deliveries with the sent messages and with the content of the queue.
    pub(super) fn check(&self, queue: &str, stored: &[u64], sent: &Sent, load: &Load) {
        assert!(
            stored.is_sorted_by(|one, next| one < next),
            "{queue}: something is there twice or out of order: {stored:?}"
        );
        let is_stored = |number: u64| stored.binary_search(&number).is_ok();
        for number in stored {
            check_return(queue, *number, self.fates.get(number).copied(), load);
        }
        sent.check_refused(
            queue,
            |number| is_stored(number) || self.fates.contains_key(&number),
            load,
        );
        let numbers = stored.iter().chain(self.fates.keys());
        assert!(
            numbers.max().is_none_or(|last| *last < sent.next()),
            "{queue}: more than was sent"
        );
        let is_left = |number: u64| {
            let fate = self.fates.get(&number).copied();
            matches!(fate, None | Some(Fate::Delivered))
        };
        let given = self.fates.keys().copied();
        let owed = sent.acknowledged().iter().copied().chain(given);
        let lost: Vec<u64> = owed
            .filter(|number| is_left(*number) && !is_stored(*number))
            .collect();
        assert!(
            lost.is_empty(),
            "{queue}: confirmed, not settled and lost: {lost:?}"
        );
    }
}

/// Checks that a message that comes again was not settled for certain.
fn check_return(queue: &str, number: u64, before: Option<Fate>, load: &Load) {
    if let Some(Fate::Settled(at)) = before {
        assert!(
            load.may_come_back(at),
            "{queue}: {number} was settled {:?} ago and is back",
            at.elapsed()
        );
    }
}

/// Consumes from a queue, over one connection after another.
pub(super) fn consume(address: &str, queue: &'static str, load: &Load) -> Taken {
    let mut taken = Taken::default();
    while load.goes_on() {
        if Client::open(address)
            .and_then(|client| consume_on(client, queue, load, &mut taken))
            .is_err()
        {
            thread::sleep(Duration::from_millis(5));
        }
    }
    taken
}

fn consume_on(mut client: Client, queue: &'static str, load: &Load, taken: &mut Taken) -> io::Result<()> {
    let qos = basic::Qos {
        prefetch_count: PREFETCH,
        ..basic::Qos::default()
    };
    client.send(1, qos)?;
    client.method()?;
    let consume = basic::Consume {
        queue: queue.into(),
        ..basic::Consume::default()
    };
    client.send(1, consume)?;
    let (mut unsure, mut asked) = (Vec::new(), Vec::new());
    let mut last_heard = Instant::now();
    // Unsettled messages return when the connection ends.
    for _ in 0..TAKEN_MAX {
        let delivery = loop {
            if asked.is_empty() && (unsure.len() >= UNSURE_MAX || !load.goes_on()) {
                if unsure.is_empty() {
                    return Ok(());
                }
                asked = std::mem::take(&mut unsure);
                ask(&mut client, queue)?;
            }
            client.stream.set_read_timeout(Some(LOOK))?;
            match client.method() {
                Ok(Method::Basic(Basic::Deliver(delivery))) => break delivery,
                Ok(Method::Queue(Queue::DeclareOk(_))) => {
                    for _ in &asked {
                        load.done(Work::Settle);
                    }
                    taken.set(asked.drain(..), Fate::Settled(Instant::now()));
                }
                Ok(Method::Connection(Connection::Close(_))) => return Err(io::ErrorKind::Other.into()),
                Ok(Method::Basic(Basic::ConsumeOk(_))) => {}
                Ok(other) => panic!("{queue}: {other:?}"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(last_heard.elapsed() < PATIENCE, "{queue}: nothing is delivered");
                    load.all_read(Work::Publish);
                    continue;
                }
                Err(error) => return Err(error),
            }
            last_heard = Instant::now();
        };
        let number = client.content(queue)?;
        taken.deliver(queue, number, delivery.redelivered, load);
        load.read(Work::Publish);
        let ack = basic::Ack {
            delivery_tag: delivery.delivery_tag,
            multiple: false,
        };
        taken.set([number], Fate::Unsure);
        unsure.push(number);
        client.send(1, ack)?;
    }
    Ok(())
}

fn ask(client: &mut Client, queue: &'static str) -> io::Result<()> {
    let ask = queue::Declare {
        queue: queue.into(),
        passive: true,
        ..queue::Declare::default()
    };
    client.send(1, ask)
}
