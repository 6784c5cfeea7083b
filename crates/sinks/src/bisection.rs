//! Search for the rows that a target refuses: a refused batch is halved, halves that are taken count at once.
//!
//! Pure. Each part is written with the position behind it, so a crash in the middle repeats nothing that was
//! stored, and forgets nothing.

use std::ops::Range;

/// Rows that are still to be written, in order.
#[derive(Debug)]
pub struct Bisection {
    rows: usize,
    /// The next range is the last one.
    ahead: Vec<Range<usize>>,
    tries: u64,
}

/// Answer to a refused part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Its halves come next.
    Halved,
    /// It is this row.
    Culprit(usize),
}

impl Bisection {
    pub fn new(rows: usize) -> Self {
        Self {
            rows,
            ahead: Vec::from([Range { start: 0, end: rows }]),
            tries: 0,
        }
    }

    /// Returns the part to write. The position behind it is that of the batch if it ends at its last row.
    pub fn part(&self) -> Option<Range<usize>> {
        self.ahead.last().cloned()
    }

    pub fn is_last(&self) -> bool {
        self.ahead.len() <= 1
    }

    /// The part is stored.
    pub fn taken(&mut self) {
        self.tries += 1;
        self.ahead.pop();
    }

    /// The part was refused because of one of its rows. Behind a culprit an empty part stays, so that the
    /// position passes it.
    pub fn refused(&mut self) -> Refused {
        self.tries += 1;
        let Some(part) = self.ahead.pop() else {
            return Refused::Halved;
        };
        if part.len() <= 1 {
            if self.ahead.is_empty() {
                self.ahead.push(self.rows..self.rows);
            }
            return Refused::Culprit(part.start);
        }
        let middle = part.start + part.len() / 2;
        self.ahead.push(middle..part.end);
        self.ahead.push(part.start..middle);
        Refused::Halved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes rows into a store that refuses parts with certain ones. Returns the stored rows, the culprits,
    /// and the number of tries.
    fn run(rows: usize, bad: &[usize]) -> (Vec<usize>, Vec<usize>, u64) {
        let mut search = Bisection::new(rows);
        let (mut stored, mut culprits) = (Vec::new(), Vec::new());
        while let Some(part) = search.part() {
            if bad.iter().any(|row| part.contains(row)) {
                if let Refused::Culprit(row) = search.refused() {
                    culprits.push(row);
                }
            } else {
                stored.extend(part);
                search.taken();
            }
        }
        (stored, culprits, search.tries)
    }

    #[test]
    fn every_culprit_is_found_and_every_other_row_stored_in_order() {
        for rows in 1..20 {
            for mask in 0_u32..1 << rows.min(10) {
                let bad: Vec<usize> = (0..rows)
                    .filter(|row| row % 10 < 10 && mask >> (row % 10) & 1 == 1)
                    .collect();
                let (stored, culprits, _) = run(rows, &bad);
                let good: Vec<usize> = (0..rows).filter(|row| !bad.contains(row)).collect();
                assert_eq!((stored, culprits), (good, bad), "{rows} {mask:b}");
            }
        }
    }

    #[test]
    fn one_culprit_in_many_costs_two_tries_per_halving() {
        let (stored, culprits, tries) = run(1 << 15, &[12_345]);
        assert_eq!((stored.len(), culprits), ((1 << 15) - 1, vec![12_345]));
        assert!(tries <= 2 * 15 + 1, "{tries} tries");
    }

    #[test]
    fn a_batch_without_rows_is_one_part() {
        assert_eq!(run(0, &[]), (Vec::new(), Vec::new(), 1));
    }
}
