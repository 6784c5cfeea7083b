//! Faults of the process, its disk and its memory, drawn by xorshift.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use super::load::Load;
use super::{PATIENCE, half};
use crate::broker::Broker;
use crate::peer;

/// Time limit of large requests while others have announced more than the memory: a half request is dropped
/// within 2 s. A busy machine gets its usual time on top.
const HALF_LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Freeze,
    FreezeAndKill,
    Stop,
    FullDisk,
    FailedSync,
    HalfRequests,
}

const FAULTS: [Fault; 7] = [
    Fault::Kill,
    Fault::Freeze,
    Fault::FreezeAndKill,
    Fault::Stop,
    Fault::FullDisk,
    Fault::FailedSync,
    Fault::HalfRequests,
];

pub(super) struct Faults {
    state: u64,
    /// Number of faults of each kind.
    counts: BTreeMap<Fault, u32>,
    can_fail_syncs: bool,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.counts)
    }
}

impl Faults {
    pub(super) fn from_seed() -> Self {
        let clock = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.unwrap().subsec_nanos().into()
        };
        let seed: u64 = env::var("STAFETT_TEST_SEED").map_or_else(|_| clock(), |text| text.parse().unwrap());
        Self {
            state: seed | 1,
            counts: BTreeMap::new(),
            can_fail_syncs: true,
        }
    }

    /// Returns the seed of the next faults.
    pub(super) fn state(&self) -> u64 {
        self.state
    }

    fn draw(&mut self, max: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % max
    }

    fn pause(&mut self, most: Duration) {
        let most = u64::try_from(most.as_micros()).unwrap();
        thread::sleep(Duration::from_micros(self.draw(most)));
    }

    /// Injects faults until `time` is over, kills most often. Without any time, injects every kind once, in
    /// random order. Waits at the end until all clients have made progress.
    pub(super) fn strike_all(&mut self, broker: &mut Broker, load: &Load, time: Duration) {
        let begun = Instant::now();
        let mut left = if time.is_zero() {
            FAULTS.to_vec()
        } else {
            Vec::new()
        };
        while !left.is_empty() || begun.elapsed() < time {
            let fault = if left.is_empty() {
                let drawn = usize::try_from(self.draw(14)).unwrap();
                FAULTS.get(drawn).copied().unwrap_or(FAULTS[drawn % 3])
            } else {
                left.swap_remove(usize::try_from(self.draw(left.len() as u64)).unwrap())
            };
            load.await_total(self.draw(40));
            self.pause(Duration::from_millis(30));
            let struck = Instant::now();
            if self.strike(fault, broker, load) {
                *self.counts.entry(fault).or_default() += 1;
                println!("{fault:?} {:.1?}", struck.elapsed());
            }
        }
        load.await_progress(1, PATIENCE);
    }

    /// Injects the last fault of a round: the process is killed or stopped.
    pub(super) fn end(&mut self, broker: &mut Broker, load: &Load) {
        let fault = [Fault::Kill, Fault::Stop][usize::from(self.draw(2) == 0)];
        self.strike(fault, broker, load);
    }

    /// Injects a fault. Returns false if it is not possible here.
    fn strike(&mut self, fault: Fault, broker: &mut Broker, load: &Load) -> bool {
        match fault {
            Fault::Kill => load.death(|| broker.kill_and_restart()),
            Fault::Freeze => self.freeze(broker, true),
            Fault::FreezeAndKill => load.death(|| {
                self.freeze(broker, false);
                broker.kill_and_restart();
            }),
            Fault::Stop => {
                load.allow_refusals();
                broker.restart();
            }
            Fault::FullDisk => return self.fill_disk(broker, load),
            Fault::FailedSync => return self.fail_sync(broker, load),
            Fault::HalfRequests => self.send_halves(broker, load),
        }
        true
    }

    fn freeze(&mut self, broker: &Broker, and_go_on: bool) {
        let process = broker
            .pid()
            .and_then(|pid| Pid::from_raw(pid.cast_signed()))
            .unwrap();
        kill_process(process, Signal::STOP).unwrap();
        self.pause(Duration::from_millis(200));
        if and_go_on {
            kill_process(process, Signal::CONT).unwrap();
        }
    }

    /// Fills the disk, if it is a small one, and frees it again. The process may end in between.
    fn fill_disk(&mut self, broker: &mut Broker, load: &Load) -> bool {
        let Some(disk) = broker.disk() else { return false };
        load.allow_refusals();
        disk.fill();
        self.pause(Duration::from_millis(600));
        match self.draw(4) {
            0 => load.death(|| broker.kill_and_restart()),
            1 => broker.restart(),
            _ => {}
        }
        self.pause(Duration::from_millis(200));
        broker.disk().unwrap().free();
        load.await_progress(1, PATIENCE);
        true
    }

    /// Lets a sync fail, if that is possible here. The process continues, restarts by itself, or is killed
    /// meanwhile.
    fn fail_sync(&mut self, broker: &mut Broker, load: &Load) -> bool {
        if !self.can_fail_syncs {
            return false;
        }
        load.allow_refusals();
        let mut outcome = Ok(());
        load.death(|| {
            outcome = broker.fail_a_sync();
            if outcome.is_err() {
                return;
            }
            if self.draw(3) == 0 {
                self.pause(Duration::from_millis(100));
                broker.kill_and_restart();
                return;
            }
            // A failed sync of a spare segment is retried; any other ends the broker's run.
            load.await_progress(3, PATIENCE);
        });
        if let Err(reason) = outcome {
            self.can_fail_syncs = false;
            peer::skip(
                &format!("strace cannot let a sync fail: {reason}"),
                "apt-get install strace",
            );
            return false;
        }
        load.await_progress(1, PATIENCE);
        true
    }

    /// Lets other connections announce more bytes than there is memory: large requests must still complete.
    fn send_halves(&mut self, broker: &mut Broker, load: &Load) {
        let usual = load.await_progress(3, PATIENCE);
        let halves = half::open(broker);
        load.await_progress(3, (HALF_LIMIT + 5 * usual).min(PATIENCE));
        if self.draw(2) == 0 {
            load.death(|| broker.kill_and_restart());
        }
        drop(halves);
    }
}
