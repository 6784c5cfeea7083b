//! Results on the disk: everything that is needed to draw a run again without running it again.
//!
//! ```text
//! RUN/run.json           the request, the machine, the order, and the progress
//! RUN/points/0001.json   one file per point: a system with parameters, one repetition
//! RUN/logs/0001/…        logs of the systems
//! ```
//!
//! Files are written whole and renamed into place: a point is there or it is not. Times are seconds since the
//! start of the point (its load, not its preparation) unless their names say otherwise; latencies are
//! microseconds.
//!
//! - [`run_file`]: the run as a whole; [`point`]: one point; [`series`]: samples of every second
//! - [`histogram`]: latencies, mergeable; [`metric`]: the figures by name that tables and charts are made of
//! - [`store`]: writes and reads the folder

pub mod histogram;
pub mod metric;
pub mod point;
pub mod run_file;
pub mod series;
pub mod store;

pub use histogram::Latencies;
pub use metric::{METRICS, Metric, metric};
pub use point::{Counts, Driver, Durability, Outcome, OutcomeKind, Point, RoleResult};
pub use run_file::{Ceiling, Environment, Network, Planned, Reached, Run, RunRequest, Status};
pub use series::{ProcessKind, ProcessSample, ProcessSeries, RateSample, SERIES, WINDOW_S, Window, Windows};
pub use store::{Folder, StoreError};

/// The version of these files. Older ones are read; newer ones are refused.
pub const FORMAT: u32 = 1;
