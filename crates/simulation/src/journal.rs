//! Journal of the simulated broker: reads of the disk are done before the call returns.
//!
//! The real journal reads the disk on a pool of threads, whose results arrive in any order. Here one thread
//! does it while the caller waits, so that a seed has one order of events.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use stafett_journal::{
    Append, Bounds, DiskJournal, DiskSpace, Journal, OpenTransaction, OwnerEpoch, ProducerStatus,
    ReadRequest, ReadTicket, RequestId, StateItem, StateSpace, StateUnreadable, Ticket, TimeQuery,
    TimeTicket, Watch,
};
use stafett_model::{Epoch, Lock, LogId};

type Job = Box<dyn FnOnce() -> Done + Send>;

enum Done {
    Read(ReadTicket),
    Time(TimeTicket),
}

/// A journal whose reads are synchronous.
#[derive(Debug)]
pub struct ReadsAtOnce {
    journal: Arc<DiskJournal>,
    reader: Lock<Reader>,
}

#[derive(Debug)]
struct Reader {
    jobs: SyncSender<Job>,
    done: Receiver<Done>,
}

impl ReadsAtOnce {
    pub fn new(journal: Arc<DiskJournal>) -> Self {
        let (jobs, todo) = sync_channel::<Job>(1);
        let (send, done) = sync_channel(1);
        std::thread::spawn(move || {
            while let Ok(job) = todo.recv() {
                if send.send(job()).is_err() {
                    break;
                }
            }
        });
        Self {
            journal,
            reader: Lock::new(Reader { jobs, done }),
        }
    }

    fn elsewhere(&self, job: Job) -> Option<Done> {
        let reader = self.reader.lock();
        reader.jobs.send(job).ok()?;
        reader.done.recv().ok()
    }
}

impl Journal for ReadsAtOnce {
    fn epoch(&self) -> Epoch {
        self.journal.epoch()
    }

    fn allocate(&self, count: u32) -> LogId {
        self.journal.allocate(count)
    }

    fn append(&self, appends: Vec<Append>) -> Ticket {
        self.journal.append(appends)
    }

    fn knows(&self, request: RequestId) -> bool {
        self.journal.knows(request)
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.journal.bounds(log)
    }

    fn filled(&self) -> Vec<(LogId, Bounds)> {
        self.journal.filled()
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        self.journal.owner(log)
    }

    fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.journal.open_transactions()
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        self.journal.producers(log)
    }

    fn read(&self, request: ReadRequest) -> ReadTicket {
        let journal = Arc::clone(&self.journal);
        match self.elsewhere(Box::new(move || Done::Read(journal.read(request)))) {
            Some(Done::Read(ticket)) => ticket,
            Some(Done::Time(_)) | None => ReadTicket::Ready(Vec::new()),
        }
    }

    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        let journal = Arc::clone(&self.journal);
        match self.elsewhere(Box::new(move || Done::Time(journal.find_time(log, query)))) {
            Some(Done::Time(ticket)) => ticket,
            Some(Done::Read(_)) | None => TimeTicket::Ready(Ok(None)),
        }
    }

    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        self.journal.watch_log(watch, log, token)
    }

    fn space(&self) -> DiskSpace {
        self.journal.space()
    }

    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        self.journal.load_state(space, visit)
    }

    fn failure(&self) -> Option<String> {
        self.journal.failure()
    }

    fn close(&self) {
        self.journal.close();
    }
}
