//! Names with wildcards: `*` matches any number of characters, including none; `?` matches one; `\` escapes
//! the next character.

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// Original text.
    text: Box<str>,
    /// Prefix of every matching name.
    prefix: Box<str>,
    rest: Box<[Part]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Any,
    One,
    Char(char),
}

/// Reason why a text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternError {
    /// The text ends in a single `\`.
    Unfinished,
    /// It has more than [`WILDCARDS_MAX`] `*`.
    TooMany,
}

/// Most `*` in one pattern.
pub(crate) const WILDCARDS_MAX: usize = 16;

impl Pattern {
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (mut prefix, mut rest) = (String::new(), Vec::new());
        let mut chars = text.chars();
        while let Some(next) = chars.next() {
            let part = match next {
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => Part::Char(chars.next().ok_or(PatternError::Unfinished)?),
                plain => Part::Char(plain),
            };
            match part {
                Part::Char(plain) if rest.is_empty() => prefix.push(plain),
                Part::Any if rest.last() == Some(&Part::Any) => {}
                part @ (Part::Any | Part::One | Part::Char(_)) => rest.push(part),
            }
        }
        if rest.iter().filter(|part| **part == Part::Any).count() > WILDCARDS_MAX {
            return Err(PatternError::TooMany);
        }
        Ok(Self {
            text: text.into(),
            prefix: prefix.into(),
            rest: rest.into(),
        })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns true if a name that begins with the prefix matches; `behind` is the rest of the name.
    ///
    /// Each `*` takes as little as possible, and only the last one reached is extended: the time is at worst
    /// the product of both lengths.
    pub(crate) fn matches_behind(&self, behind: &str) -> bool {
        let mut parts = &*self.rest;
        let mut name = behind.chars();
        // State to resume from with the last `*` extended by one character.
        let mut again: Option<(&[Part], std::str::Chars<'_>)> = None;
        loop {
            let stepped = match parts.split_first() {
                Some((Part::Any, after)) => {
                    again = Some((after, name.clone()));
                    parts = after;
                    continue;
                }
                Some((Part::One, after)) => name.next().map(|_| after),
                Some((Part::Char(wanted), after)) => (name.next() == Some(*wanted)).then_some(after),
                None if name.as_str().is_empty() => return true,
                None => None,
            };
            if let Some(after) = stepped {
                parts = after;
                continue;
            }
            let Some((after, from)) = &mut again else {
                return false;
            };
            if from.next().is_none() {
                return false;
            }
            parts = after;
            name = from.clone();
        }
    }

    pub fn matches(&self, name: &str) -> bool {
        name.strip_prefix(&*self.prefix)
            .is_some_and(|behind| self.matches_behind(behind))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wildcards_match_and_escaped_ones_are_letters() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("news/*", "news/", true),
            ("news/*", "new", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*.mp3", "x.mp3.mp3", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("é?", "éß", true),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(name), expected, "{pattern} {name}");
        }
        assert_eq!(Pattern::parse("a\\"), Err(PatternError::Unfinished));
        assert_eq!(Pattern::parse(&"*a".repeat(17)), Err(PatternError::TooMany));
        assert!(Pattern::parse(&"*".repeat(99)).is_ok());
    }

    /// Matches by definition, regardless of time.
    fn naive(pattern: &[char], name: &[char]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (['*', rest @ ..], _) => {
                naive(rest, name)
                    || name
                        .split_first()
                        .is_some_and(|(_, behind)| naive(pattern, behind))
            }
            (['?', rest @ ..], [_, behind @ ..]) => naive(rest, behind),
            ([wanted, rest @ ..], [has, behind @ ..]) => wanted == has && naive(rest, behind),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_matches_what_its_definition_says(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            let expected = naive(&chars(&pattern), &chars(&name));
            prop_assert_eq!(Pattern::parse(&pattern).unwrap().matches(&name), expected);
        }
    }
}
