//! The cluster that the node is in: its nodes, the owner of the cell, and its database.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_http::api::{get, post};
use stafett_http::{Code, Problem, body};

use crate::node::Node;
use crate::{Routes, answer};

/// A cluster, as one node sees it.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct Cluster {
    /// Number of the node that answers.
    pub this: u32,
    /// Number of the node that serves; null while there is none.
    pub owner: Option<u32>,
    /// Owners so far.
    pub epoch: u64,
    pub lease_ms: u64,
    pub nodes: Vec<ClusterNode>,
    /// All cells, if there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<ClusterCell>,
    /// Names of groups that are spread over the cells, and prefixes with `*`: all that a node has brought.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread_groups: Vec<String>,
    /// Null while the database does not answer.
    pub database: Option<ClusterDatabase>,
    /// Null while this node has committed nothing.
    pub commits: Option<CommitTimes>,
    /// Faults, in words.
    pub problems: Vec<String>,
}

/// A node of a cluster.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct ClusterNode {
    pub number: u32,
    pub name: String,
    pub version: String,
    /// `owner`, `standby`, or `silent` after two leases without a beat.
    pub state: &'static str,
    /// Milliseconds since its last beat, by the database's clock.
    pub silent_ms: u64,
    /// Address of each listener by name; `peer` is that for other nodes.
    pub addresses: BTreeMap<String, String>,
}

/// A cell of a cluster.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct ClusterCell {
    pub cell: u32,
    /// Number of the node that owns it; null while there is none.
    pub owner: Option<u32>,
    /// Owners so far.
    pub epoch: u64,
}

/// The database of a cluster.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct ClusterDatabase {
    pub version: String,
    /// Bytes of the tables with their indexes, as they are on its disk.
    pub stored_bytes: u64,
    /// The same of each table.
    pub tables: BTreeMap<String, u64>,
    /// Whether a crash of its machine loses nothing (`fsync` and `full_page_writes`).
    pub is_crash_safe: bool,
    /// Its setting `synchronous_standby_names`; empty if a fail-over may lose the last commits.
    pub synchronous_standbys: String,
}

/// Commits of a node since it began, and times of its last thousand.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct CommitTimes {
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Objects of a cluster: its object store compared with its database.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct ClusterObjects {
    /// Whether there is an object store.
    pub is_set: bool,
    /// Objects that are referred to and there.
    pub objects: u64,
    pub bytes: u64,
    /// Objects that are referred to, and gone or of another length: data is lost.
    pub missing: u64,
    /// Names of the first of them.
    pub missing_names: Vec<String>,
    /// Objects that wait for their deletion.
    pub garbage: u64,
    pub garbage_bytes: u64,
    /// Objects that the database does not know: on their way, or left behind by a node that ended.
    pub unknown: u64,
    pub unknown_bytes: u64,
}

/// An order to let go of the cell.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Order {
    /// The cell; the first one if it is absent.
    #[serde(default)]
    cell: u32,
    /// Number of the node that is to have it; any other if it is absent.
    to: Option<u32>,
}

/// An order that is carried out.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ClusterMove")]
struct Ordered {
    from: u32,
    to: Option<u32>,
}

/// Returns the routes of the cluster.
pub(crate) fn routes(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/cluster", "Shows the cluster that the node is in.")
                .answers::<Cluster>(200)
                .refuses(&[Code::NoCluster]),
            show,
        )
        .route(
            get(
                "/v1/cluster/objects",
                "Compares the object store of the cluster with its database. It takes a request for each 1,000 objects.",
            )
            .answers::<ClusterObjects>(200)
            .refuses(&[
                Code::NoCluster,
                Code::NotServing,
                Code::Overloaded,
                Code::Unreadable,
            ]),
            compare,
        )
        .route(
            post(
                "/v1/cluster/move",
                "Has another node own a cell. Its connections end, and clients connect again.",
            )
            .body::<Order>()
            .answers::<Ordered>(202)
            .refuses(&[Code::NoCluster, Code::NoSuchNode, Code::NotServing]),
            order_move,
        )
}

async fn show(State(node): State<Arc<dyn Node>>) -> Result<Response, Problem> {
    Ok(answer(StatusCode::OK, &node.cluster().await?))
}

async fn compare(State(node): State<Arc<dyn Node>>) -> Result<Response, Problem> {
    Ok(answer(StatusCode::OK, &node.cluster_objects().await?))
}

async fn order_move(State(node): State<Arc<dyn Node>>, request: Request) -> Result<Response, Problem> {
    let Order { cell, to } = body::json(request).await?;
    let from = node.move_cell(cell, to).await?;
    Ok(answer(StatusCode::ACCEPTED, &Ordered { from, to }))
}

/// Returns the refusal of a node that is alone.
#[must_use]
pub fn no_cluster() -> Problem {
    Problem::new(
        Code::NoCluster,
        "this node is alone: the setting cluster.database is empty",
    )
}
