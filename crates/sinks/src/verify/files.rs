//! A roll-up computed from files of its records.

use stafett_model::{Headers, Offset, StoredRecord};

use super::VerifyError;
use crate::convert::{Converted, Converter, write_json};
use crate::definition::{Definition, TargetSpec};
use crate::rollup::{Groups, Rollup};
use crate::scan::columns;
use crate::target::files::{Covered, Files};
use crate::target::postgres::Summed;
use crate::target::{Place, Steps};

/// Sums up the rows of files, which have to be of the same records as the figures of some places. Returns
/// their number.
pub(super) async fn fold_files(
    files: &Definition,
    sink: &Definition,
    rollup: &Rollup,
    summed: Option<&[Summed]>,
    groups: &mut Groups,
) -> Result<u64, VerifyError> {
    let TargetSpec::Files(spec) = &files.target else {
        return Err(VerifyError::NoFiles(files.name.clone()));
    };
    columns(files).map_err(|_| VerifyError::NoFiles(files.name.clone()))?;
    let mut target = Files::new(&files.name, spec, &files.columns, || 0, Steps::default());
    let found = target.counting().await?;
    if let Some(summed) = summed {
        check_all(summed, &found.places)?;
    }
    let mut converter = Converter::new(sink.columns.clone(), sink.steps.clone(), sink.on_unknown);
    let place = Place {
        topic: files.name.clone(),
        partition: 0,
    };
    let mut records = 0;
    for file in found.files {
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
