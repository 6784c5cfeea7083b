//! Every table against a naive model: a list of bindings that are tried one by one.

mod graph;
mod hashed;
mod headers;
mod model;
mod scale;
mod topic;
