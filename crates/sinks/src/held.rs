//! Claims of a session by task, and the pumps of each.
//!
//! A task that is lost may be claimed again before its pumps have ended. Claims are numbered, so that news of
//! an earlier one are told from those of today.

use std::collections::HashMap;

use tokio::sync::watch;

use crate::claim::Claim;
use crate::pump::Order;

/// Name of a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holding {
    pub(crate) task: String,
    /// Number of the claim in its session.
    pub(crate) number: u64,
}

/// A task of this worker, and its pumps.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) claim: Claim,
    pub(crate) orders: watch::Sender<Order>,
    /// Pumps that have not ended.
    pub(crate) pumps: usize,
    pub(crate) is_finishing: bool,
}

/// Claims of a session.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    by_task: HashMap<String, (u64, Held)>,
    last: u64,
}

impl Holdings {
    /// Names the next claim of a task.
    pub(crate) fn name(&mut self, task: &str) -> Holding {
        self.last += 1;
        Holding {
            task: task.to_owned(),
            number: self.last,
        }
    }

    pub(crate) fn insert(&mut self, of: Holding, held: Held) {
        self.by_task.insert(of.task, (of.number, held));
    }

    /// Returns a claim, unless it has ended.
    pub(crate) fn get_mut(&mut self, of: &Holding) -> Option<&mut Held> {
        let (number, held) = self.by_task.get_mut(&of.task)?;
        (*number == of.number).then_some(held)
    }

    /// Ends a claim. `None` if it has ended already.
    pub(crate) fn remove(&mut self, of: &Holding) -> Option<Held> {
        self.get_mut(of)?;
        self.lose(&of.task)
    }

    /// Ends the claim of a task, whichever it is. Its pumps end with the sender of their orders.
    pub(crate) fn lose(&mut self, task: &str) -> Option<Held> {
        self.by_task.remove(task).map(|(_, held)| held)
    }

    /// Returns the claim of a task, whichever it is.
    pub(crate) fn of_task(&mut self, task: &str) -> Option<&mut Held> {
        self.by_task.get_mut(task).map(|(_, held)| held)
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Held> {
        self.by_task.values_mut().map(|(_, held)| held)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_task.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_claim_of_a_task_is_not_the_one_of_today() {
        let mut holdings = Holdings::default();
        let mut claim = |epoch| {
            let (orders, _) = watch::channel(Order::Run);
            let claim = Claim {
                epoch,
                ..Claim::of_place("t", 0)
            };
            let of = holdings.name(&claim.task);
            let held = Held {
                claim,
                orders,
                pumps: 1,
                is_finishing: false,
            };
            holdings.insert(of.clone(), held);
            of
        };
        let (earlier, today) = (claim(1), claim(2));
        assert!(holdings.get_mut(&earlier).is_none());
        assert!(holdings.remove(&earlier).is_none());
        assert_eq!(holdings.get_mut(&today).unwrap().claim.epoch, 2);
        assert_eq!(holdings.lose("t/0").unwrap().claim.epoch, 2);
        assert!(holdings.is_empty());
    }
}
