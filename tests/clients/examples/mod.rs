//! Examples, as their READMEs run them, while the broker and they themselves are killed.

use std::path::PathBuf;

use crate::broker::external;
use crate::peer;

mod connect;
mod pipeline;
mod streams;

/// Builds an example, unless tests cannot kill its broker.
fn build(name: &str) -> Option<PathBuf> {
    if external().is_some() {
        peer::skip(
            "a broker that runs elsewhere cannot be killed",
            "unset STAFETT_TEST_KAFKA_ADDR",
        );
        return None;
    }
    peer::example(name)
}
