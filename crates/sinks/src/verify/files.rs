//! A roll-up computed from files of its records.

use std::sync::Arc;
use std::thread::available_parallelism;

use stafett_model::{Headers, Offset, StoredRecord};
use tokio::task::JoinSet;

use super::VerifyError;
use crate::columns::Column;
use crate::convert::{Converted, Converter, write_json};
use crate::definition::{Definition, Format, TargetSpec};
use crate::rollup::{Groups, Leaves, Rollup};
use crate::scan::columns;
use crate::target::files::{Counting, Covered, Files};
use crate::target::postgres::Summed;
use crate::target::{Place, Steps, TargetError};

/// Sums up the rows of files, which have to be of the same records as the figures of some places. Returns
/// their number.
pub(super) async fn fold_files(
    files: &Definition,
    sink: &Definition,
    rollup: &Arc<Rollup>,
    summed: Option<&[Summed]>,
    groups: &mut Groups,
) -> Result<u64, VerifyError> {
    let TargetSpec::Files(spec) = &files.target else {
        return Err(VerifyError::NoFiles(files.name.clone()));
    };
    let all = columns(files).map_err(|_| VerifyError::NoFiles(files.name.clone()))?;
    // Without steps, rows are summed up as they are.
    let fields = rollup.fields().filter(|_| sink.steps.is_empty());
    let is_read = |column: &&Column| match &fields {
        Some(fields) if spec.format == Format::Parquet => fields.contains(&&*column.name),
        _ => true,
    };
    let read: Vec<Column> = all.iter().filter(is_read).cloned().collect();
    let mut target = Files::new(&files.name, spec, &read, || 0, Steps::default());
    let found = target.counting().await?;
    if let Some(summed) = summed {
        check_all(summed, &found.places)?;
    }
    if fields.is_some() {
        fold_rows(&mut target, found.files, &read, rollup, groups).await
    } else {
        fold_records(&mut target, found.files, (files, sink), rollup, groups).await
    }
}

/// Sums up rows as they are, on all cores.
async fn fold_rows(
    target: &mut Files,
    files: Vec<Counting>,
    columns: &[Column],
    rollup: &Arc<Rollup>,
    groups: &mut Groups,
) -> Result<u64, VerifyError> {
    let sums = || Leaves::new(rollup, columns, groups.times());
    let cores = available_parallelism().map_or(1, usize::from);
    let mut idle: Vec<Leaves> = (0..cores.min(files.len())).map(|_| sums()).collect();
    let (mut at_work, mut records) = (JoinSet::new(), 0);
    for file in files {
        let mut leaves = match idle.pop() {
            Some(leaves) => leaves,
            None => joined(&mut at_work, &mut records).await?,
        };
        let found = target.found(&file).await?;
        at_work.spawn_blocking(move || {
            let mut count = 0;
            let read = found.read(|rows| {
                count += rows.len() as u64;
                leaves.add(rows)?;
                rows.clear();
                Ok(())
            });
            read.map(|_| (leaves, count))
        });
    }
    while !at_work.is_empty() {
        idle.push(joined(&mut at_work, &mut records).await?);
    }
    for leaves in idle {
        let sums = leaves.finish().and_then(|sums| groups.merge(rollup, sums));
        sums.map_err(TargetError::Stop)?;
    }
    Ok(records)
}

type Work = JoinSet<Result<(Leaves, u64), TargetError>>;

/// Returns the sums of a file that was read, with those before, and counts its rows.
async fn joined(at_work: &mut Work, records: &mut u64) -> Result<Leaves, TargetError> {
    let ended = || TargetError::Stop("a file was not read to its end".to_owned());
    let result = at_work.join_next().await.ok_or_else(ended)?;
    let (leaves, count) = result.map_err(|_| ended())??;
    *records += count;
    Ok(leaves)
}

/// Sums up rows as records that pass through the steps of a sink, one after the other.
async fn fold_records(
    target: &mut Files,
    all: Vec<Counting>,
    (files, sink): (&Definition, &Definition),
    rollup: &Rollup,
    groups: &mut Groups,
) -> Result<u64, VerifyError> {
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let place = Place {
        topic: files.name.clone(),
        partition: 0,
    };
    let mut records = 0;
    for file in all {
        let rows = target.rows_of(&file).await?;
        for (_, cells) in rows.all().iter() {
            let mut value = Vec::new();
            write_json(&mut value, &files.columns, &rows, cells);
            let record = StoredRecord {
                offset: Offset(records),
                timestamp: -1,
                key: None,
                value: Some(value.into()),
                headers: Headers::default(),
            };
            records += 1;
            while converter.fold(rollup, &place, &record, groups) == Ok(Converted::Waits) {
                converter.fetch(&place, [&record].into_iter()).await?;
            }
        }
    }
    Ok(records)
}

/// Checks that files have the records of all places that were summed up, and of no other place.
fn check_all(summed: &[Summed], covered: &[Covered]) -> Result<(), VerifyError> {
    for of_place in summed {
        check(of_place, covered.iter().find(|it| it.place == of_place.place))?;
    }
    let is_other = |it: &&Covered| it.first < it.next && !summed.iter().any(|of| of.place == it.place);
    match covered.iter().find(is_other) {
        None => Ok(()),
        Some(other) => Err(VerifyError::Uncertain {
            place: other.place.clone(),
            why: "the files have records of it, and the figures have none",
        }),
    }
}

/// Checks that the files of a place have the records that were summed up, and no others.
fn check(summed: &Summed, covered: Option<&Covered>) -> Result<(), VerifyError> {
    let place = &summed.place;
    let uncertain = |why| VerifyError::Uncertain {
        place: place.clone(),
        why,
    };
    let Some(covered) = covered else {
        return match summed.first {
            None => Ok(()),
            Some(_) => Err(uncertain("there are no files of it")),
        };
    };
    if covered.next != summed.next {
        return Err(uncertain("the files are not as far as the figures"));
    }
    if covered.topic != summed.topic && covered.topic.is_some() && summed.topic.is_some() {
        return Err(uncertain("the files are those of another topic of that name"));
    }
    let first = match summed.first {
        Some(first) => first,
        None if covered.first == covered.next => return Ok(()),
        None => {
            return Err(uncertain(
                "stafett_flushes has no line of it, and the files have records",
            ));
        }
    };
    if covered.first != first {
        return Err(VerifyError::Begins {
            place: place.clone(),
            files: covered.first,
            figures: first,
        });
    }
    if !covered.is_whole {
        return Err(uncertain("the files leave out records, or have some twice"));
    }
    // Without ids of topics, lines of flushes are never certain.
    if summed.topic.is_some() && !summed.is_whole {
        let why = "lines of stafett_flushes are missing, or are those of another topic of that name";
        return Err(uncertain(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::rows::Rows;
    use crate::target::{Part, Start, Target};

    fn place() -> Place {
        Place {
            topic: "log".to_owned(),
            partition: 0,
        }
    }

    fn covered(first: u64, next: u64) -> Covered {
        Covered {
            place: place(),
            first,
            next,
            topic: Some(Uuid::from_u128(1)),
            is_whole: true,
        }
    }

    #[test]
    fn files_begin_where_the_figures_do_and_end_there() {
        let summed = Summed {
            place: place(),
            first: Some(3),
            next: 9,
            topic: Some(Uuid::from_u128(1)),
            is_whole: true,
        };
        let said = |covered: Covered| check(&summed, Some(&covered)).map_err(|why| why.to_string());
        assert_eq!(said(covered(3, 9)), Ok(()));
        let nameless = Covered {
            topic: None,
            ..covered(3, 9)
        };
        assert_eq!(said(nameless), Ok(()));
        for (other, why) in [
            (
                covered(5, 9),
                "the files begin at the record 5, and the figures at 3",
            ),
            (
                covered(0, 9),
                "the files begin at the record 0, and the figures at 3",
            ),
            (covered(3, 8), "the files are not as far as the figures"),
            (
                Covered {
                    is_whole: false,
                    ..covered(3, 9)
                },
                "the files leave out records, or have some twice",
            ),
            (
                Covered {
                    topic: Some(Uuid::from_u128(2)),
                    ..covered(3, 9)
                },
                "the files are those of another topic of that name",
            ),
        ] {
            let found = said(other).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
        let missing = check(&summed, None).unwrap_err().to_string();
        assert!(missing.contains("there are no files of it"), "{missing}");
        let none = Summed {
            first: None,
            ..summed
        };
        assert!(check(&none, None).is_ok() && check(&none, Some(&covered(9, 9))).is_ok());
        assert!(check(&none, Some(&covered(3, 9))).is_err());
        assert!(check_all(&[], &[covered(9, 9)]).is_ok() && check_all(&[], &[covered(3, 9)]).is_err());
    }

    #[tokio::test]
    async fn positions_that_were_set_are_gaps_of_files() {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[sink.s]\nfrom = \"log\"\nto = \"files\"\npath = '{}'\n",
            folder.path().display()
        );
        let sink = Definition::parse(&text).unwrap().remove(0);
        let TargetSpec::Files(spec) = &sink.target else {
            panic!("files");
        };
        let mut files = Files::new("s", spec, &sink.columns, || 0, Steps::default());
        files.prepare(true).await.unwrap();
        let rows = Rows::new(sink.columns.len());
        for (set, flush, expected) in [
            (None, 4..7, (4, 7, true)),
            (Some(7), 7..9, (4, 9, true)),
            // Written again from the begin of the files.
            (Some(4), 4..9, (4, 9, true)),
            (Some(12), 12..13, (4, 13, false)),
            (Some(2), 2..5, (2, 5, true)),
        ] {
            if let Some(set) = set {
                files.set_position(&place(), Start::at(set)).await.unwrap();
            }
            files.open(&place(), Start::at(flush.start)).await.unwrap();
            let part = Part {
                place: &place(),
                epoch: 0,
                from: flush.start,
                next: flush.end,
                batch: (flush.start, flush.end),
                rows: rows.all(),
                records: 0,
            };
            files.write(&part).await.unwrap();
            let found = files.counting().await.unwrap().places.remove(0);
            assert_eq!((found.first, found.next, found.is_whole), expected, "{set:?}");
        }
    }
}
