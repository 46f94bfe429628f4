//! Messages for people on the standard error, and texts that a terminal may show.

use std::io::{self, Write};

use config::without_credentials;

/// A text with the characters that steer a terminal as `\u009b`, a form that strings of JSON and TOML have, too.
pub fn without_codes(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && is_steering(c) {
            result.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            result.push(c);
        }
    }
    result
}

/// Whether `c` steers a terminal or turns the direction of a line. All of these have four hexadecimal digits.
fn is_steering(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Tells people something on the standard error, with characters that steer a terminal as numbers. Nothing depends on
/// whether it arrives.
pub fn tell(text: &str) {
    let _ = write_message(&mut io::stderr(), text);
}

/// Writes `text` to one of the two streams, with characters that steer a terminal as numbers.
///
/// # Errors
/// A stream that cannot be written, or that nobody reads any more.
pub fn write_message(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(harmless(text).as_bytes()).and_then(|()| out.flush())
}

/// A message without characters that steer a terminal, and without credentials in an address that it quotes.
pub fn harmless(text: &str) -> String {
    without_codes(&without_credentials(text))
}

/// The longest line of a message.
const LINE_CHARACTERS: usize = 4096;

/// A message that quotes files of others, as a terminal may show it: characters that steer a terminal, or turn the
/// direction of a line, are written as numbers, and a line ends where nobody reads on.
pub fn shown(message: &str) -> String {
    message.lines().map(shown_line).collect::<Vec<_>>().join("\n")
}

fn shown_line(line: &str) -> String {
    let kept: String = line.chars().take(LINE_CHARACTERS).collect();
    let mut shown = harmless(&kept);
    let left = line.chars().count().saturating_sub(LINE_CHARACTERS);
    if left > 0 {
        shown.push_str(&format!("... ({left} more characters)"));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_steer_the_terminal_and_end() {
        assert_eq!(shown("a\x1b[31m\tb\u{202e}\n\u{9b}é"), "a\\u001b[31m\tb\\u202e\n\\u009bé");
        let long = shown(&format!("{}\nb", "é".repeat(5000)));
        assert_eq!(long, format!("{}... (904 more characters)\nb", "é".repeat(4096)));
    }

    #[test]
    fn messages_have_no_characters_that_steer_and_all_of_their_lines() {
        assert_eq!(harmless("a\x1b[31m\n\nb\u{202e}\tc\n"), "a\\u001b[31m\n\nb\\u202e\tc\n");
        assert_eq!(harmless(""), "");
        assert_eq!(without_codes("\x1b]0;title\x07\r\n"), "\\u001b]0;title\\u0007\\u000d\n");
    }
}
