//! Amounts that go from account to account: a transfer takes one from its account, and a deposit, which is a
//! record of its own, brings it to the other one.
//!
//! Each transfer before the positions has one deposit, and there is no other. A balance is the sum of the
//! deposits less that of the transfers, so the sum of all balances and of the deposits on their way is 0.

use std::collections::BTreeMap;

use bytes::Bytes;
use stafett_model::StoredRecord;
use stafett_topics::NewRecord;

use super::checks::Seen;
use super::{Changes, Facts, text};

pub(super) const INPUTS: [&str; 2] = ["bank.transfers", RESULTS];
pub(super) const RESULTS: &str = "bank.deposits";
const ACCOUNTS: u64 = 9;

/// Returns a transfer: its number, the amount, and the account that gets it.
pub(super) fn record(number: u64) -> NewRecord {
    let (from, to) = (number * 31 % ACCOUNTS, (number * 17 + 4) % ACCOUNTS);
    NewRecord {
        key: Some(format!("a{from}").into()),
        value: Some(format!("{number} {} a{to}", 1 + number % 9).into()),
        ..NewRecord::default()
    }
}

/// A transfer or a deposit.
struct Moved {
    number: String,
    account: Bytes,
    amount: i64,
    /// Account that gets the amount of a transfer.
    to: Option<String>,
}

impl Moved {
    fn read(record: &StoredRecord) -> Result<Self, String> {
        let value = text(record.value.as_deref().unwrap_or_default())?;
        let mut words = value.split(' ').map(str::to_owned);
        let (number, amount) = (words.next(), words.next());
        let (number, amount) = number.zip(amount).ok_or("a record is no transfer")?;
        Ok(Self {
            number,
            account: record.key.clone().unwrap_or_default(),
            amount: amount.parse().map_err(|_| "an amount is no number")?,
            to: words.next(),
        })
    }
}

pub(super) fn changes(input: usize, records: &[&StoredRecord]) -> (Changes, Facts) {
    let (mut changes, mut facts) = (Changes::default(), Facts::new());
    for moved in records.iter().filter_map(|record| Moved::read(record).ok()) {
        let Moved {
            number,
            account,
            amount,
            to,
        } = moved;
        let balance = changes.sums.entry(account).or_default();
        if input > 0 {
            *balance += amount;
            facts.push((format!("deposit {number}"), 1));
            continue;
        }
        *balance -= amount;
        changes.results.push(NewRecord {
            key: to.map(Bytes::from),
            value: Some(format!("{number} {amount}").into()),
            ..NewRecord::default()
        });
        facts.push((format!("transfer {number}"), 1));
    }
    (changes, facts)
}

/// Checks balances and deposits. Returns the facts that hold.
pub(super) fn check(seen: &Seen, deposits: &[StoredRecord]) -> Result<BTreeMap<String, u64>, String> {
    let (mut facts, mut balances) = (BTreeMap::new(), BTreeMap::<String, i64>::new());
    let mut sent = BTreeMap::new();
    let words = ["transfer", "deposit"];
    for ((input, word), records) in words.iter().enumerate().zip(&seen.done) {
        for record in records {
            let moved = Moved::read(record)?;
            let sign = if input == 0 { -1 } else { 1 };
            *balances.entry(text(&moved.account)?).or_default() += sign * moved.amount;
            if let Some(to) = moved.to {
                sent.insert(moved.number.clone(), (to, moved.amount));
            }
            if facts.insert(format!("{word} {}", moved.number), 1).is_some() {
                return Err(format!("{word} {} is there twice", moved.number));
            }
        }
    }
    if seen.sums != balances {
        return Err(format!(
            "balances are {:?}, and by the records before the positions {balances:?}",
            seen.sums
        ));
    }
    for record in deposits {
        let moved = Moved::read(record)?;
        let arrived = (text(&moved.account)?, moved.amount);
        if sent.remove(&moved.number) != Some(arrived) {
            return Err(format!("deposit {} has no transfer of its own", moved.number));
        }
    }
    if !sent.is_empty() {
        return Err(format!("transfers without a deposit: {sent:?}"));
    }
    Ok(facts)
}
