//! Names of settings: `roles.producers.batch`; parts with dots in quotes, as in
//! `system.kafka.set."num.io.threads"`.

/// The parts of a path; `None` where a quote is not closed or a part is empty.
pub fn parts(path: &str) -> Option<Vec<&str>> {
    let mut parts = Vec::new();
    let mut rest = path;
    loop {
        let (part, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find('.').unwrap_or(rest.len())),
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        if behind.is_empty() {
            return Some(parts);
        }
        rest = behind.strip_prefix('.')?;
    }
}

/// The last part of a path, and as much before it as tells it from the others: `batch`, `producers batch`.
pub fn short(path: &str, all: &[String]) -> String {
    let of = |path: &str| -> Vec<String> {
        parts(path).map_or_else(
            || vec![path.to_owned()],
            |parts| parts.into_iter().map(str::to_owned).collect(),
        )
    };
    let own = of(path);
    for taken in 1..=own.len() {
        let end = |path: &str| of(path).into_iter().rev().take(taken).rev().collect::<Vec<_>>();
        let name = end(path);
        if all.iter().filter(|other| end(other) == name).count() <= 1 {
            return name.join(" ").replace('_', " ");
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn quotes_hold_dots_together() {
        assert_eq!(parts("run.seed"), Some(vec!["run", "seed"]));
        assert_eq!(parts(r#"a."b.c".d"#), Some(vec!["a", "b.c", "d"]));
        for broken in ["", ".", "a.", "a..b", r#"a."b"#, r#"a."b"c"#] {
            assert_eq!(parts(broken), None, "{broken}");
        }
    }
}
