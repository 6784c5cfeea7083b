//! A journal with ranges that can be made unreadable, and that refuses appends and fails on demand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use stafett_journal::{
    Append, Bounds, DiskSpace, Journal, MemoryJournal, OpenTransaction, OwnerEpoch, Precondition,
    ProducerStatus, ReadError, ReadRequest, ReadTicket, RequestId, StateItem, StateSpace, StateUnreadable,
    Ticket, TimeQuery, TimeTicket, Watch,
};
use stafett_model::{Epoch, LogId, Offset};

#[derive(Debug, Default)]
pub(crate) struct Torn {
    whole: Arc<MemoryJournal>,
    hole: Mutex<Option<(LogId, Offset, Offset)>>,
    refuses: AtomicBool,
    has_failed: AtomicBool,
}

impl Torn {
    /// Reopens as after a killed process.
    pub(crate) fn reopen(&self) -> Self {
        Self {
            whole: Arc::new(self.whole.reopen()),
            ..Self::default()
        }
    }

    /// Refuses all appends, or none any more.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Fails for good, at the next look.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Makes a range unreadable from now on.
    pub(crate) fn tear(&self, log: LogId, from: Offset, to: Offset) {
        *self.hole.lock().unwrap() = Some((log, from, to));
    }
}

impl Journal for Torn {
    fn epoch(&self) -> Epoch {
        self.whole.epoch()
    }

    fn allocate(&self, count: u32) -> LogId {
        self.whole.allocate(count)
    }

    fn append(&self, mut appends: Vec<Append>) -> Ticket {
        if self.refuses.load(Ordering::Relaxed) {
            let (log, offset) = (LogId(u64::MAX), Offset::ZERO);
            let no_such_log = Precondition::NextOffset { log, offset };
            for append in &mut appends {
                append.require.push(no_such_log);
            }
        }
        self.whole.append(appends)
    }

    fn knows(&self, request: RequestId) -> bool {
        self.whole.knows(request)
    }

    fn bounds(&self, log: LogId) -> Option<Bounds> {
        self.whole.bounds(log)
    }

    fn filled(&self) -> Vec<(LogId, Bounds)> {
        self.whole.filled()
    }

    fn owner(&self, log: LogId) -> Option<OwnerEpoch> {
        self.whole.owner(log)
    }

    fn open_transactions(&self) -> Vec<OpenTransaction> {
        self.whole.open_transactions()
    }

    fn producers(&self, log: LogId) -> Option<Vec<ProducerStatus>> {
        self.whole.producers(log)
    }

    fn read(&self, mut request: ReadRequest) -> ReadTicket {
        let hole = *self.hole.lock().unwrap();
        let torn = request.logs.iter_mut().find_map(|wanted| {
            let (log, from, to) = hole.filter(|(log, _, _)| *log == wanted.log)?;
            if wanted.offset < from {
                // Batch by batch, so that the read ends before the range.
                wanted.bytes_max = 1;
            }
            (from <= wanted.offset && wanted.offset < to).then_some(ReadError::Damaged { log, from, to })
        });
        match torn {
            Some(error) => ReadTicket::Ready(vec![Err(error)]),
            None => self.whole.read(request),
        }
    }

    fn find_time(&self, log: LogId, query: TimeQuery) -> TimeTicket {
        self.whole.find_time(log, query)
    }

    fn watch_log(&self, watch: &Watch, log: LogId, token: u32) -> bool {
        self.whole.watch_log(watch, log, token)
    }

    fn space(&self) -> DiskSpace {
        self.whole.space()
    }

    fn load_state(
        &self,
        space: StateSpace,
        visit: &mut dyn FnMut(StateItem<'_>),
    ) -> Result<(), StateUnreadable> {
        self.whole.load_state(space, visit)
    }

    fn failure(&self) -> Option<String> {
        let has_failed = self.has_failed.load(Ordering::Relaxed);
        has_failed
            .then(|| "a sync failed".to_owned())
            .or_else(|| self.whole.failure())
    }

    fn close(&self) {
        self.whole.close();
    }
}
