//! The table of nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use tokio_postgres::{Error, Row, Transaction};

use super::line::{Connection, Line};
use super::{AddressError, nonce_of, tables, target, unsigned};
use crate::database::{DatabaseError, Nonce, Owner};
use crate::nodes::{Directory, Entry, Key, NodeFacts, Roll};

const ARE_THERE: &str =
    "SELECT to_regclass('stafett.node') IS NOT NULL AND to_regclass('stafett.cell') IS NOT NULL";

/// Creates the table if it is missing. One node at a time does.
const CREATE: &str = "
SELECT pg_advisory_xact_lock(8316026130246);
CREATE TABLE IF NOT EXISTS stafett.node (
  number int PRIMARY KEY, name text NOT NULL UNIQUE, incarnation bytea NOT NULL, key bytea NOT NULL, version text NOT NULL,
  addresses text NOT NULL, beat bigint NOT NULL, seen timestamptz NOT NULL, is_here bool NOT NULL)
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
";

/// Address from which the database is reached.
const HOST: &str = "SELECT host(inet_client_addr())";

/// Nodes join one after the other: numbers are given once.
const IN_TURN: &str = "SELECT pg_advisory_xact_lock(8316026130247)";

/// Key of the names of groups that are spread over the cells, one a line. Nodes add to them: without its
/// name, a group would not be found in its cell.
const SPREAD_GROUPS: &str = "spread_groups";
const SET: &str = "
INSERT INTO stafett.meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value";

/// Forgets nodes that have been away for a month.
const FORGET: &str = "
DELETE FROM stafett.node WHERE seen < now() - interval '30 days'
  AND NOT EXISTS (SELECT FROM stafett.cell WHERE owner = incarnation)";

const REJOIN: &str = "
UPDATE stafett.node
SET incarnation = $2, key = $3, version = $4, addresses = $5, beat = 0, seen = clock_timestamp(), is_here = true
WHERE name = $1 RETURNING number";

const IS_TAKEN: &str = "
SELECT EXISTS (SELECT FROM stafett.node WHERE name = $1 AND incarnation <> $2 AND is_here
  AND seen > clock_timestamp() - make_interval(secs => $3))";

/// The smallest number that no node has.
const JOIN: &str = "
INSERT INTO stafett.node (number, name, incarnation, key, version, addresses, beat, seen, is_here)
SELECT min(n), $1, $2, $3, $4, $5, 0, clock_timestamp(), true
FROM generate_series(1, (SELECT count(*)::int + 1 FROM stafett.node)) AS n
WHERE NOT EXISTS (SELECT FROM stafett.node WHERE number = n)
RETURNING number";

const ROLL: &str = "
WITH beating AS (UPDATE stafett.node SET beat = beat + 1, seen = clock_timestamp(), is_here = true
  WHERE number = $1 AND incarnation = $2 RETURNING number),
  cells AS (SELECT array_agg(epoch ORDER BY id) AS epochs, array_agg(owner ORDER BY id) AS owners FROM stafett.cell)
SELECT n.number, n.name, n.incarnation, n.key, n.version, n.addresses, n.beat,
  (extract(epoch FROM clock_timestamp() - n.seen) * 1000)::bigint, c.epochs, c.owners, (SELECT count(*) FROM beating) > 0,
  (SELECT value FROM stafett.meta WHERE key = 'spread_groups')
FROM stafett.node n CROSS JOIN cells c
WHERE n.is_here ORDER BY n.number";

const FACTS: &str = "
SELECT current_setting('server_version'),
  current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on',
  current_setting('synchronous_standby_names')";

const TABLES: &str = "
SELECT c.relname::text, pg_total_relation_size(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'stafett' AND c.relkind = 'r' ORDER BY 1";

const LEAVE: &str = "UPDATE stafett.node SET is_here = false WHERE number = $1 AND incarnation = $2";

/// The table of nodes, over a connection of its own.
#[derive(Debug)]
pub struct PostgresDirectory {
    cells: u32,
    spread_groups: Vec<String>,
    line: Line,
}

impl PostgresDirectory {
    /// Nothing is connected yet. `patience` is the time for one call, `cells` the number of cells of a new
    /// database; 0 is one.
    pub fn new(url: &str, ca: Option<&Path>, cells: u32, patience: Duration) -> Result<Self, AddressError> {
        Ok(Self {
            cells,
            spread_groups: Vec::new(),
            line: Line::new(&target(url, ca)?, patience)?,
        })
    }

    /// Sets names of groups that the node brings, without line ends.
    #[must_use]
    pub fn with_spread_groups(self, spread_groups: Vec<String>) -> Self {
        Self {
            spread_groups,
            ..self
        }
    }
}

/// The database as an operator sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseFacts {
    pub version: String,
    /// Bytes of each table with its indexes.
    pub tables: Vec<(String, u64)>,
    /// Whether a crash of its machine loses nothing.
    pub is_crash_safe: bool,
    pub synchronous_standbys: String,
}

impl PostgresDirectory {
    /// Describes the database.
    pub fn facts(&self) -> Result<DatabaseFacts, DatabaseError> {
        self.line.call(async |it: &mut Connection| {
            let row = it.client.query_one(FACTS, &[]).await?;
            let tables = it.client.query(TABLES, &[]).await?;
            let table = |row: &Row| Ok((row.try_get(0)?, unsigned(row.try_get(1)?)));
            Ok(DatabaseFacts {
                version: row.try_get(0)?,
                is_crash_safe: row.try_get(1)?,
                synchronous_standbys: row.try_get(2)?,
                tables: tables.iter().map(table).collect::<Result<_, Error>>()?,
            })
        })
    }
}

impl Directory for PostgresDirectory {
    fn join(&self, facts: &mut NodeFacts, silence: Option<Duration>) -> Result<Option<u32>, DatabaseError> {
        let number: Option<i32> = self.line.call(async |it: &mut Connection| {
            if !it.client.query_one(ARE_THERE, &[]).await?.try_get(0)? {
                it.client.batch_execute(&tables::create(self.cells)).await?;
                it.client.batch_execute(CREATE).await?;
            }
            let host: Option<String> = it.client.query_one(HOST, &[]).await?.try_get(0)?;
            let host: Option<IpAddr> = host.and_then(|host| host.parse().ok());
            if facts.settle(host) {
                tracing::warn!(
                    host = %host.map(|host| host.to_string()).unwrap_or_default(),
                    "other machines cannot reach this node: set the advertised addresses of its listeners"
                );
            }
            let addresses = written(&facts.addresses);
            let (incarnation, key) = (facts.incarnation.as_slice(), facts.key.0.as_slice());
            let transaction = it.client.transaction().await?;
            transaction.batch_execute(IN_TURN).await?;
            transaction.execute(FORGET, &[]).await?;
            if let Some(silence) = silence {
                let seconds = silence.as_secs_f64();
                let is_taken = transaction
                    .query_one(IS_TAKEN, &[&facts.name, &incarnation, &seconds])
                    .await?;
                if is_taken.try_get(0)? {
                    return Ok(None);
                }
            }
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&facts.name, &incarnation, &key, &facts.version, &addresses];
            let row = match transaction.query_opt(REJOIN, &values).await? {
                Some(row) => row,
                None => transaction.query_one(JOIN, &values).await?,
            };
            add_spread_groups(&transaction, &self.spread_groups).await?;
            transaction.commit().await?;
            row.try_get(0).map(Some)
        })?;
        Ok(number.map(counted))
    }

    fn roll(&self, number: u32, incarnation: Nonce) -> Result<Roll, DatabaseError> {
        let number = i32::try_from(number).unwrap_or_default();
        let incarnation = incarnation.as_slice();
        self.line.call(async |it: &mut Connection| {
            let statement = it.prepared(ROLL).await?;
            let rows = it.client.query(&statement, &[&number, &incarnation]).await?;
            let mut roll = Roll::default();
            for row in &rows {
                roll.entries.push(entry(row)?);
                roll.is_registered = row.try_get(10)?;
            }
            if let Some(row) = rows.first() {
                roll.owners = owners(row)?;
                let names: Option<&str> = row.try_get(11)?;
                roll.spread_groups = names
                    .into_iter()
                    .flat_map(str::lines)
                    .map(str::to_owned)
                    .collect();
            }
            Ok(roll)
        })
    }

    fn leave(&self, number: u32, incarnation: Nonce) -> Result<(), DatabaseError> {
        let number = i32::try_from(number).unwrap_or_default();
        let incarnation = incarnation.as_slice();
        self.line.call(async |it: &mut Connection| {
            it.client.execute(LEAVE, &[&number, &incarnation]).await?;
            Ok(())
        })
    }
}

async fn add_spread_groups(transaction: &Transaction<'_>, names: &[String]) -> Result<(), Error> {
    let row = transaction.query_opt(tables::STORE, &[&SPREAD_GROUPS]).await?;
    let known: String = row.map(|row| row.try_get(0)).transpose()?.unwrap_or_default();
    let before: BTreeSet<&str> = known.lines().collect();
    let mut all = before.clone();
    all.extend(names.iter().map(String::as_str));
    if all != before {
        let text = Vec::from_iter(all).join("\n");
        transaction.execute(SET, &[&SPREAD_GROUPS, &text]).await?;
    }
    Ok(())
}

fn entry(row: &Row) -> Result<Entry, Error> {
    let (incarnation, key): (Vec<u8>, Vec<u8>) = (row.try_get(2)?, row.try_get(3)?);
    let addresses: &str = row.try_get(5)?;
    Ok(Entry {
        number: counted(row.try_get(0)?),
        facts: NodeFacts {
            name: row.try_get(1)?,
            incarnation: nonce_of(&incarnation),
            // A key of another length was not made by a node: nothing is to be proven with it.
            key: key.try_into().map_or_else(|_| Key::random(), Key),
            version: row.try_get(4)?,
            addresses: read(addresses),
        },
        beat: unsigned(row.try_get(6)?),
        silent_ms: unsigned(row.try_get(7)?),
    })
}

/// Returns the owner of each cell. There is none before the first cell is made.
fn owners(row: &Row) -> Result<Vec<Owner>, Error> {
    let epochs: Option<Vec<i64>> = row.try_get(8)?;
    let nodes: Option<Vec<Option<Vec<u8>>>> = row.try_get(9)?;
    let cells = epochs.into_iter().flatten().zip(nodes.into_iter().flatten());
    let owner = |(epoch, node): (i64, Option<Vec<u8>>)| Owner {
        epoch: unsigned(epoch),
        node: node.map(|node| nonce_of(&node)),
        beat: 0,
    };
    Ok(cells.map(owner).collect())
}

fn counted(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}

/// Addresses as they are stored: a line `LISTENER ADDRESS` for each.
fn written(addresses: &[(String, String)]) -> String {
    let mut text = String::new();
    for (listener, address) in addresses {
        text.extend([listener, " ", address, "\n"]);
    }
    text
}

fn read(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .map(|(listener, address)| (listener.to_owned(), address.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{read, written};

    #[test]
    fn addresses_are_read_as_they_were_written() {
        let addresses = vec![
            ("one".to_owned(), "10.0.0.1:1".to_owned()),
            ("two".to_owned(), "[::1]:2".to_owned()),
        ];
        assert_eq!(read(&written(&addresses)), addresses);
        assert!(read("malformed\n\n").is_empty());
    }
}
