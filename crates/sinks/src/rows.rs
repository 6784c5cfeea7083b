//! Values of a batch: cells of fixed size, and one buffer for all that is longer.

use std::ops::Range;

/// Value of a column in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    /// Decimal text.
    Numeric(Piece),
    /// Microseconds since 1970, UTC.
    Instant(i64),
    /// Microseconds since 1970, without a zone.
    Local(i64),
    /// Days since 1970.
    Date(i32),
    /// Sixteen bytes.
    Uuid(Piece),
    Text(Piece),
    Bytes(Piece),
    /// JSON text.
    Json(Piece),
}

/// A range of the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Piece {
    start: u32,
    length: u32,
}

impl Piece {
    /// Returns its place in the buffer.
    pub(crate) fn range(self) -> Range<usize> {
        let from = self.start as usize;
        from..from + self.length as usize
    }
}

/// Rows in the order of their records. Each row has a cell per column.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    width: usize,
    cells: Vec<Cell>,
    offsets: Vec<u64>,
    buffer: Vec<u8>,
}

impl Rows {
    pub fn new(width: usize) -> Self {
        Self {
            width,
            ..Self::default()
        }
    }

    pub(crate) fn clear(&mut self) {
        self.cells.clear();
        self.offsets.clear();
        self.buffer.clear();
    }

    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the memory of all rows.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.cells.len() * size_of::<Cell>() + self.offsets.len() * size_of::<u64>()
    }

    /// Returns the offset of a row's record.
    pub fn offset(&self, row: usize) -> Option<u64> {
        self.offsets.get(row).copied()
    }

    /// Returns all rows.
    pub fn all(&self) -> Slice<'_> {
        Slice {
            rows: self,
            range: 0..self.len(),
        }
    }

    /// Returns the cells of a row.
    pub fn row(&self, row: usize) -> &[Cell] {
        let from = row * self.width;
        self.cells.get(from..from + self.width).unwrap_or_default()
    }

    pub fn piece(&self, piece: Piece) -> &[u8] {
        self.buffer.get(piece.range()).unwrap_or_default()
    }

    /// Returns the buffer of all pieces.
    pub(crate) fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns a piece that was written as text.
    pub fn text(&self, piece: Piece) -> &str {
        std::str::from_utf8(self.piece(piece)).unwrap_or_default()
    }

    /// Keeps the rows for which `keeps` says so.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&Self, &[Cell]) -> bool) {
        let kept: Vec<bool> = (0..self.len()).map(|row| keeps(self, self.row(row))).collect();
        let width = self.width.max(1);
        let mut place = 0;
        self.cells.retain(|_| {
            place += 1;
            kept.get((place - 1) / width).copied().unwrap_or(false)
        });
        let mut kept = kept.iter();
        self.offsets.retain(|_| kept.next().copied().unwrap_or(false));
    }

    /// Adds a row whose cells `fill` writes: one per column. Nothing is added if it fails.
    pub(crate) fn push<E>(
        &mut self,
        offset: u64,
        fill: impl FnOnce(&mut Cells<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (cells, bytes) = (self.cells.len(), self.buffer.len());
        let mut row = Cells {
            cells: &mut self.cells,
            buffer: &mut self.buffer,
        };
        let filled = fill(&mut row);
        if filled.is_err() {
            self.cells.truncate(cells);
            self.buffer.truncate(bytes);
            return filled;
        }
        debug_assert_eq!(self.cells.len(), cells + self.width, "a cell per column");
        self.offsets.push(offset);
        Ok(())
    }
}

/// The row that is being written.
pub(crate) struct Cells<'a> {
    cells: &'a mut Vec<Cell>,
    buffer: &'a mut Vec<u8>,
}

impl Cells<'_> {
    #[inline]
    pub(crate) fn push(&mut self, cell: Cell) {
        self.cells.push(cell);
    }

    #[inline]
    pub(crate) fn piece(&mut self, bytes: &[u8]) -> Piece {
        self.written(|buffer| buffer.extend_from_slice(bytes))
    }

    /// Returns the piece that `write` appends.
    pub(crate) fn written(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Piece {
        let start = self.buffer.len();
        write(self.buffer);
        Piece {
            start: small(start),
            length: small(self.buffer.len() - start),
        }
    }
}

/// A batch is flushed long before its buffer reaches 4 GiB.
fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Some rows of a batch.
#[derive(Debug, Clone)]
pub struct Slice<'a> {
    pub rows: &'a Rows,
    pub range: Range<usize>,
}

impl<'a> Slice<'a> {
    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns offset and cells of each row.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &'a [Cell])> + use<'a> {
        let rows = self.rows;
        let offset = |row| rows.offset(row).unwrap_or_default();
        self.range.clone().map(move |row| (offset(row), rows.row(row)))
    }
}
