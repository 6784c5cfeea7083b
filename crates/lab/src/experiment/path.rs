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
