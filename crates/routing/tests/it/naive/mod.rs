//! Every table against a model that is too simple to be wrong: a list of bindings, each of which is asked.

mod graph;
mod hashed;
mod headers;
mod model;
mod scale;
mod topic;
