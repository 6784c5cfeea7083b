//! Words and signs of an expression.

use crate::error::BadExpression;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Name(String),
    Int(i64),
    /// 2^63, which is a number only behind a minus.
    IntMin,
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A sign, such as `&&`.
    Sign(&'static str),
    End,
}

/// Signs, longer ones before those that they begin with.
const SIGNS: &[&str] = &[
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "?", ":", "+", "-", "*", "/", "%", "(", ")", "[", "]",
    ".", ",",
];

/// Words of CEL that are no names.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

pub(crate) fn bad(source: &str, at: usize, why: impl Into<String>) -> BadExpression {
    let before = source.get(..at).unwrap_or(source);
    BadExpression {
        column: before.chars().count() + 1,
        why: why.into(),
    }
}

/// Returns the tokens, each with its place in bytes; the last is [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<(usize, Token)>, BadExpression> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        let rest = source.get(at..).unwrap_or_default();
        let Some(first) = rest.chars().next() else {
            tokens.push((at, Token::End));
            return Ok(tokens);
        };
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        let (token, length) = token(source, at, rest, first)?;
        tokens.push((at, token));
        at += length;
    }
}

fn token(source: &str, at: usize, rest: &str, first: char) -> Result<(Token, usize), BadExpression> {
    if let Some((prefix, quote)) = quoted(rest) {
        return text(source, at, rest, prefix, quote);
    }
    let second_is_digit = rest.chars().nth(1).is_some_and(|c| c.is_ascii_digit());
    if first.is_ascii_digit() || (first == '.' && second_is_digit) {
        return number(source, at, rest);
    }
    if first.is_ascii_alphabetic() || first == '_' {
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let name = rest.get(..length).unwrap_or_default();
        if RESERVED.contains(&name) {
            return Err(bad(source, at, format!("{name} is a reserved word")));
        }
        return Ok((Token::Name(name.to_owned()), length));
    }
    match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        Some(sign) => Ok((Token::Sign(sign), sign.len())),
        None => Err(bad(source, at, format!("{first:?} has no meaning"))),
    }
}

/// Returns prefix and quote of a text or of bytes.
fn quoted(rest: &str) -> Option<(&str, char)> {
    let end = rest.find(['"', '\''])?;
    let prefix = rest.get(..end)?;
    let is_prefix = [
        "", "r", "R", "b", "B", "br", "bR", "Br", "BR", "rb", "rB", "Rb", "RB",
    ]
    .contains(&prefix);
    let quote = rest.get(end..)?.chars().next()?;
    is_prefix.then_some((prefix, quote))
}

fn text(
    source: &str,
    at: usize,
    rest: &str,
    prefix: &str,
    quote: char,
) -> Result<(Token, usize), BadExpression> {
    let is_raw = prefix.contains(['r', 'R']);
    let is_bytes = prefix.contains(['b', 'B']);
    let begin = prefix.len() + 1;
    let inside = rest.get(begin..).unwrap_or_default();
    let twice = [quote, quote];
    if inside.starts_with(twice.iter().collect::<String>().as_str()) {
        return Err(bad(source, at, "texts in three quotes are not known"));
    }
    let mut bytes = Vec::new();
    let mut chars = inside.char_indices();
    while let Some((place, c)) = chars.next() {
        let here = at + begin + place;
        if c == quote {
            let length = begin + place + 1;
            if is_bytes {
                return Ok((Token::Bytes(bytes), length));
            }
            let text = String::from_utf8(bytes);
            let text = text.map_err(|_| bad(source, at, "the text is not UTF-8"))?;
            return Ok((Token::Text(text), length));
        }
        if c == '\n' {
            break;
        }
        if c == '\\' && !is_raw {
            escape(source, here, &mut chars, is_bytes, &mut bytes)?;
        } else {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Err(bad(source, at, "the text has no end"))
}

fn escape(
    source: &str,
    at: usize,
    chars: &mut std::str::CharIndices<'_>,
    is_bytes: bool,
    out: &mut Vec<u8>,
) -> Result<(), BadExpression> {
    let refused = || bad(source, at, "there is no such escape");
    let (_, c) = chars.next().ok_or_else(refused)?;
    let plain = match c {
        '\\' | '\'' | '"' | '`' | '?' => c,
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        'x' | 'X' | 'u' | 'U' => {
            let digits = match c {
                'u' => 4,
                'U' => 8,
                _ => 2,
            };
            let mut code = 0;
            for _ in 0..digits {
                let digit = chars.next().and_then(|(_, c)| c.to_digit(16));
                code = code * 16 + digit.ok_or_else(refused)?;
            }
            if is_bytes && digits == 2 {
                out.push(u8::try_from(code).map_err(|_| refused())?);
                return Ok(());
            }
            char::from_u32(code).ok_or_else(refused)?
        }
        _ => return Err(refused()),
    };
    out.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes());
    Ok(())
}

fn number(source: &str, at: usize, rest: &str) -> Result<(Token, usize), BadExpression> {
    let mut length = 0;
    let mut is_whole = true;
    let bytes = rest.as_bytes();
    while let Some(byte) = bytes.get(length) {
        let next_is_digit = bytes.get(length + 1).is_some_and(u8::is_ascii_digit);
        let signed = bytes.get(length + 2).is_some_and(u8::is_ascii_digit)
            && matches!(bytes.get(length + 1), Some(b'+' | b'-'));
        match byte {
            b'0'..=b'9' => length += 1,
            b'.' if is_whole && next_is_digit => {
                is_whole = false;
                length += 1;
            }
            b'e' | b'E' if next_is_digit || signed => {
                is_whole = false;
                length += 2;
                length += bytes
                    .get(length..)
                    .unwrap_or_default()
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                break;
            }
            _ => break,
        }
    }
    let digits = rest.get(..length).unwrap_or_default();
    let behind = rest.get(length..).and_then(|rest| rest.chars().next());
    if behind.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
        let why = "a number is written in decimal digits, without letters behind it";
        return Err(bad(source, at, why));
    }
    if is_whole {
        return match digits.parse::<i64>() {
            Ok(number) => Ok((Token::Int(number), length)),
            Err(_) if digits.trim_start_matches('0') == "9223372036854775808" => Ok((Token::IntMin, length)),
            Err(_) => Err(bad(source, at, "whole numbers have 64 bits")),
        };
    }
    match digits.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok((Token::Double(number), length)),
        _ => Err(bad(source, at, "the number is too large")),
    }
}
