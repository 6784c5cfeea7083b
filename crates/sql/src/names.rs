//! Names in the text of a question, as SQLite's lexer has them.

/// Returns the identifiers and keywords of a question, as they are written. Texts and comments have none.
pub(crate) fn identifiers(question: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = question;
    while let Some(first) = rest.chars().next() {
        let (name, behind) = match first {
            '\'' => (None, quoted(rest, '\'').1),
            '"' | '`' => {
                let (name, behind) = quoted(rest, first);
                (Some(name), behind)
            }
            '[' => {
                let (name, behind) = rest.split_once(']').unwrap_or((rest, ""));
                (name.get(1..).map(str::to_owned), behind)
            }
            '-' if rest.starts_with("--") => (None, rest.split_once('\n').map_or("", |(_, behind)| behind)),
            '/' if rest.starts_with("/*") => (None, rest.split_once("*/").map_or("", |(_, behind)| behind)),
            _ if is_of_name(first) => {
                let end = rest.find(|it| !is_of_name(it)).unwrap_or(rest.len());
                let (name, behind) = rest.split_at_checked(end).unwrap_or((rest, ""));
                (Some(name.to_owned()), behind)
            }
            _ => (None, rest.get(first.len_utf8()..).unwrap_or_default()),
        };
        names.extend(name);
        rest = behind;
    }
    names
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '$' || !letter.is_ascii()
}

/// Takes a part in quotes from a text that begins with it. Two quotes within it are one.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut rest = text.get(1..).unwrap_or_default();
    let mut inner = String::new();
    while let Some((part, behind)) = rest.split_once(quote) {
        inner.push_str(part);
        match behind.strip_prefix(quote) {
            Some(more) => {
                inner.push(quote);
                rest = more;
            }
            None => return (inner, behind),
        }
    }
    (inner, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_each_form_and_not_in_texts_and_comments() {
        let question =
            "SELECT a.\"b\"\"c\", [d-e], `f`, 'no''t', x'00' -- not\n/* nor */ FROM é_1 WHERE g>='";
        let expected = [
            "SELECT", "a", "b\"c", "d-e", "f", "x", "FROM", "é_1", "WHERE", "g",
        ];
        assert_eq!(identifiers(question), expected);
        assert_eq!(identifiers("\"open"), [""; 1]);
    }
}
