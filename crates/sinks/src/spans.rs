//! Spans of time in which two stores are compared, within bounds: each store gives the sums of a limited
//! number of spans, few of those that differ are divided, and few rows are listed.

use std::collections::BTreeMap;

use crate::columns::Column;
use crate::target::TargetError;

/// Rows of a span below which it is not divided any more.
const ROWS_MAX: u64 = 1000;
/// Rows of all spans that are listed, at most, of each store.
const LISTED_MAX: u64 = 10_000;
/// Spans that are divided at a time: each has rows to list, so that more of them would not be listed either.
const DIVIDED_MAX: usize = 1000;
/// Spans with rows, at most, of each store: hours since 1970.
pub(crate) const SPANS_MAX: usize = 500_000;

/// A span of time, in µs since 1970, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Rows of which sums or texts are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) columns: Vec<Column>,
    pub(crate) by: Column,
    /// In their order, and apart.
    pub(crate) spans: Vec<Span>,
    /// True if rows without a time are wanted as well.
    pub(crate) with_timeless: bool,
}

impl Wanted {
    pub(crate) fn has(&self, at: Option<i64>) -> bool {
        match at {
            Some(at) => {
                let place = self.spans.partition_point(|span| span.to <= at);
                self.spans.get(place).is_some_and(|span| span.from <= at)
            }
            None => self.with_timeless,
        }
    }
}

/// Count and sum of hashes, by the begin of a span; `None` for rows without a time.
pub(crate) type Sums = BTreeMap<Option<i64>, (u64, u128)>;

/// Adds rows to a span. An error if that is one more than `spans_max`.
pub(crate) fn add(
    sums: &mut Sums,
    begin: Option<i64>,
    (rows, hashes): (u64, u128),
    spans_max: usize,
) -> Result<(), TargetError> {
    let (count, sum) = sums.entry(begin).or_default();
    *count += rows;
    *sum += hashes;
    if sums.len() > spans_max {
        let why = format!(
            "there are rows in more than {spans_max} hours: compare a part of the time, with --from and --to"
        );
        return Err(TargetError::Stop(why));
    }
    Ok(())
}

/// Adds a span behind others, to the last one if they touch.
fn join(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.to >= span.from => last.to = last.to.max(span.to),
        _ => spans.push(span),
    }
}

/// Spans whose rows are listed.
pub(crate) struct Listed {
    wanted: Wanted,
    /// Rows for which there is room.
    room: u64,
    /// Spans for which there is none.
    pub(crate) passed: u64,
}

impl Listed {
    pub(crate) fn of(wanted: &Wanted) -> Self {
        Self {
            wanted: Wanted {
                spans: Vec::new(),
                with_timeless: false,
                ..wanted.clone()
            },
            room: LISTED_MAX,
            passed: 0,
        }
    }

    /// Takes spans that differ, in their order, with their rows. Returns those that have to be divided.
    pub(crate) fn divide(
        &mut self,
        different: Vec<(Option<i64>, u64)>,
        bounds: Span,
        width: i64,
        is_last: bool,
    ) -> Vec<Span> {
        let (mut divided, mut count) = (Vec::new(), 0);
        for (begin, rows) in different {
            let span = begin.map(|begin| Span {
                from: begin.max(bounds.from),
                to: begin.saturating_add(width).min(bounds.to),
            });
            if let Some(span) = span.filter(|_| rows > ROWS_MAX && !is_last) {
                count += 1;
                if count > DIVIDED_MAX {
                    self.passed += 1;
                } else {
                    join(&mut divided, span);
                }
                continue;
            }
            let Some(room) = self.room.checked_sub(rows) else {
                self.passed += 1;
                continue;
            };
            self.room = room;
            match span {
                Some(span) => self.wanted.spans.push(span),
                None => self.wanted.with_timeless = true,
            }
        }
        divided
    }

    /// Returns the rows that are listed.
    pub(crate) fn wanted(mut self) -> Wanted {
        let mut spans = std::mem::take(&mut self.wanted.spans);
        spans.sort_unstable_by_key(|span| span.from);
        for span in spans {
            join(&mut self.wanted.spans, span);
        }
        self.wanted
    }
}

/// Returns the spans in which sums differ, with the higher count.
pub(crate) fn different([one, other]: &[Sums; 2]) -> Vec<(Option<i64>, u64)> {
    let mut begins: Vec<_> = one.keys().chain(other.keys()).copied().collect();
    begins.sort_unstable();
    begins.dedup();
    let counted = |sums: &Sums, begin| sums.get(&begin).copied().unwrap_or_default();
    let pairs = begins
        .into_iter()
        .map(|begin| (begin, counted(one, begin), counted(other, begin)));
    let differing = pairs.filter(|(_, one, other)| one != other);
    differing
        .map(|(begin, one, other)| (begin, one.0.max(other.0)))
        .collect()
}

pub(crate) fn equal([one, other]: &[Sums; 2]) -> u64 {
    one.iter()
        .filter(|(begin, sums)| other.get(*begin) == Some(*sums))
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Kind, Origin};

    #[test]
    fn spans_differ_by_count_or_by_hash() {
        let sums = |all: &[(Option<i64>, u64, u128)]| {
            all.iter()
                .map(|(begin, count, sum)| (*begin, (*count, *sum)))
                .collect::<Sums>()
        };
        let pair = [
            sums(&[(None, 1, 5), (Some(0), 2, 7), (Some(9), 1, 1)]),
            sums(&[(None, 1, 5), (Some(0), 2, 8), (Some(-9), 3, 1)]),
        ];
        assert_eq!(different(&pair), [(Some(-9), 3), (Some(0), 2), (Some(9), 1)]);
        assert_eq!(equal(&pair), 1);
    }

    #[expect(clippy::unnecessary_wraps, reason = "begins of spans may be none")]
    fn hour(number: i64) -> Option<i64> {
        Some(number * HOUR)
    }

    const HOUR: i64 = 3_600_000_000;
    const ALL: Span = Span {
        from: i64::MIN,
        to: i64::MAX,
    };

    fn listed() -> Listed {
        Listed::of(&Wanted {
            columns: Vec::new(),
            by: Column::new("at", Kind::Timestamptz, Origin::Rest),
            spans: vec![ALL],
            with_timeless: true,
        })
    }

    #[test]
    fn neighbours_are_one_span_and_few_are_divided() {
        let mut it = listed();
        let all = (0..5000).map(|number| (hour(number), 2000)).collect();
        let divided = it.divide(all, ALL, HOUR, false);
        let first = Span {
            from: 0,
            to: 1000 * HOUR,
        };
        assert_eq!((divided, it.passed), (vec![first], 4000));
        let mut it = listed();
        let all = (0..5000).map(|number| (hour(2 * number), 2000)).collect();
        assert_eq!(it.divide(all, ALL, HOUR, false).len(), DIVIDED_MAX);
        // Spans of several divisions, in any order: rows are listed until there is no more room.
        let mut it = listed();
        let some = vec![(None, 1), (hour(4), 1000), (hour(5), 900), (hour(7), 1500)];
        assert_eq!(it.divide(some, ALL, HOUR, false).len(), 1);
        let some = vec![(hour(1), 1000), (hour(2), 8000)];
        assert_eq!(it.divide(some, ALL, HOUR, true), []);
        assert_eq!(it.passed, 1);
        let wanted = it.wanted();
        let span = |from: i64, to: i64| Span {
            from: from * HOUR,
            to: to * HOUR,
        };
        assert_eq!(wanted.spans, [span(1, 2), span(4, 6)]);
        for (at, expected) in [
            (0, false),
            (1, true),
            (2, false),
            (4, true),
            (5, true),
            (6, false),
        ] {
            assert_eq!(wanted.has(hour(at)), expected, "{at}");
            assert_eq!(
                wanted.has(Some(at * HOUR - 1)),
                [2, 5, 6].contains(&at),
                "before {at}"
            );
        }
        assert!(wanted.has(None));
    }

    #[test]
    fn rows_of_too_many_spans_are_refused() {
        let mut sums = Sums::new();
        for number in [0, 1, 1, 2] {
            add(&mut sums, hour(number), (1, 5), 3).unwrap();
        }
        assert_eq!(sums.get(&hour(1)), Some(&(2, 10)));
        let why = add(&mut sums, hour(3), (1, 5), 3).unwrap_err().to_string();
        assert!(
            why.contains("more than 3 hours: compare a part of the time"),
            "{why}"
        );
    }
}
