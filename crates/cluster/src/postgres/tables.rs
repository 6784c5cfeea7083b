//! The tables, and the statements on them. `$1` is the cell.

pub(super) const ARE_THERE: &str = "SELECT to_regclass('stafett.meta') IS NOT NULL";

pub(super) const HAS_CELLS: &str = "SELECT EXISTS (SELECT FROM stafett.cell)";

/// Creates missing tables. One node at a time does.
pub(super) const CREATE: &str = "
SELECT pg_advisory_xact_lock(8316026130246);
CREATE SCHEMA IF NOT EXISTS stafett;
CREATE TABLE IF NOT EXISTS stafett.meta (key text PRIMARY KEY, value text NOT NULL);
INSERT INTO stafett.meta VALUES ('format', '3') ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS stafett.cell (
  id int PRIMARY KEY, epoch bigint NOT NULL, owner bytea, published bigint NOT NULL)
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE IF NOT EXISTS stafett.beat (cell int PRIMARY KEY, beat bigint NOT NULL)
  WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE IF NOT EXISTS stafett.range (
  cell int NOT NULL, seq bigint NOT NULL, epoch bigint NOT NULL, nonce bytea NOT NULL, name text, at bigint NOT NULL,
  bytes int NOT NULL, body bytea NOT NULL, object text COLLATE \"C\", checksum bigint, PRIMARY KEY (cell, seq));
CREATE INDEX IF NOT EXISTS range_object ON stafett.range (cell, object) WHERE object IS NOT NULL;
CREATE INDEX IF NOT EXISTS range_name ON stafett.range (cell, name, at) WHERE name IS NOT NULL;
ALTER TABLE stafett.range ALTER body SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS stafett.file (
  cell int NOT NULL, name text NOT NULL, bytes bigint NOT NULL, is_in_parts bool NOT NULL, PRIMARY KEY (cell, name));
CREATE TABLE IF NOT EXISTS stafett.part (
  cell int NOT NULL, name text NOT NULL, at bigint NOT NULL, bytes int NOT NULL, object text COLLATE \"C\" NOT NULL,
  checksum bigint NOT NULL, PRIMARY KEY (cell, name, at));
CREATE INDEX IF NOT EXISTS part_object ON stafett.part (cell, object);
CREATE TABLE IF NOT EXISTS stafett.garbage (
  cell int NOT NULL, object text COLLATE \"C\" NOT NULL, bytes bigint NOT NULL, since timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (cell, object));
CREATE INDEX IF NOT EXISTS garbage_since ON stafett.garbage (cell, since);
CREATE TABLE IF NOT EXISTS stafett.block (
  cell int NOT NULL, name text NOT NULL, number int NOT NULL, body bytea NOT NULL, PRIMARY KEY (cell, name, number));
ALTER TABLE stafett.block ALTER body SET STORAGE EXTERNAL;
";

/// Returns the statements that create missing tables. A database without a cell is given `cells` of them, at
/// least one: the first node decides, and none sees tables without cells.
pub(super) fn create(cells: u32) -> String {
    let last = cells.saturating_sub(1);
    format!(
        "{CREATE}
INSERT INTO stafett.cell (id, epoch, published)
SELECT n, 0, 0 FROM generate_series(0, {last}) AS n WHERE NOT EXISTS (SELECT FROM stafett.cell);
INSERT INTO stafett.beat (cell, beat) SELECT id, 0 FROM stafett.cell ON CONFLICT DO NOTHING;
INSERT INTO stafett.range (cell, seq, epoch, nonce, at, bytes, body)
SELECT id, 0, 0, decode(repeat('00', 16), 'hex'), 0, 0, '' FROM stafett.cell ON CONFLICT DO NOTHING;
UPDATE stafett.meta SET value = '4' WHERE key = 'format' AND (SELECT count(*) FROM stafett.cell) > 1;
"
    )
}

/// Format of the tables, and the number of cells. Several cells are a format of their own: nodes of a version
/// that knows one cell must not serve them.
pub(super) const FORMAT: &str = "
SELECT value, (SELECT count(*) FROM stafett.cell) FROM stafett.meta WHERE key = 'format'";

pub(super) const STORE: &str = "SELECT value FROM stafett.meta WHERE key = $1";

pub(super) const ADD_STORE: &str = "INSERT INTO stafett.meta VALUES ($1, $2) ON CONFLICT DO NOTHING";

pub(super) const CHANGE_STORE: &str = "UPDATE stafett.meta SET value = $2 WHERE key = $1 AND value = $3";

/// The cell, and its first fence: a row before all others.
pub(super) const ADD_CELL: &str = "
WITH added AS (INSERT INTO stafett.cell (id, epoch, published) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING),
  beating AS (INSERT INTO stafett.beat (cell, beat) VALUES ($1, 0) ON CONFLICT DO NOTHING)
INSERT INTO stafett.range (cell, seq, epoch, nonce, at, bytes, body) VALUES ($1, 0, 0, $2, 0, 0, '')
ON CONFLICT DO NOTHING";

pub(super) const OWNER: &str = "
SELECT epoch, owner, beat FROM stafett.cell JOIN stafett.beat ON cell = id WHERE id = $1";

pub(super) const CLAIM: &str =
    "UPDATE stafett.cell SET epoch = epoch + 1, owner = $3 WHERE id = $1 AND epoch = $2";

/// It waits for no lock of the cell's row, which a publication holds until its commit is durable.
pub(super) const BEAT: &str = "
UPDATE stafett.beat SET beat = beat + 1
WHERE cell = $1 AND EXISTS (SELECT FROM stafett.cell WHERE id = $1 AND epoch = $2)";

pub(super) const RELEASE: &str = "UPDATE stafett.cell SET owner = NULL WHERE id = $1 AND epoch = $2";

pub(super) const NEWEST: &str =
    "SELECT seq, nonce FROM stafett.range WHERE cell = $1 ORDER BY seq DESC LIMIT 1";

/// A row is visible before a synchronous standby has it, if the commit's backend ended while it waited. The
/// update's commit waits for everything before it, on the server that has the row.
pub(super) const NONCE: &str = "
WITH written AS (UPDATE stafett.cell SET published = published WHERE id = $1)
SELECT nonce FROM stafett.range WHERE cell = $1 AND seq = $2";

pub(super) const COMMIT: &str = "
INSERT INTO stafett.range (cell, seq, epoch, nonce, name, at, bytes, body, object, checksum)
SELECT $1::int, $2::bigint, $3::bigint, $4::bytea, $5::text, $6::bigint, $7::int, $8::bytea, $10::text, $11::bigint
WHERE EXISTS (SELECT FROM stafett.cell WHERE id = $1::int AND epoch = $3::bigint)
  AND EXISTS (SELECT FROM stafett.range WHERE cell = $1::int AND seq = $2::bigint - 1 AND nonce = $9::bytea)
ON CONFLICT (cell, seq) DO NOTHING";

/// `$3` are objects that go on as parts.
pub(super) const REMOVE_ROWS: &str = "
WITH gone AS (
  DELETE FROM stafett.range WHERE cell = $1 AND name = ANY($2)
    AND seq < (SELECT max(seq) FROM stafett.range WHERE cell = $1)
  RETURNING object, bytes)
INSERT INTO stafett.garbage (cell, object, bytes)
SELECT $1, object, bytes FROM gone WHERE object IS NOT NULL AND NOT object = ANY($3)
ON CONFLICT DO NOTHING";

pub(super) const REMOVE_PARTS: &str = "
WITH gone AS (
  DELETE FROM stafett.part WHERE cell = $1 AND name = ANY($2) AND NOT object = ANY($3) RETURNING object, bytes)
INSERT INTO stafett.garbage (cell, object, bytes) SELECT $1, object, bytes FROM gone
ON CONFLICT DO NOTHING";

pub(super) const PUT_PARTS: &str = "
INSERT INTO stafett.part (cell, name, at, bytes, object, checksum)
SELECT $1::int, $2::text, put.at, put.bytes, put.object, put.checksum
FROM unnest($3::bigint[], $4::int[], $5::text[], $6::bigint[]) AS put(at, bytes, object, checksum)
ON CONFLICT (cell, name, at) DO UPDATE
SET bytes = excluded.bytes, object = excluded.object, checksum = excluded.checksum";

pub(super) const REMOVE_BLOCKS: &str = "DELETE FROM stafett.block WHERE cell = $1 AND name = ANY($2)";

pub(super) const REMOVE_FILES: &str = "DELETE FROM stafett.file WHERE cell = $1 AND name = ANY($2)";

pub(super) const PUT_BLOCKS: &str = "
INSERT INTO stafett.block (cell, name, number, body)
SELECT $1::int, $2::text, put.number, put.body FROM unnest($3::int[], $4::bytea[]) AS put(number, body)
ON CONFLICT (cell, name, number) DO UPDATE SET body = excluded.body";

pub(super) const CUT_BLOCKS: &str =
    "DELETE FROM stafett.block WHERE cell = $1 AND name = $2 AND number >= $3";

pub(super) const PUT_FILE: &str = "
INSERT INTO stafett.file (cell, name, bytes, is_in_parts) VALUES ($1, $2, $3, $4)
ON CONFLICT (cell, name) DO UPDATE SET bytes = excluded.bytes, is_in_parts = excluded.is_in_parts";

/// Ends the transaction soon if the node does not.
pub(super) const SHORT: &str = "SET LOCAL idle_in_transaction_session_timeout = '2s'";

/// Ends each publication: it locks the cell's row for a moment.
pub(super) const PUBLISHED: &str =
    "UPDATE stafett.cell SET published = published + 1 WHERE id = $1 AND epoch = $2";

/// Segments are found by jumps through the index, whatever the number of rows.
pub(super) const LIST: &str = "
WITH RECURSIVE segment(name) AS (
  SELECT min(name) FROM stafett.range WHERE cell = $1 AND name IS NOT NULL
  UNION ALL
  SELECT (SELECT min(r.name) FROM stafett.range r WHERE r.cell = $1 AND r.name > segment.name)
  FROM segment WHERE segment.name IS NOT NULL)
SELECT name, bytes, false, is_in_parts FROM stafett.file WHERE cell = $1
UNION ALL
SELECT name, bytes, true, false FROM (
  SELECT name,
    (SELECT r.at + r.bytes FROM stafett.range r WHERE r.cell = $1 AND r.name = segment.name ORDER BY r.at DESC LIMIT 1)
      AS bytes,
    (SELECT r.at FROM stafett.range r WHERE r.cell = $1 AND r.name = segment.name ORDER BY r.at LIMIT 1) AS first
  FROM segment WHERE name IS NOT NULL) AS found
WHERE first = 0";

pub(super) const PARTS: &str =
    "SELECT at, bytes, object, checksum FROM stafett.part WHERE cell = $1 AND name = $2 ORDER BY at";

pub(super) const PARTS_OF_ROWS: &str = "
SELECT at, bytes, object, checksum FROM stafett.range
WHERE cell = $1 AND name = $2 AND object IS NOT NULL ORDER BY at";

/// One snapshot: a reference that moves from a row to a part is seen in one of the two.
pub(super) const REFERENCES: &str = "
SELECT object, max(bytes), bool_and(is_garbage) FROM (
  (SELECT object, bytes::bigint, false AS is_garbage FROM stafett.range
    WHERE cell = $1 AND object > $2 ORDER BY object LIMIT 1000)
  UNION ALL
  (SELECT object, bytes, false FROM stafett.part WHERE cell = $1 AND object > $2 ORDER BY object LIMIT 1000)
  UNION ALL
  (SELECT object, bytes, true FROM stafett.garbage WHERE cell = $1 AND object > $2 ORDER BY object LIMIT 1000))
  AS found GROUP BY object ORDER BY object LIMIT 1000";

pub(super) const GARBAGE: &str = "
SELECT object FROM stafett.garbage
WHERE cell = $1 AND since <= now() - make_interval(secs => $2) ORDER BY since LIMIT 1000";

pub(super) const FORGET_GARBAGE: &str = "DELETE FROM stafett.garbage WHERE cell = $1 AND object = ANY($2)";

pub(super) const READ_ROWS: &str = "
SELECT at, body FROM stafett.range
WHERE cell = $1 AND name = $2 AND at < $4 AND at >= COALESCE(
  (SELECT max(at) FROM stafett.range WHERE cell = $1 AND name = $2 AND at <= $3), 0)
ORDER BY at";

/// One row without a block if the file has none there; none if there is no file.
pub(super) const READ_BLOCKS: &str = "
SELECT b.number, b.body FROM stafett.file f
LEFT JOIN stafett.block b ON b.cell = f.cell AND b.name = f.name AND b.number BETWEEN $3 AND $4
WHERE f.cell = $1 AND f.name = $2";
