//! Writes and reads the folder of a run.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FORMAT;
use super::point::Point;
use super::run_file::Run;

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

/// Reason why results cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{} cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not what the lab writes: {source}", path.display())]
    Malformed {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{} is of format {found}; this program reads up to {FORMAT}", path.display())]
    Newer { path: PathBuf, found: u64 },
}

impl Folder {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns true if there is a run in it.
    pub fn exists(&self) -> bool {
        self.run_path().exists()
    }

    /// Returns the path of the file that describes the run.
    pub fn run_path(&self) -> PathBuf {
        self.path.join("run.json")
    }

    fn point_path(&self, number: u32) -> PathBuf {
        self.path.join("points").join(format!("{number:04}.json"))
    }

    pub fn write_run(&self, run: &Run) -> Result<(), StoreError> {
        write(&self.run_path(), run)
    }

    pub fn write_point(&self, point: &Point) -> Result<(), StoreError> {
        write(&self.point_path(point.number), point)
    }

    pub fn has_point(&self, number: u32) -> bool {
        self.point_path(number).exists()
    }

    /// Returns the path of a former result of a point; the first is 1.
    fn aside_path(&self, number: u32, former: u32) -> PathBuf {
        let folder = self.path.join("points").join("aside");
        folder.join(format!("{number:04}-{former}.json"))
    }

    /// Returns the number of former results of a point.
    pub fn formers(&self, number: u32) -> u32 {
        let is_free = |former: &u32| !self.aside_path(number, *former).exists();
        (1..=u32::MAX).find(is_free).unwrap_or(1) - 1
    }

    /// Keeps the result of a point aside: the point can be measured again.
    pub fn put_aside(&self, number: u32) -> io::Result<()> {
        let to = self.aside_path(number, self.formers(number) + 1);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::rename(self.point_path(number), to)
    }

    pub fn read_run(&self) -> Result<Run, StoreError> {
        read(&self.run_path())
    }

    pub fn read_point(&self, number: u32) -> Result<Point, StoreError> {
        read(&self.point_path(number))
    }

    /// The points that are there, by their numbers.
    pub fn read_points(&self, run: &Run) -> Result<Vec<Point>, StoreError> {
        let mut numbers: Vec<u32> = run.order.iter().map(|planned| planned.number).collect();
        numbers.sort_unstable();
        let there = numbers.into_iter().filter(|number| self.has_point(*number));
        there.map(|number| self.read_point(number)).collect()
    }
}

/// Whole or not at all: a file that is being written has another name.
fn write(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let failed = |source| StoreError::Write {
        path: path.to_owned(),
        source,
    };
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let making = path.with_extension("json.new");
    let written = (|| {
        let mut out = BufWriter::new(File::create(&making)?);
        serde_json::to_writer(&mut out, value)?;
        out.write_all(b"\n")?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        fs::rename(&making, path)
    })();
    written.map_err(|source| {
        // The rest is of no use, and its space may be.
        let _ = fs::remove_file(&making);
        failed(source)
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let file = File::open(path).map_err(|source| StoreError::Read {
        path: path.to_owned(),
        source,
    })?;
    let malformed = |source| StoreError::Malformed {
        path: path.to_owned(),
        source,
    };
    let value: serde_json::Value = serde_json::from_reader(BufReader::new(file)).map_err(malformed)?;
    let found = value.get("format").and_then(serde_json::Value::as_u64);
    match found {
        Some(found) if found > u64::from(FORMAT) => Err(StoreError::Newer {
            path: path.to_owned(),
            found,
        }),
        _ => serde_json::from_value(value).map_err(malformed),
    }
}
