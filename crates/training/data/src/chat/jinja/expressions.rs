//! The parser of expressions: the levels of operators are those of jinja2.

use std::sync::Arc;

use super::ast::{Arguments, Comparison, Expr, ExprKind, Link, LinkKind, Named};
use super::filters::{self, predicates};
use super::lexer::TokenKind;
use super::meter::{Fault, fault};
use super::operations::{Operation, Sign};
use super::parser::Parser;
use super::value::Value;

/// A level of operators; those of the next one bind closer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Sum,
    Join,
    Product,
    Power,
}

impl Parser<'_> {
    /// An expression, or a tuple of several without brackets.
    pub(super) fn expressions(&mut self) -> Result<Expr, Fault> {
        let line = self.line();
        let first = self.expression()?;
        if !self.is_sign(",") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_sign(",") {
            if self.ends_expression() {
                break;
            }
            all.push(self.expression()?);
        }
        Ok(Expr { kind: ExprKind::Tuple(all), line })
    }

    pub(super) fn expression(&mut self) -> Result<Expr, Fault> {
        self.nested(|parser| {
            let line = parser.line();
            let then = parser.condition()?;
            if !parser.skip_name("if") {
                return Ok(then);
            }
            let test = parser.condition()?;
            let otherwise = if parser.skip_name("else") { Some(Box::new(parser.expression()?)) } else { None };
            Ok(Expr { kind: ExprKind::Choice(Box::new([then, test]), otherwise), line })
        })
    }

    /// An expression without `if`.
    pub(super) fn condition(&mut self) -> Result<Expr, Fault> {
        self.several("or", |parser| parser.several("and", Parser::negation, ExprKind::All), ExprKind::Any)
    }

    /// Operands of `word`.
    fn several(
        &mut self,
        word: &str,
        operand: impl Fn(&mut Self) -> Result<Expr, Fault>,
        kind: fn(Vec<Expr>) -> ExprKind,
    ) -> Result<Expr, Fault> {
        let line = self.line();
        let first = operand(self)?;
        if !self.is_name(word) {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_name(word) {
            all.push(operand(self)?);
        }
        Ok(Expr { kind: kind(all), line })
    }

    fn negation(&mut self) -> Result<Expr, Fault> {
        let line = self.line();
        if !self.skip_name("not") {
            return self.comparison();
        }
        let inner = self.nested(Parser::negation)?;
        Ok(Expr { kind: ExprKind::Not(Box::new(inner)), line })
    }

    fn comparison(&mut self) -> Result<Expr, Fault> {
        let line = self.line();
        let first = self.level(Level::Sum)?;
        let mut others = vec![];
        loop {
            let comparison = match self.peek() {
                Some(TokenKind::Sign("==")) => Comparison::Equal,
                Some(TokenKind::Sign("!=")) => Comparison::NotEqual,
                Some(TokenKind::Sign("<")) => Comparison::Less,
                Some(TokenKind::Sign("<=")) => Comparison::LessOrEqual,
                Some(TokenKind::Sign(">")) => Comparison::Greater,
                Some(TokenKind::Sign(">=")) => Comparison::GreaterOrEqual,
                Some(TokenKind::Name(word)) if word == "in" => Comparison::In,
                Some(TokenKind::Name(word)) if word == "not" && self.is_name_behind("in") => Comparison::NotIn,
                Some(_) | None => break,
            };
            self.skip(if comparison == Comparison::NotIn { 2 } else { 1 });
            others.push((comparison, self.level(Level::Sum)?));
        }
        if others.is_empty() {
            return Ok(first);
        }
        Ok(Expr { kind: ExprKind::Compare(Box::new(first), others), line })
    }

    /// Operands with the operators of `level`.
    fn level(&mut self, level: Level) -> Result<Expr, Fault> {
        let line = self.line();
        let (inner, operators): (_, &[(&str, Operation)]) = match level {
            Level::Sum => (Some(Level::Join), &[("+", Operation::Add), ("-", Operation::Subtract)]),
            Level::Join => return self.join(),
            Level::Product => (
                Some(Level::Power),
                &[
                    ("*", Operation::Multiply),
                    ("/", Operation::Divide),
                    ("//", Operation::DivideWhole),
                    ("%", Operation::Remainder),
                ],
            ),
            Level::Power => (None, &[("**", Operation::Power)]),
        };
        let operand = |parser: &mut Self| match inner {
            Some(inner) => parser.level(inner),
            None => parser.unary(Postfix::WithFilters),
        };
        let first = operand(self)?;
        let mut others = vec![];
        while let Some((sign, operation)) = operators.iter().find(|(sign, _)| self.is_sign(sign)) {
            self.skip_sign(sign);
            others.push((*operation, operand(self)?));
        }
        if others.is_empty() {
            return Ok(first);
        }
        Ok(Expr { kind: ExprKind::Operate(Box::new(first), others), line })
    }

    fn join(&mut self) -> Result<Expr, Fault> {
        let line = self.line();
        let first = self.level(Level::Product)?;
        if !self.is_sign("~") {
            return Ok(first);
        }
        let mut all = vec![first];
        while self.skip_sign("~") {
            all.push(self.level(Level::Product)?);
        }
        Ok(Expr { kind: ExprKind::Join(all), line })
    }

    fn unary(&mut self, postfix: Postfix) -> Result<Expr, Fault> {
        let line = self.line();
        let sign = match self.peek() {
            Some(TokenKind::Sign("-")) => Some(Sign::Minus),
            Some(TokenKind::Sign("+")) => Some(Sign::Plus),
            Some(_) | None => None,
        };
        let base = match sign {
            Some(sign) => {
                self.skip(1);
                let inner = self.nested(|parser| parser.unary(Postfix::WithoutFilters))?;
                Expr { kind: ExprKind::Signed(sign, Box::new(inner)), line }
            }
            None => self.primary()?,
        };
        self.chain(base, postfix)
    }

    /// `base` with its attributes, items and calls, and filters and tests.
    fn chain(&mut self, base: Expr, postfix: Postfix) -> Result<Expr, Fault> {
        let mut links = vec![];
        let mut filters = false;
        loop {
            let line = self.line();
            let kind = match self.peek() {
                Some(TokenKind::Sign(".")) if !filters => self.attribute()?,
                Some(TokenKind::Sign("[")) if !filters => self.item()?,
                Some(TokenKind::Sign("(")) => LinkKind::Call(self.arguments()?),
                Some(TokenKind::Sign("|")) if postfix == Postfix::WithFilters => {
                    filters = true;
                    self.skip(1);
                    self.filter()?
                }
                Some(TokenKind::Name(word)) if postfix == Postfix::WithFilters && word == "is" => {
                    filters = true;
                    self.test()?
                }
                Some(_) | None => break,
            };
            links.push(Link { kind, line });
        }
        let line = base.line;
        Ok(if links.is_empty() { base } else { Expr { kind: ExprKind::Chain(Box::new(base), links), line } })
    }

    fn attribute(&mut self) -> Result<LinkKind, Fault> {
        self.skip(1);
        let line = self.line();
        match self.next() {
            Some(TokenKind::Name(name)) => Ok(LinkKind::Attribute(name.as_str().into())),
            Some(TokenKind::Int(index)) => {
                Ok(LinkKind::Item(Expr { kind: ExprKind::Constant(Value::Int(*index)), line }))
            }
            other => Err(unexpected(other, "a name after .")),
        }
    }

    fn item(&mut self) -> Result<LinkKind, Fault> {
        self.skip(1);
        let mut parts: [Option<Expr>; 3] = [None, None, None];
        let mut colons = 0;
        while !self.is_sign("]") {
            if self.skip_sign(":") {
                colons += 1;
            } else if colons < 3 && parts[colons].is_none() {
                parts[colons] = Some(self.expression()?);
            } else {
                break;
            }
            if colons > 2 {
                break;
            }
        }
        self.expect_sign("]")?;
        match (colons, parts) {
            (0, [Some(index), _, _]) => Ok(LinkKind::Item(index)),
            (0, [None, _, _]) => Err(fault("syntax error: [] has no index")),
            (_, parts) => Ok(LinkKind::Slice(Box::new(parts))),
        }
    }

    /// A filter, without the `|` before it.
    pub(super) fn filter(&mut self) -> Result<LinkKind, Fault> {
        let name = self.dotted_name()?;
        let arguments = if self.is_sign("(") { self.arguments()? } else { Arguments::default() };
        Ok(LinkKind::Filter(Named { function: filters::find(&name), name, arguments }))
    }

    fn test(&mut self) -> Result<LinkKind, Fault> {
        self.skip(1);
        let negated = self.skip_name("not");
        let name = self.dotted_name()?;
        let begins_argument = match self.peek() {
            Some(TokenKind::Name(word)) => !["else", "or", "and", "if", "is", "in", "not"].contains(&word.as_str()),
            Some(TokenKind::Text(_) | TokenKind::Int(_) | TokenKind::Float(_) | TokenKind::Sign("[" | "{")) => true,
            Some(_) | None => false,
        };
        let arguments = if self.is_sign("(") {
            self.arguments()?
        } else if begins_argument {
            let argument = self.nested(|parser| {
                let base = parser.primary()?;
                parser.chain(base, Postfix::WithoutFilters)
            })?;
            Arguments { positional: vec![argument], ..Arguments::default() }
        } else {
            Arguments::default()
        };
        Ok(LinkKind::Test { test: Named { function: predicates::find(&name), name, arguments }, negated })
    }

    fn dotted_name(&mut self) -> Result<Arc<str>, Fault> {
        let mut name = self.expect_name()?;
        while self.skip_sign(".") {
            name.push('.');
            name.push_str(&self.expect_name()?);
        }
        Ok(name.into())
    }

    fn arguments(&mut self) -> Result<Arguments, Fault> {
        self.expect_sign("(")?;
        let mut arguments = Arguments::default();
        let wrong = || fault("syntax error: an argument is after those that must be last");
        while !self.is_sign(")") {
            if self.skip_sign("**") {
                arguments.more_named = Some(Box::new(self.expression()?));
            } else if arguments.more_named.is_some() {
                return Err(wrong());
            } else if self.skip_sign("*") {
                arguments.more = Some(Box::new(self.expression()?));
            } else if let Some(name) = self.skip_keyword() {
                let value = self.expression()?;
                arguments.named.push((name.into(), value));
            } else if arguments.more.is_some() || !arguments.named.is_empty() {
                return Err(wrong());
            } else {
                arguments.positional.push(self.expression()?);
            }
            if !self.skip_sign(",") {
                break;
            }
        }
        self.expect_sign(")")?;
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Expr, Fault> {
        let line = self.line();
        let kind = match self.next() {
            Some(TokenKind::Name(name)) => match name.as_str() {
                "true" | "True" => ExprKind::Constant(Value::Bool(true)),
                "false" | "False" => ExprKind::Constant(Value::Bool(false)),
                "none" | "None" => ExprKind::Constant(Value::None),
                name => ExprKind::Name(self.name(name)),
            },
            Some(TokenKind::Text(text)) => {
                let mut text = text.clone();
                while let Some(TokenKind::Text(more)) = self.peek() {
                    text.push_str(more);
                    self.skip(1);
                }
                ExprKind::Constant(Value::text(&text))
            }
            Some(TokenKind::Int(value)) => ExprKind::Constant(Value::Int(*value)),
            Some(TokenKind::Float(value)) => ExprKind::Constant(Value::Float(*value)),
            Some(TokenKind::Sign("(")) => return self.brackets(line),
            Some(TokenKind::Sign("[")) => {
                let elements = self.elements("]", Parser::expression)?;
                ExprKind::List(elements)
            }
            Some(TokenKind::Sign("{")) => ExprKind::Dict(self.elements("}", |parser| {
                let key = parser.expression()?;
                parser.expect_sign(":")?;
                Ok((key, parser.expression()?))
            })?),
            other => return Err(unexpected(other, "an expression")),
        };
        Ok(Expr { kind, line })
    }

    /// An expression in brackets, or a tuple.
    fn brackets(&mut self, line: usize) -> Result<Expr, Fault> {
        if self.skip_sign(")") {
            return Ok(Expr { kind: ExprKind::Tuple(vec![]), line });
        }
        let inner = self.expressions()?;
        self.expect_sign(")")?;
        Ok(inner)
    }

    /// Elements with commas between them, to `closing`.
    fn elements<T>(&mut self, closing: &str, element: impl Fn(&mut Self) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        let mut all = vec![];
        while !self.is_sign(closing) {
            all.push(element(self)?);
            if !self.skip_sign(",") {
                break;
            }
        }
        self.expect_sign(closing)?;
        Ok(all)
    }
}

/// The uses of a value that an operand has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Postfix {
    WithFilters,
    WithoutFilters,
}

/// A token in place of `expected`.
pub(super) fn unexpected(token: Option<&TokenKind>, expected: &str) -> Fault {
    let found = match token {
        None => "end of the template".into(),
        Some(TokenKind::ExpressionEnds) => "end of an expression".into(),
        Some(TokenKind::TagEnds) => "end of a block".into(),
        Some(TokenKind::Data(_) | TokenKind::ExpressionBegins | TokenKind::TagBegins) => "text".into(),
        Some(TokenKind::Name(name)) => format!("`{}`", name.chars().take(40).collect::<String>()),
        Some(TokenKind::Text(_)) => "a string".into(),
        Some(TokenKind::Int(_) | TokenKind::Float(_)) => "a number".into(),
        Some(TokenKind::Sign(sign)) => format!("`{sign}`"),
    };
    fault(format!("syntax error: unexpected {found}; expected {expected}"))
}
