//! Instructions and their operands.

use super::lexer::Token;
use super::parser::Parser;
use super::{Base, Guard, Immediate, Operand, PtxError, Register, Special, Statement, Symbol, Width};

impl Parser<'_> {
    /// An instruction up to its semicolon.
    pub fn statement(&mut self) -> Result<Statement, PtxError> {
        let start = self.place();
        let guard = if self.takes('@') { Some(self.guard()?) } else { None };
        let line = self.line();
        let opcode = self.word()?;
        let parts = opcode.split('.').map(str::to_string).collect();
        let mut operands = Vec::new();
        while !self.takes(';') {
            if !operands.is_empty() {
                self.expect(',')?;
            }
            operands.push(self.operand()?);
        }
        Ok(Statement { line, guard, parts, operands, text: self.text_since(start) })
    }

    fn guard(&mut self) -> Result<Guard, PtxError> {
        let is_negated = self.takes('!');
        Ok(Guard { predicate: self.predicate()?, is_negated })
    }

    fn predicate(&mut self) -> Result<Register, PtxError> {
        let name = self.word()?;
        match self.scopes.register(&name) {
            Some(register) if register.width == Width::Predicate => Ok(register),
            _ => Err(self.error(format!("`{name}` is not a predicate"))),
        }
    }

    fn operand(&mut self) -> Result<Operand, PtxError> {
        if self.takes('!') {
            return self.predicate().map(Operand::Not);
        }
        if self.takes('[') {
            return self.bracketed();
        }
        if self.takes('{') {
            self.nest()?;
            let mut elements = Vec::new();
            while !self.takes('}') {
                if !elements.is_empty() {
                    self.expect(',')?;
                }
                elements.push(self.operand()?);
            }
            self.unnest();
            return Ok(Operand::Vector(elements));
        }
        let first = self.plain_operand()?;
        if self.takes('|') {
            let second = self.plain_operand()?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn plain_operand(&mut self) -> Result<Operand, PtxError> {
        let Some(Token::Word(name)) = self.peek() else { return self.immediate().map(Operand::Immediate) };
        let name = name.clone();
        self.advance();
        if name == "WARP_SZ" {
            return Ok(Operand::Immediate(Immediate::Integer(32)));
        }
        if name == "_" {
            return Ok(Operand::Sink);
        }
        if let Some(register) = self.scopes.register(&name) {
            return Ok(Operand::Register(register));
        }
        if let Some(label) = self.scopes.label(&name) {
            return Ok(Operand::Label(label));
        }
        if let Some(special) = Special::of(&name) {
            return Ok(Operand::Special(special));
        }
        if name.starts_with('%') {
            return Err(self.error(format!("unknown register {name}")));
        }
        let offset = self.offset()?;
        Ok(Operand::Symbol(Symbol { name, offset }))
    }

    /// An address, from after its bracket on.
    fn bracketed(&mut self) -> Result<Operand, PtxError> {
        let base = if let Some(Token::Word(name)) = self.peek() {
            let name = name.clone();
            self.advance();
            match self.scopes.register(&name) {
                Some(register) => Base::Register(register),
                None if name.starts_with('%') => return Err(self.error(format!("unknown register {name}"))),
                None => Base::Symbol(name),
            }
        } else {
            Base::Zero
        };
        if base != Base::Zero && self.takes(',') {
            let Operand::Vector(coordinates) = self.operand()? else {
                return Err(self.error("expected coordinates in braces"));
            };
            self.expect(']')?;
            return Ok(Operand::Box(base, coordinates));
        }
        let offset = if base == Base::Zero { self.integer()? as i64 } else { self.offset()? };
        self.expect(']')?;
        Ok(Operand::Address(base, offset))
    }

    fn offset(&mut self) -> Result<i64, PtxError> {
        if self.takes('+') || self.sees('-') { Ok(self.integer()? as i64) } else { Ok(0) }
    }
}
