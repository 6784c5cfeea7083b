//! Patterns of names: regular expressions without backtracking, so a match takes time in proportion to the
//! name.
//!
//! Frequent forms are compared without an automaton. As elsewhere with such permissions, a pattern that has
//! no anchors matches anywhere in the name, and an empty one matches the empty name only.

use regex::{Regex, RegexBuilder};

/// Bytes of the longest pattern.
const PATTERN_BYTES_MAX: usize = 1024;
/// Bytes of the largest compiled pattern.
const COMPILED_BYTES_MAX: usize = 128 << 10;

/// A pattern is too long, too large, or malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} cannot be used: {why}")]
pub struct BadPattern {
    pub pattern: String,
    pub why: String,
}

/// A pattern that is ready to match.
#[derive(Debug, Clone)]
pub struct Pattern(Form);

#[derive(Debug, Clone)]
enum Form {
    Any,
    Literal(Box<str>),
    Prefix(Box<str>),
    Regex(Regex),
}

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, BadPattern> {
        let bad = |why: String| BadPattern {
            pattern: pattern.chars().take(100).collect(),
            why,
        };
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(bad(format!("it is longer than {PATTERN_BYTES_MAX} bytes")));
        }
        if let Some(form) = simple(pattern) {
            return Ok(Self(form));
        }
        let mut builder = RegexBuilder::new(pattern);
        builder
            .size_limit(COMPILED_BYTES_MAX)
            .dfa_size_limit(COMPILED_BYTES_MAX);
        // Names may have line breaks.
        builder.nest_limit(50).dot_matches_new_line(true);
        builder.build().map(Form::Regex).map(Self).map_err(|error| {
            let text = error.to_string();
            bad(text.lines().last().unwrap_or_default().to_owned())
        })
    }

    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match &self.0 {
            Form::Any => true,
            Form::Literal(text) => name == &**text,
            Form::Prefix(text) => name.starts_with(&**text),
            Form::Regex(regex) => regex.is_match(name),
        }
    }
}

/// Returns the form of a pattern that needs no automaton.
fn simple(pattern: &str) -> Option<Form> {
    if matches!(pattern, "" | "^$") {
        return Some(Form::Literal("".into()));
    }
    if matches!(pattern, ".*" | "^.*" | "^.*$" | ".*$" | "^") {
        return Some(Form::Any);
    }
    let anchored = pattern.strip_prefix('^')?;
    let is_plain = |text: &str| {
        let mut characters = text.chars();
        characters.all(|it| it.is_alphanumeric() || matches!(it, '-' | '_' | '/' | ':' | ' '))
    };
    // A dot behind a backslash is a dot.
    let unescaped = |text: &str| {
        let plain = text.replace("\\.", "");
        is_plain(&plain).then(|| text.replace("\\.", ".").into())
    };
    if let Some(text) = anchored
        .strip_suffix(".*$")
        .or_else(|| anchored.strip_suffix(".*"))
    {
        return unescaped(text).map(Form::Prefix);
    }
    match anchored.strip_suffix('$') {
        Some(text) => unescaped(text).map(Form::Literal),
        None => unescaped(anchored).map(Form::Prefix),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_anywhere_unless_they_have_anchors() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            (".*", "anything", true),
            ("^orders-.*", "orders-1", true),
            ("^orders-.*", "my-orders-1", false),
            ("orders", "my-orders-1", true),
            ("^a\\.b$", "a.b", true),
            ("^a\\.b$", "axb", false),
            ("^a.b$", "axb", true),
            ("^(a|b)$", "b", true),
            ("^(a|b)$", "c", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).unwrap().matches(name),
                expected,
                "{pattern} {name}"
            );
        }
    }

    #[test]
    fn malformed_and_large_patterns_are_refused() {
        let long = "a".repeat(PATTERN_BYTES_MAX + 1);
        let nested = "(".repeat(200) + &")".repeat(200);
        for pattern in ["(", "[z-a]", "(?:a{1000}){1000}", "\\1", "(?=a)", &long, &nested] {
            assert!(Pattern::new(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_made_to_be_slow_is_not() {
        let pattern = Pattern::new("^(a+)+$").unwrap();
        assert!(!pattern.matches(&("a".repeat(250) + "b")));
    }

    proptest! {
        /// Forms without an automaton match as the automaton does.
        #[test]
        fn simple_forms_match_as_regular_expressions(
            head in "\\^?", text in "([a-c]|\\\\\\.|-){0,4}", tail in "(\\.\\*)?\\$?", name in "[a-c.-]{0,5}",
        ) {
            let pattern = format!("{head}{text}{tail}");
            prop_assume!(!pattern.is_empty());
            let expected = Regex::new(&pattern).unwrap().is_match(&name);
            prop_assert_eq!(Pattern::new(&pattern).unwrap().matches(&name), expected, "{}", pattern);
        }
    }
}
