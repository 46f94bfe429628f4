//! Words, numbers and signs, each with its line.

use super::PtxError;

/// The least part of a text.
#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    /// A name, an opcode with its modifiers or a directive with its dot.
    Word(String),
    /// A whole number; the sign is a token of its own.
    Integer(u64),
    /// The bits of an `0f` number.
    Single(u32),
    /// The bits of an `0d` number.
    Double(u64),
    /// A decimal number with a point or an exponent.
    Decimal(f64),
    /// A text in quotes.
    Text(String),
    /// Any other sign.
    Sign(char),
}

/// A token and its line, counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    pub token: Token,
    pub line: u32,
}

/// All tokens of `text` without its comments.
///
/// # Errors
/// A sign or number that PTX does not have; a comment or text without an end.
pub fn tokens(text: &str) -> Result<Vec<Located>, PtxError> {
    let mut lexer = Lexer { bytes: text.as_bytes(), at: 0, line: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks()?;
        let line = lexer.line;
        let Some(first) = lexer.peek(0) else { return Ok(tokens) };
        let token = lexer.token(first)?;
        tokens.push(Located { token, line });
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn error(&self, text: impl Into<String>) -> PtxError {
        PtxError::new(self.line, text)
    }

    fn skip_blanks(&mut self) -> Result<(), PtxError> {
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b'/', Some(b'/')) => {
                    while self.peek(0).is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                (b'/', Some(b'*')) => self.skip_comment()?,
                (byte, _) if byte.is_ascii_whitespace() => self.at += 1,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn skip_comment(&mut self) -> Result<(), PtxError> {
        self.at += 2;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'*'), Some(b'/')) => break,
                (Some(b'\n'), _) => self.line += 1,
                (Some(_), _) => {}
                (None, _) => return Err(self.error("a comment has no end")),
            }
            self.at += 1;
        }
        self.at += 2;
        Ok(())
    }

    fn token(&mut self, first: u8) -> Result<Token, PtxError> {
        match first {
            b'0'..=b'9' => self.number(),
            b'"' => self.text(),
            b'.' | b'_' | b'$' | b'%' | b'a'..=b'z' | b'A'..=b'Z' => Ok(self.word()),
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'<' | b'>' | b',' | b';' | b':' | b'@' | b'!' | b'|' | b'='
            | b'+' | b'-' | b'*' | b'~' | b'/' | b'&' | b'^' => {
                self.at += 1;
                Ok(Token::Sign(char::from(first)))
            }
            other => Err(self.error(format!("unexpected sign `{}`", char::from(other).escape_default()))),
        }
    }

    fn word(&mut self) -> Token {
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            match (byte, self.peek(1)) {
                (b':', Some(b':')) => self.at += 2,
                (b'.' | b'_' | b'$' | b'%', _) => self.at += 1,
                (byte, _) if byte.is_ascii_alphanumeric() => self.at += 1,
                _ => break,
            }
        }
        Token::Word(String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned())
    }

    fn text(&mut self) -> Result<Token, PtxError> {
        let start = self.at + 1;
        let length = self.bytes[start..].iter().position(|byte| *byte == b'"');
        let Some(length) = length else { return Err(self.error("a text has no end")) };
        self.at = start + length + 1;
        Ok(Token::Text(String::from_utf8_lossy(&self.bytes[start..start + length]).into_owned()))
    }

    fn number(&mut self) -> Result<Token, PtxError> {
        let start = self.at;
        let is_hexadecimal =
            self.peek(0) == Some(b'0') && matches!(self.peek(1), Some(b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
        while let Some(byte) = self.peek(0) {
            let is_exponent_sign =
                !is_hexadecimal && matches!(byte, b'+' | b'-') && matches!(self.bytes[self.at - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'_' || is_exponent_sign) {
                break;
            }
            self.at += 1;
        }
        let text = String::from_utf8_lossy(&self.bytes[start..self.at]).into_owned();
        read_number(&text).ok_or_else(|| self.error(format!("`{text}` is not a number of PTX")))
    }
}

fn read_number(text: &str) -> Option<Token> {
    let digits = text.trim_end_matches('U');
    let prefix = digits.get(..2).unwrap_or_default();
    let rest = digits.get(2..).unwrap_or_default();
    match prefix {
        "0x" | "0X" => u64::from_str_radix(rest, 16).ok().map(Token::Integer),
        "0f" | "0F" if rest.len() == 8 => u32::from_str_radix(rest, 16).ok().map(Token::Single),
        "0d" | "0D" if rest.len() == 16 => u64::from_str_radix(rest, 16).ok().map(Token::Double),
        "0b" | "0B" => u64::from_str_radix(rest, 2).ok().map(Token::Integer),
        _ if digits.contains(['.', 'e', 'E']) => digits.parse().ok().map(Token::Decimal),
        _ if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok().map(Token::Integer),
        _ => digits.parse().ok().map(Token::Integer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Token> {
        tokens(text).expect("PTX").into_iter().map(|located| located.token).collect()
    }

    #[test]
    fn words_keep_modifiers_and_labels_lose_their_colon() {
        let found = words("$L__BB0_1: @!%p1 cp.async.shared::cta.global [%rd1+-4], 16; // end");
        let expected = [
            Token::Word("$L__BB0_1".into()),
            Token::Sign(':'),
            Token::Sign('@'),
            Token::Sign('!'),
            Token::Word("%p1".into()),
            Token::Word("cp.async.shared::cta.global".into()),
            Token::Sign('['),
            Token::Word("%rd1".into()),
            Token::Sign('+'),
            Token::Sign('-'),
            Token::Integer(4),
            Token::Sign(']'),
            Token::Sign(','),
            Token::Integer(16),
            Token::Sign(';'),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_are_read_in_every_form() {
        let found = words("0f3F800000 0d3FF0000000000000 0x1F 017 0b101 12U 1.5e-3");
        let expected = [
            Token::Single(0x3f80_0000),
            Token::Double(0x3ff0_0000_0000_0000),
            Token::Integer(31),
            Token::Integer(15),
            Token::Integer(5),
            Token::Integer(12),
            Token::Decimal(1.5e-3),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let found = tokens("a /* x\n y */ b\n\nc").expect("PTX");
        assert_eq!(found.iter().map(|token| token.line).collect::<Vec<_>>(), [1, 2, 4]);
        let error = tokens("a\n ? b").expect_err("no sign of PTX");
        assert_eq!(error.to_string(), "PTX line 2: unexpected sign `?`");
        assert_eq!(tokens("0f12").expect_err("too short").to_string(), "PTX line 1: `0f12` is not a number of PTX");
    }
}
