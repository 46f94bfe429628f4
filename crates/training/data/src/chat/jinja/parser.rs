//! The parser of blocks.

use std::collections::HashMap;
use std::sync::Arc;

use super::ast::{Block, Expr, ExprKind, For, Link, LinkKind, Macro, Name, Parameter, Place, Statement, StatementKind};
use super::expressions::unexpected;
use super::lexer::{Token, TokenKind, tokens};
use super::meter::{Fault, fault};

/// Most blocks, brackets and prefixes within each other.
const MOST_NESTING: usize = 100;
/// Most bytes of a template.
const MOST_SOURCE_BYTES: usize = 1 << 20;

/// A template that was parsed.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) body: Block,
    /// Names by number.
    pub(super) names: Vec<Arc<str>>,
    pub(super) numbers: HashMap<Arc<str>, Name>,
    /// Whether it has blocks of answers.
    pub(super) marks_answers: bool,
}

/// A block that is open, with the names that end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Loop,
    Branch,
    /// A block with a scope or an output of its own, by its name.
    Other(&'static str),
}

pub(super) struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
    open: Vec<Open>,
    numbers: HashMap<Arc<str>, Name>,
    names: Vec<Arc<str>>,
    marks_answers: bool,
}

/// Parses `source`.
///
/// # Errors
/// The first mistake, with its line.
pub(super) fn parse(source: &str) -> Result<Parsed, Fault> {
    if source.len() > MOST_SOURCE_BYTES {
        return Err(fault(format!("it has {} bytes; at most {MOST_SOURCE_BYTES} are read", source.len())));
    }
    let tokens = tokens(source)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        depth: 0,
        open: vec![],
        numbers: HashMap::new(),
        names: vec![],
        marks_answers: false,
    };
    let body = parser.block(&[]).map_err(|error| error.at(parser.line()))?;
    Ok(Parsed { body, names: parser.names, numbers: parser.numbers, marks_answers: parser.marks_answers })
}

impl<'t> Parser<'t> {
    pub(super) fn peek(&self) -> Option<&'t TokenKind> {
        self.tokens.get(self.at).map(|token| &token.kind)
    }

    /// The line of the next token, or of the last.
    pub(super) fn line(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    pub(super) fn skip(&mut self, count: usize) {
        self.at += count;
    }

    pub(super) fn next(&mut self) -> Option<&'t TokenKind> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    pub(super) fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Some(TokenKind::Sign(own)) if *own == sign)
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self.peek(), Some(TokenKind::Name(own)) if own == name)
    }

    /// Whether the token after the next one is `name`.
    pub(super) fn is_name_behind(&self, name: &str) -> bool {
        matches!(self.tokens.get(self.at + 1).map(|token| &token.kind), Some(TokenKind::Name(own)) if own == name)
    }

    pub(super) fn skip_sign(&mut self, sign: &str) -> bool {
        let is_next = self.is_sign(sign);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn skip_name(&mut self, name: &str) -> bool {
        let is_next = self.is_name(name);
        self.at += usize::from(is_next);
        is_next
    }

    /// The name of a named argument, which is skipped with its `=`.
    pub(super) fn skip_keyword(&mut self) -> Option<&'t str> {
        let Some(TokenKind::Name(name)) = self.peek() else { return None };
        let is_keyword = matches!(self.tokens.get(self.at + 1).map(|token| &token.kind), Some(TokenKind::Sign("=")));
        self.at += if is_keyword { 2 } else { 0 };
        is_keyword.then_some(name.as_str())
    }

    pub(super) fn expect_sign(&mut self, sign: &str) -> Result<(), Fault> {
        match self.skip_sign(sign) {
            true => Ok(()),
            false => Err(unexpected(self.peek(), &format!("`{sign}`"))),
        }
    }

    pub(super) fn expect_name(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(TokenKind::Name(name)) => {
                self.at += 1;
                Ok(name.clone())
            }
            other => Err(unexpected(other, "a name")),
        }
    }

    /// Whether an expression cannot begin here.
    pub(super) fn ends_expression(&self) -> bool {
        matches!(self.peek(), None | Some(TokenKind::TagEnds | TokenKind::ExpressionEnds | TokenKind::Sign(")" | "=")))
            || self.is_name("in")
    }

    /// The number of a name.
    pub(super) fn name(&mut self, name: &str) -> Name {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let (name, number): (Arc<str>, _) = (name.into(), Name(self.names.len() as u32));
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }

    /// The result of `inner`, one level deeper.
    ///
    /// # Errors
    /// Too many levels.
    pub(super) fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.depth += 1;
        if self.depth > MOST_NESTING {
            return Err(fault(format!(
                "syntax error: it nests deeper than {MOST_NESTING} blocks, brackets and prefixes"
            )));
        }
        let result = inner(self)?;
        self.depth -= 1;
        Ok(result)
    }

    /// Statements to a tag of one of the names `ends`, which is next, or to the end of the template.
    fn block(&mut self, ends: &[&str]) -> Result<Block, Fault> {
        let mut block = vec![];
        loop {
            let line = self.line();
            let kind = match self.peek() {
                None if ends.is_empty() => return Ok(block),
                None => {
                    return Err(fault(format!(
                        "syntax error: unexpected end of the template; expected {}",
                        ends.join(" or ")
                    )));
                }
                Some(TokenKind::Data(text)) => {
                    self.skip(1);
                    StatementKind::Data(text.as_str().into())
                }
                Some(TokenKind::ExpressionBegins) => {
                    self.skip(1);
                    let value = self.expressions()?;
                    match self.next() {
                        Some(TokenKind::ExpressionEnds) => StatementKind::Print(value),
                        other => return Err(unexpected(other, "the end of the expression")),
                    }
                }
                Some(_) => {
                    self.skip(1);
                    match self.peek() {
                        Some(TokenKind::Name(name)) if ends.contains(&name.as_str()) => return Ok(block),
                        Some(_) | None => {}
                    }
                    self.nested(Parser::statement)?
                }
            };
            block.push(Statement { kind, line });
        }
    }

    /// A block in `open` to its tag `end`, which is skipped.
    fn body(&mut self, open: Open, end: &'static str) -> Result<Block, Fault> {
        self.end_tag()?;
        self.open.push(open);
        let block = self.block(&[end])?;
        self.open.pop();
        self.skip(1);
        self.end_tag()?;
        Ok(block)
    }

    fn end_tag(&mut self) -> Result<(), Fault> {
        match self.next() {
            Some(TokenKind::TagEnds) => Ok(()),
            other => Err(unexpected(other, "the end of the block")),
        }
    }

    /// The statement whose tag has begun.
    fn statement(&mut self) -> Result<StatementKind, Fault> {
        let word = match self.next() {
            Some(TokenKind::Name(word)) => word.as_str(),
            other => return Err(unexpected(other, "a statement")),
        };
        match word {
            "if" => self.branches(),
            "for" => self.loop_(),
            "set" => self.set(),
            "with" => self.with(),
            "macro" => self.macro_(),
            "call" => self.call(),
            "filter" => {
                let links = self.filters()?;
                Ok(StatementKind::Filter(links, self.body(Open::Other("filter"), "endfilter")?))
            }
            "generation" => {
                self.marks_answers = true;
                Ok(StatementKind::Generation(self.body(Open::Other("generation"), "endgeneration")?))
            }
            "do" => {
                let value = self.expressions()?;
                self.end_tag()?;
                Ok(StatementKind::Evaluate(value))
            }
            "break" => self.jump("break", StatementKind::Break),
            "continue" => self.jump("continue", StatementKind::Continue),
            other => {
                let name: String = other.chars().take(40).collect();
                Err(fault(format!("syntax error: unexpected block `{name}`")))
            }
        }
    }

    /// A jump, which must not leave a block with a scope or an output of its own.
    fn jump(&mut self, word: &str, kind: StatementKind) -> Result<StatementKind, Fault> {
        match self.open.iter().rev().find(|open| **open != Open::Branch) {
            Some(Open::Loop) => {}
            Some(Open::Other(block)) => {
                return Err(fault(format!("it has a {word} in a block {block}, which must be in the loop whole")));
            }
            Some(Open::Branch) | None => return Err(fault(format!("syntax error: {word} is in no loop"))),
        }
        self.end_tag()?;
        Ok(kind)
    }

    fn branches(&mut self) -> Result<StatementKind, Fault> {
        let mut branches = vec![];
        self.open.push(Open::Branch);
        loop {
            let test = self.expressions()?;
            self.end_tag()?;
            branches.push((test, self.block(&["elif", "else", "endif"])?));
            if !self.skip_name("elif") {
                break;
            }
        }
        let otherwise = match self.skip_name("else") {
            true => {
                self.end_tag()?;
                self.block(&["endif"])?
            }
            false => vec![],
        };
        self.open.pop();
        self.skip(1);
        self.end_tag()?;
        Ok(StatementKind::If(branches, otherwise))
    }

    fn loop_(&mut self) -> Result<StatementKind, Fault> {
        let place = self.place(Attributes::Refused)?;
        if !self.skip_name("in") {
            return Err(unexpected(self.peek(), "`in`"));
        }
        let elements = self.loop_elements()?;
        let condition = if self.skip_name("if") { Some(self.expressions()?) } else { None };
        let is_recursive = self.skip_name("recursive");
        self.end_tag()?;
        self.open.push(Open::Loop);
        let body = self.block(&["else", "endfor"])?;
        self.open.pop();
        let otherwise = match self.skip_name("else") {
            true => {
                self.end_tag()?;
                self.block(&["endfor"])?
            }
            false => vec![],
        };
        self.skip(1);
        self.end_tag()?;
        Ok(StatementKind::For(Box::new(For { place, elements, condition, is_recursive, body, otherwise })))
    }

    /// The elements of a loop: an `if` after them is its condition.
    fn loop_elements(&mut self) -> Result<Expr, Fault> {
        let line = self.line();
        let first = self.condition()?;
        if !self.is_sign(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_sign(",") {
            if self.ends_expression() {
                break;
            }
            all.push(self.condition()?);
        }
        Ok(Expr { kind: ExprKind::Tuple(all), line })
    }

    fn set(&mut self) -> Result<StatementKind, Fault> {
        let place = self.place(Attributes::Allowed)?;
        if self.skip_sign("=") {
            let value = self.expressions()?;
            self.end_tag()?;
            return Ok(StatementKind::Set(place, value));
        }
        let links = if self.skip_sign("|") { self.filters()? } else { vec![] };
        let body = self.body(Open::Other("set"), "endset")?;
        Ok(StatementKind::SetBlock(place, links, body))
    }

    /// Filters of a block: the first has no `|` before it.
    fn filters(&mut self) -> Result<Vec<Link>, Fault> {
        let mut links = vec![];
        loop {
            let line = self.line();
            links.push(Link { kind: self.filter()?, line });
            if !self.skip_sign("|") {
                return Ok(links);
            }
        }
    }

    fn with(&mut self) -> Result<StatementKind, Fault> {
        let mut values = vec![];
        while !matches!(self.peek(), Some(TokenKind::TagEnds)) {
            let place = self.single_place(Attributes::Refused)?;
            self.expect_sign("=")?;
            values.push((place, self.expression()?));
            if !self.skip_sign(",") {
                break;
            }
        }
        Ok(StatementKind::With(values, self.body(Open::Other("with"), "endwith")?))
    }

    fn macro_(&mut self) -> Result<StatementKind, Fault> {
        let name = self.expect_name()?;
        let number = self.name(&name);
        let (parameters, defaults) = self.parameters()?;
        let body = self.body(Open::Other("macro"), "endmacro")?;
        Ok(StatementKind::Macro(number, Box::new(Macro { name: name.into(), parameters, defaults, body })))
    }

    fn call(&mut self) -> Result<StatementKind, Fault> {
        let (parameters, defaults) = if self.is_sign("(") { self.parameters()? } else { (vec![], vec![]) };
        let call = self.expression()?;
        let last = if let ExprKind::Chain(_, links) = &call.kind { links.last() } else { None };
        if !last.is_some_and(|link| matches!(link.kind, LinkKind::Call(_))) {
            return Err(fault("syntax error: a block call has no call"));
        }
        let body = self.body(Open::Other("call"), "endcall")?;
        Ok(StatementKind::Call(call, Box::new(Macro { name: "caller".into(), parameters, defaults, body })))
    }

    fn parameters(&mut self) -> Result<(Vec<Parameter>, Vec<Expr>), Fault> {
        self.expect_sign("(")?;
        let (mut parameters, mut defaults) = (vec![], vec![]);
        while !self.is_sign(")") {
            let name = self.expect_name()?;
            parameters.push((self.name(&name), name.as_str().into()));
            if self.skip_sign("=") {
                defaults.push(self.expression()?);
            } else if !defaults.is_empty() {
                return Err(fault("syntax error: a parameter without a value is after one with a value"));
            }
            if !self.skip_sign(",") {
                break;
            }
        }
        self.expect_sign(")")?;
        Ok((parameters, defaults))
    }

    /// One place, or several without brackets.
    fn place(&mut self, attributes: Attributes) -> Result<Place, Fault> {
        let first = self.single_place(attributes)?;
        if !self.is_sign(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_sign(",") {
            if self.ends_expression() {
                break;
            }
            all.push(self.single_place(attributes)?);
        }
        Ok(Place::Tuple(all))
    }

    fn single_place(&mut self, attributes: Attributes) -> Result<Place, Fault> {
        if self.skip_sign("(") {
            let inner = self.nested(|parser| parser.place(attributes))?;
            self.expect_sign(")")?;
            return Ok(inner);
        }
        let name = self.expect_name()?;
        let number = self.name(&name);
        if attributes == Attributes::Allowed && self.skip_sign(".") {
            return Ok(Place::Attribute(number, self.expect_name()?.as_str().into()));
        }
        if ["true", "True", "false", "False", "none", "None"].contains(&name.as_str()) {
            return Err(fault(format!("syntax error: {name} cannot be set")));
        }
        Ok(Place::Name(number))
    }
}

/// Whether attributes of namespaces are places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attributes {
    Allowed,
    Refused,
}
