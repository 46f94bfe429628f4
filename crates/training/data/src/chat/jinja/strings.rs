//! Texts as Python reads them: blanks, lines and words, and the escapes of string literals.

use super::meter::{Fault, fault};

/// Whether Python takes a letter for a blank.
pub(super) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// The content of a string literal with its escapes replaced.
pub(super) fn unescaped(literal: &str) -> Result<String, Fault> {
    let mut text = String::with_capacity(literal.len());
    let mut rest = literal;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(letter) = rest.chars().next() else {
            text.push('\\');
            break;
        };
        rest = &rest[letter.len_utf8()..];
        match letter {
            '\n' => {}
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'a' => text.push('\u{7}'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'v' => text.push('\u{b}'),
            '\\' | '\'' | '"' => text.push(letter),
            'x' => rest = code(&mut text, rest, 2)?,
            'u' => rest = code(&mut text, rest, 4)?,
            'U' => rest = code(&mut text, rest, 8)?,
            '0'..='7' => {
                let len = 1 + rest.bytes().take(2).take_while(|digit| (b'0'..=b'7').contains(digit)).count();
                let octal = &literal[literal.len() - rest.len() - 1..][..len];
                text.extend(u32::from_str_radix(octal, 8).ok().and_then(char::from_u32));
                rest = &rest[len - 1..];
            }
            _ => {
                text.push('\\');
                text.push(letter);
            }
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// Adds the letter whose code is in the first `len` digits of `rest`; a pair of surrogates is one letter. Returns what
/// follows.
fn code<'t>(text: &mut String, rest: &'t str, len: usize) -> Result<&'t str, Fault> {
    let wrong = || fault("syntax error: a string has an escape without its code");
    let number = |digits: Option<&str>| {
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit())).ok_or_else(wrong)?;
        u32::from_str_radix(digits, 16).map_err(|_| wrong())
    };
    let high = number(rest.get(..len))?;
    let rest = &rest[len..];
    if let Some(letter) = char::from_u32(high) {
        text.push(letter);
        return Ok(rest);
    }
    let low = rest.strip_prefix("\\u").and_then(|rest| number(rest.get(..4)).ok()).ok_or_else(wrong)?;
    let units = [high, low].map(|unit| u16::try_from(unit).unwrap_or_default());
    let letter = char::decode_utf16(units).next().and_then(Result::ok).ok_or_else(wrong)?;
    text.push(letter);
    Ok(&rest[6..])
}

/// The lines of a text, with their ends, as Python splits them.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_end = |letter: char| {
            matches!(letter, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
        };
        let Some((at, letter)) = rest.char_indices().find(|(_, letter)| is_end(*letter)) else {
            return Some((std::mem::take(&mut rest), ""));
        };
        let len = if rest[at..].starts_with("\r\n") { 2 } else { letter.len_utf8() };
        let line = (&rest[..at], &rest[at..at + len]);
        rest = &rest[at + len..];
        Some(line)
    })
}

/// The first letter large, the others small.
pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    first + &letters.as_str().to_lowercase()
}

/// The first letter of each word large, the others small. `begins` says after which letters a word begins.
pub(super) fn titled(text: &str, begins: impl Fn(char) -> bool) -> String {
    let (mut titled, mut starts) = (String::with_capacity(text.len()), true);
    for letter in text.chars() {
        match starts {
            true => titled.extend(letter.to_uppercase()),
            false => titled.extend(letter.to_lowercase()),
        }
        starts = begins(letter);
    }
    titled
}
