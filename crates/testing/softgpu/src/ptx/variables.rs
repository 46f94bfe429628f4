//! Declarations of variables and parameters.

use super::lexer::Token;
use super::parser::Parser;
use super::{Immediate, Initial, PtxError, Scalar, Space, Variable};

/// The space that a directive names.
pub fn space_of(directive: &str) -> Option<Space> {
    Some(match directive {
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Param,
        _ => return None,
    })
}

/// The most bytes of a variable.
const MAX_BYTES: usize = 1 << 28;
/// The largest alignment.
const MAX_ALIGN: u64 = 1 << 12;

impl Parser<'_> {
    /// A variable, from after the directive of its space on.
    pub fn variable(&mut self, space: Space) -> Result<Variable, PtxError> {
        let mut align = None;
        let mut scalar = None;
        let mut elements = 1;
        let name = loop {
            let word = self.word()?;
            match word.as_str() {
                ".align" => match self.integer()? {
                    bytes if bytes.is_power_of_two() && bytes <= MAX_ALIGN => align = Some(bytes as usize),
                    bytes => return Err(self.error(format!(".align {bytes} must be a power of two up to {MAX_ALIGN}"))),
                },
                ".v2" => elements = 2,
                ".v4" => elements = 4,
                // A parameter that points: the size and space of what it points to say nothing about the parameter.
                ".ptr" => self.skip_pointer_facts()?,
                _ => match word.strip_prefix('.') {
                    Some(kind) => {
                        let found = Scalar::of(kind);
                        scalar = Some(found.ok_or_else(|| self.error(format!("unknown type {word} of a variable")))?);
                    }
                    None => break word,
                },
            }
        };
        let scalar = scalar.ok_or_else(|| self.error(format!("{name} has no type")))?;
        let mut bytes = elements * scalar.bytes();
        while self.takes('[') {
            let count = if self.sees(']') { 0 } else { self.integer()? as usize };
            self.expect(']')?;
            bytes = bytes
                .checked_mul(count)
                .filter(|bytes| *bytes <= MAX_BYTES)
                .ok_or_else(|| self.error(format!("{name} must have at most {MAX_BYTES} bytes")))?;
        }
        let initial = if self.takes('=') { self.initial()? } else { vec![] };
        // An array without a length has that of its first values.
        if bytes == 0 {
            bytes = initial.len() * scalar.bytes();
        }
        Ok(Variable { name, space, align: align.unwrap_or(elements * scalar.bytes()), scalar, bytes, initial })
    }

    fn skip_pointer_facts(&mut self) -> Result<(), PtxError> {
        while let Some(Token::Word(word)) = self.peek() {
            match word.as_str() {
                ".global" | ".const" | ".shared" | ".local" => self.advance(),
                ".align" => {
                    self.advance();
                    self.integer()?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn initial(&mut self) -> Result<Vec<Initial>, PtxError> {
        let mut values = Vec::new();
        if !self.takes('{') {
            values.push(self.initial_value()?);
            return Ok(values);
        }
        let mut depth = 1;
        while depth > 0 {
            if self.takes('{') {
                depth += 1;
            } else if self.takes('}') {
                depth -= 1;
            } else if !self.takes(',') {
                values.push(self.initial_value()?);
            }
        }
        Ok(values)
    }

    fn initial_value(&mut self) -> Result<Initial, PtxError> {
        if let Some(Token::Word(name)) = self.peek() {
            let name = name.clone();
            self.advance();
            if name == "generic" && self.takes('(') {
                let inner = self.word()?;
                self.expect(')')?;
                return Ok(Initial::Address(inner));
            }
            return Ok(Initial::Address(name));
        }
        self.immediate().map(Initial::Number)
    }

    /// A number with its sign.
    pub fn immediate(&mut self) -> Result<Immediate, PtxError> {
        let is_negative = self.takes('-');
        let token = self.peek().cloned();
        self.advance();
        let value = match token {
            Some(Token::Integer(value)) => Immediate::Integer(if is_negative { value.wrapping_neg() } else { value }),
            Some(Token::Single(bits)) => Immediate::Single(if is_negative { bits ^ 1 << 31 } else { bits }),
            Some(Token::Double(bits)) => Immediate::Double(if is_negative { bits ^ 1 << 63 } else { bits }),
            Some(Token::Decimal(value)) => Immediate::Double(if is_negative { -value } else { value }.to_bits()),
            other => return Err(self.error(format!("expected a number, found {}", written(other.as_ref())))),
        };
        Ok(value)
    }
}

/// A token as it is written in the text, nearly.
pub fn written(token: Option<&Token>) -> String {
    match token {
        None => "the end".into(),
        Some(Token::Word(word)) => format!("`{word}`"),
        Some(Token::Integer(value)) => format!("`{value}`"),
        Some(Token::Single(bits)) => format!("`0f{bits:08X}`"),
        Some(Token::Double(bits)) => format!("`0d{bits:016X}`"),
        Some(Token::Decimal(value)) => format!("`{value}`"),
        Some(Token::Text(text)) => format!("\"{text}\""),
        Some(Token::Sign(sign)) => format!("`{sign}`"),
    }
}
