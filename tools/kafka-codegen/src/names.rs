//! Names of the schemas as names of Rust.

/// `TopicId` as `topic_id`; a run of capitals is one word.
pub fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let after_lower = at > 0 && !letters[at - 1].is_uppercase();
        let before_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && at > 0 && (after_lower || before_lower) {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    match out.as_str() {
        "match" | "type" => out + "_",
        _ => out,
    }
}

/// `ISRNodes` as `IsrNodes`.
pub fn camel(name: &str) -> String {
    snake(name).split('_').map(capitalised).collect()
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}
