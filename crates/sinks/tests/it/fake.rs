//! A target in memory, against which the suite itself is tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use stafett_model::Lock;
use stafett_sinks::definition::Definition;
use stafett_sinks::rows::Cell;
use stafett_sinks::target::{Opened, Part, Place, Promise, Start, Steps, Target, TargetError};
use uuid::Uuid;

use crate::suite::{self, Store};

#[derive(Debug, Default, Clone)]
struct Table {
    rows: Vec<u64>,
    next: u64,
    epoch: u64,
    topic: Option<Uuid>,
}

type Tables = Arc<Lock<BTreeMap<Place, Table>>>;

struct Fake {
    definition: Definition,
    tables: Tables,
}

struct FakeTarget {
    tables: Tables,
    hook: Arc<dyn Fn() -> Result<(), TargetError> + Send + Sync>,
}

#[async_trait]
impl Store for Fake {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn target(&self, steps: Steps) -> Box<dyn Target> {
        Box::new(FakeTarget {
            tables: Arc::clone(&self.tables),
            hook: Arc::new(move || steps.reach("step")),
        })
    }

    async fn rows(&self, place: &Place) -> Vec<u64> {
        self.tables
            .lock()
            .get(place)
            .map(|table| table.rows.clone())
            .unwrap_or_default()
    }

    fn refuses(&self) -> bool {
        true
    }
}

#[async_trait]
impl Target for FakeTarget {
    async fn open(&mut self, place: &Place, start: Start) -> Result<Opened, TargetError> {
        let opened = {
            let mut tables = self.tables.lock();
            let table = tables.entry(place.clone()).or_insert_with(|| Table {
                next: start.next,
                ..Table::default()
            });
            if table.topic.is_some() && start.topic.is_some() && table.topic != start.topic {
                return Err(TargetError::MadeAgain(place.clone()));
            }
            table.topic = start.topic.or(table.topic);
            table.epoch += 1;
            Opened {
                next: table.next,
                epoch: table.epoch,
                begun: None,
                topic: table.topic,
            }
        };
        (self.hook)()?;
        Ok(opened)
    }

    async fn write(&mut self, part: &Part<'_>) -> Result<(), TargetError> {
        (self.hook)()?;
        let mut numbers = Vec::new();
        for (_, cells) in part.rows.iter() {
            match cells.first() {
                Some(Cell::Integer(n)) if *n >= 1000 => {
                    return Err(TargetError::Poison {
                        class: "unlucky".to_owned(),
                        text: n.to_string(),
                    });
                }
                Some(Cell::Integer(n)) => numbers.push(u64::try_from(*n).unwrap()),
                other => panic!("{other:?}"),
            }
        }
        {
            let mut tables = self.tables.lock();
            let table = tables.get_mut(part.place).unwrap();
            if table.epoch != part.epoch || table.next != part.from {
                return Err(TargetError::Fenced(part.place.clone()));
            }
            table.rows.extend(numbers);
            table.next = part.next;
        }
        (self.hook)()
    }

    async fn positions(&mut self) -> Result<Vec<(Place, u64)>, TargetError> {
        let tables = self.tables.lock();
        Ok(tables
            .iter()
            .map(|(place, table)| (place.clone(), table.next))
            .collect())
    }

    async fn set_position(&mut self, place: &Place, start: Start) -> Result<(), TargetError> {
        let mut tables = self.tables.lock();
        let table = tables.entry(place.clone()).or_default();
        table.epoch += 1;
        (table.next, table.topic) = (start.next, start.topic);
        Ok(())
    }

    async fn set_position_since(
        &mut self,
        place: &Place,
        epoch: u64,
        start: Start,
    ) -> Result<(), TargetError> {
        let mut tables = self.tables.lock();
        let table = tables.get_mut(place).unwrap();
        if table.epoch != epoch {
            return Err(TargetError::Fenced(place.clone()));
        }
        (table.next, table.topic) = (start.next, start.topic);
        Ok(())
    }

    async fn prepare(&mut self, _: bool) -> Result<Vec<String>, TargetError> {
        Ok(Vec::new())
    }

    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }
}

#[tokio::test]
async fn a_fake_target_passes_the_suite() {
    let text = "[sink.s]\nfrom = \"events\"\nto = \"files\"\npath = \"x\"\nformat = \"csv\"\n\
         [sink.s.columns]\nn = { type = \"bigint\" }\ntext = { type = \"text\" }\n";
    let definition = Definition::parse(text).unwrap().remove(0);
    let tables = Tables::default();
    suite::all(&Fake { definition, tables }).await;
}
