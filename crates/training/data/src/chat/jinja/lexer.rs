//! The tokens of a template, with the blanks that `trim_blocks` and `lstrip_blocks` leave.

use super::meter::{Fault, fault};
use super::numbers::{parse_float, parse_integer};
use super::strings::{is_space, unescaped};

/// A token with its line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) line: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// Text outside of tags.
    Data(String),
    /// `{{`.
    ExpressionBegins,
    /// `}}`.
    ExpressionEnds,
    /// `{%`.
    TagBegins,
    /// `%}`.
    TagEnds,
    Name(String),
    Text(String),
    Int(i128),
    Float(f64),
    Sign(&'static str),
}

/// Signs within tags, the longer ones first.
const SIGNS: [&str; 26] = [
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", "<", ">", "=", ".",
    ":", "|", ",", ";",
];

/// A mark at a delimiter, which decides about the blanks next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trim {
    /// `-`: all are dropped.
    All,
    /// `+`: all stay.
    Nothing,
    /// None: the rules of the environment hold.
    Rules,
}

/// A kind of tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Expression,
    Statement,
    Comment,
}

impl Tag {
    fn closing(self) -> &'static str {
        match self {
            Tag::Expression => "}}",
            Tag::Statement => "%}",
            Tag::Comment => "#}",
        }
    }
}

/// The tokens of `source`.
///
/// # Errors
/// A letter that begins no token, and a tag without its end, with their line.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, Fault> {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let source = source.strip_suffix('\n').unwrap_or(&source);
    let mut lexer = Lexer { source, at: 0, line: 1, starts_line: true, tokens: vec![] };
    let result = lexer.run();
    let line = lexer.line;
    result.map_err(|error| error.at(line))?;
    Ok(lexer.tokens)
}

struct Lexer<'s> {
    source: &'s str,
    at: usize,
    line: usize,
    /// Whether the last tag ended with the end of a line.
    starts_line: bool,
    tokens: Vec<Token>,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        self.line += self.rest()[..bytes].matches('\n').count();
        self.at += bytes;
    }

    fn push(&mut self, kind: TokenKind) {
        self.tokens.push(Token { kind, line: self.line });
    }

    fn run(&mut self) -> Result<(), Fault> {
        while self.at < self.source.len() {
            let rest = self.rest();
            let tags = [("{{", Tag::Expression), ("{%", Tag::Statement), ("{#", Tag::Comment)];
            let kind = |at: usize| tags.into_iter().find(|(opening, _)| rest[at..].starts_with(opening));
            let Some((at, (_, tag))) = first_tag(rest).and_then(|at| Some((at, kind(at)?))) else {
                self.data(rest);
                self.advance(rest.len());
                break;
            };
            let (trim, marked) = mark(&rest[at + 2..]);
            let data = self.before(&rest[..at], tag, trim);
            self.data(data);
            self.advance(at + 2 + marked);
            match tag {
                Tag::Comment => self.comment()?,
                Tag::Statement if self.begins_raw() => self.raw()?,
                Tag::Statement | Tag::Expression => self.tag(tag)?,
            }
        }
        Ok(())
    }

    fn data(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(TokenKind::Data(text.to_string()));
        }
    }

    /// `text` before a tag without the blanks that belong to it.
    fn before<'t>(&self, text: &'t str, tag: Tag, trim: Trim) -> &'t str {
        match (trim, tag) {
            (Trim::All, _) => text.trim_end_matches(is_space),
            (Trim::Nothing, _) | (Trim::Rules, Tag::Expression) => text,
            (Trim::Rules, Tag::Statement | Tag::Comment) => {
                let line = text.rfind('\n').map_or(0, |at| at + 1);
                let is_blank = text[line..].chars().all(is_space);
                if is_blank && (line > 0 || self.starts_line) { &text[..line] } else { text }
            }
        }
    }

    /// Ends a tag at its closing delimiter of `bytes` bytes with its mark, and drops the blanks after it.
    fn end(&mut self, tag: Tag, trim: Trim, bytes: usize) {
        let behind = &self.rest()[bytes..];
        let dropped = match (trim, tag) {
            (Trim::All, _) => behind.len() - behind.trim_start_matches(is_space).len(),
            (Trim::Nothing, _) | (Trim::Rules, Tag::Expression) => 0,
            (Trim::Rules, Tag::Statement | Tag::Comment) => usize::from(behind.starts_with('\n')),
        };
        self.starts_line = behind[..dropped].ends_with('\n');
        self.advance(bytes + dropped);
    }

    fn comment(&mut self) -> Result<(), Fault> {
        let end = self.rest().find("#}").ok_or_else(|| fault("a comment has no end"))?;
        let (trim, bytes) = match self.rest()[..end].chars().next_back() {
            Some('-') => (Trim::All, 3),
            Some('+') => (Trim::Nothing, 3),
            Some(_) | None => (Trim::Rules, 2),
        };
        self.advance(end + 2 - bytes);
        self.end(Tag::Comment, trim, bytes);
        Ok(())
    }

    /// Whether the tag is `raw`.
    fn begins_raw(&self) -> bool {
        let rest = self.rest().trim_start_matches(is_space);
        let Some(rest) = rest.strip_prefix("raw") else { return false };
        let rest = rest.trim_start_matches(is_space);
        rest.starts_with("%}") || rest.starts_with("-%}")
    }

    fn raw(&mut self) -> Result<(), Fault> {
        let rest = self.rest();
        let closing = rest.find("%}").unwrap_or_default();
        let all = rest[..closing].ends_with('-');
        self.advance(closing + 2);
        if all {
            let behind = self.rest();
            self.advance(behind.len() - behind.trim_start_matches(is_space).len());
        }
        self.starts_line = all && self.source[..self.at].ends_with('\n');
        let rest = self.rest();
        let mut from = 0;
        while let Some(at) = rest[from..].find("{%").map(|at| from + at) {
            let (trim, marked) = mark(&rest[at + 2..]);
            let inner = rest[at + 2 + marked..].trim_start_matches(is_space);
            if let Some(inner) = inner.strip_prefix("endraw") {
                let inner = inner.trim_start_matches(is_space);
                let (own, bytes) = mark(inner);
                if inner[bytes..].starts_with("%}") {
                    let data = self.before(&rest[..at], Tag::Statement, trim);
                    self.data(data);
                    self.advance(rest.len() - inner.len());
                    self.end(Tag::Statement, own, bytes + 2);
                    return Ok(());
                }
            }
            from = at + 2;
        }
        Err(fault("a block raw has no end"))
    }

    /// The tokens of a tag to its end, which is outside of all brackets.
    fn tag(&mut self, tag: Tag) -> Result<(), Fault> {
        let (begins, ends) = match tag {
            Tag::Expression => (TokenKind::ExpressionBegins, TokenKind::ExpressionEnds),
            Tag::Statement | Tag::Comment => (TokenKind::TagBegins, TokenKind::TagEnds),
        };
        self.push(begins);
        let mut open = 0_usize;
        loop {
            let rest = self.rest();
            let blanks = rest.len() - rest.trim_start_matches(is_space).len();
            self.advance(blanks);
            let rest = self.rest();
            let (trim, bytes) = mark(rest);
            // An expression has no mark `+` at its end.
            let is_mark = !(tag == Tag::Expression && trim == Trim::Nothing);
            if open == 0 && is_mark && rest[bytes..].starts_with(tag.closing()) {
                self.push(ends);
                self.end(tag, trim, bytes + 2);
                return Ok(());
            }
            let token = self.token(rest)?;
            if let TokenKind::Sign("(" | "[" | "{") = token {
                open += 1;
            } else if let TokenKind::Sign(")" | "]" | "}") = token {
                open =
                    open.checked_sub(1).ok_or_else(|| fault("syntax error: a bracket is closed that is not open"))?;
            }
        }
    }

    /// Takes one token, which is also returned.
    fn token(&mut self, rest: &str) -> Result<TokenKind, Fault> {
        let Some(first) = rest.chars().next() else {
            return Err(fault("syntax error: unexpected end of the template"));
        };
        let (kind, bytes) = if first == '\'' || first == '"' {
            string(rest, first)?
        } else if first.is_ascii_digit() {
            number(rest)?
        } else if first.is_alphabetic() || first == '_' {
            let bytes = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
            (TokenKind::Name(rest[..bytes].to_string()), bytes)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| fault(format!("syntax error: unexpected {first:?}")))?;
            (TokenKind::Sign(sign), sign.len())
        };
        self.push(kind.clone());
        self.advance(bytes);
        Ok(kind)
    }
}

/// Where the first tag begins.
fn first_tag(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(1)).find(|at| bytes[*at] == b'{' && matches!(bytes[at + 1], b'{' | b'%' | b'#'))
}

/// The mark at the beginning of `text`, and its bytes.
fn mark(text: &str) -> (Trim, usize) {
    match text.as_bytes().first() {
        Some(b'-') => (Trim::All, 1),
        Some(b'+') => (Trim::Nothing, 1),
        Some(_) | None => (Trim::Rules, 0),
    }
}

/// A string in the quote `quote` at the beginning of `text`, and its bytes.
fn string(text: &str, quote: char) -> Result<(TokenKind, usize), Fault> {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if letter == quote {
            return Ok((TokenKind::Text(unescaped(&text[1..at])?), at + 1));
        }
    }
    Err(fault("syntax error: a string has no end"))
}

/// A number at the beginning of `text`, and its bytes.
fn number(text: &str) -> Result<(TokenKind, usize), Fault> {
    let digits = |from: usize| {
        text[from..].find(|letter: char| !letter.is_ascii_digit() && letter != '_').map_or(text.len(), |end| from + end)
    };
    if text.starts_with('0') && text[1..].starts_with(['x', 'X', 'o', 'O', 'b', 'B']) {
        let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len());
        let value = parse_integer(&text[..end], 0)
            .ok_or_else(|| fault(format!("syntax error: {} is not a number", &text[..end])))?;
        return Ok((TokenKind::Int(value), end));
    }
    let whole = digits(0);
    let mut end = whole;
    if text[end..].starts_with('.') && text[end + 1..].starts_with(|digit: char| digit.is_ascii_digit()) {
        end = digits(end + 1);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        if text[end + 1 + sign..].starts_with(|digit: char| digit.is_ascii_digit()) {
            end = digits(end + 1 + sign);
        }
    }
    let literal = &text[..end];
    let no_number = || fault(format!("syntax error: {literal} is not a number, or has more than 128 bits"));
    match end == whole {
        true => Ok((TokenKind::Int(parse_integer(literal, 10).ok_or_else(no_number)?), end)),
        false => Ok((TokenKind::Float(parse_float(literal).ok_or_else(no_number)?), end)),
    }
}
