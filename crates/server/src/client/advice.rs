//! Advice in error messages.

use anyhow::anyhow;
use stafett_kafka_client::ClientError;

/// Minimum similarity of a suggested name, from 0 to 1.
const LIKENESS_MIN: f64 = 0.6;

pub(crate) fn connect(error: ClientError) -> anyhow::Error {
    if matches!(error, ClientError::Connect { .. }) {
        return anyhow!(
            "{error}; start a broker with `stafett serve`, or name another one with --server HOST:PORT"
        );
    }
    error.into()
}

/// Returns the most similar of `names`. `None` if none is similar enough.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|known| (strsim::normalized_damerau_levenshtein(name, known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

pub(crate) fn unknown_topic<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> anyhow::Error {
    match nearest(name, names) {
        Some(known) => anyhow!(
            "topic `{name}` does not exist; the nearest one is `{known}`; create it with: stafett topic create {name}"
        ),
        None => anyhow!("topic `{name}` does not exist; create it with: stafett topic create {name}"),
    }
}

pub(crate) fn unknown_group<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> anyhow::Error {
    match nearest(name, names) {
        Some(known) => anyhow!("group `{name}` does not exist; the nearest one is `{known}`"),
        None => anyhow!("group `{name}` does not exist; see all of them with: stafett group list"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_if_it_is_near() {
        let names = || ["orders", "payments"].into_iter();
        assert_eq!(nearest("ordres", names()), Some("orders"));
        assert_eq!(nearest("zebra", names()), None);
        assert_eq!(
            unknown_topic("ordres", names()).to_string(),
            "topic `ordres` does not exist; the nearest one is `orders`; create it with: stafett topic create ordres"
        );
    }
}
