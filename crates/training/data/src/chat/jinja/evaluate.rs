//! The values of expressions.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arguments::Given;
use super::ast::{Arguments, Comparison, Expr, ExprKind, Link, LinkKind};
use super::compare::{contains, equal, order};
use super::dict::DictBuilder;
use super::meter::{Fault, fault};
use super::methods;
use super::operations::{operate, signed};
use super::renderer::Renderer;
use super::value::{Form, ListBuilder, Method, Value};
use super::writer::TextBuilder;

impl<'p> Renderer<'p> {
    pub(super) fn evaluate(&mut self, expr: &'p Expr) -> Result<Value, Fault> {
        self.meter.step(1)?;
        match &expr.kind {
            ExprKind::Constant(value) => Ok(value.clone()),
            ExprKind::Name(name) => self.lookup(*name),
            ExprKind::List(_)
            | ExprKind::Tuple(_)
            | ExprKind::Dict(_)
            | ExprKind::Signed(..)
            | ExprKind::Not(_)
            | ExprKind::Any(_)
            | ExprKind::All(_)
            | ExprKind::Compare(..)
            | ExprKind::Operate(..)
            | ExprKind::Join(_)
            | ExprKind::Choice(..)
            | ExprKind::Chain(..) => {
                self.deeper(|renderer| renderer.compound(expr)).map_err(|error| error.at(expr.line))
            }
        }
    }

    fn compound(&mut self, expr: &'p Expr) -> Result<Value, Fault> {
        match &expr.kind {
            ExprKind::Constant(value) => Ok(value.clone()),
            ExprKind::Name(name) => self.lookup(*name),
            ExprKind::List(elements) => self.list(elements, Form::List),
            ExprKind::Tuple(elements) => self.list(elements, Form::Tuple),
            ExprKind::Dict(entries) => {
                let mut dict = DictBuilder::new(self.meter);
                for (key, value) in entries {
                    let key = self.evaluate(key)?;
                    dict.set(key, self.evaluate(value)?)?;
                }
                dict.finish()
            }
            ExprKind::Signed(sign, value) => signed(&self.evaluate(value)?, *sign),
            ExprKind::Not(value) => Ok(Value::Bool(!self.evaluate(value)?.is_true())),
            ExprKind::Any(operands) => self.first(operands, |value| value.is_true()),
            ExprKind::All(operands) => self.first(operands, |value| !value.is_true()),
            ExprKind::Compare(first, others) => self.comparisons(first, others),
            ExprKind::Operate(first, others) => {
                let mut value = self.evaluate(first)?;
                for (operation, other) in others {
                    let other = self.evaluate(other)?;
                    value = operate(*operation, &value, &other, self.meter)?;
                }
                Ok(value)
            }
            ExprKind::Join(parts) => {
                let mut text = TextBuilder::new(self.meter);
                for part in parts {
                    text.print(&self.evaluate(part)?)?;
                }
                text.finish()
            }
            ExprKind::Choice(then_and_test, otherwise) => {
                let [then, test] = &**then_and_test;
                match (self.evaluate(test)?.is_true(), otherwise) {
                    (true, _) => self.evaluate(then),
                    (false, Some(otherwise)) => self.evaluate(otherwise),
                    (false, None) => Ok(Value::Undefined),
                }
            }
            ExprKind::Chain(base, links) => self.chain(base, links),
        }
    }

    fn list(&mut self, elements: &'p [Expr], form: Form) -> Result<Value, Fault> {
        let mut list = ListBuilder::new(self.meter);
        for element in elements {
            list.push(self.evaluate(element)?)?;
        }
        list.finish(form)
    }

    /// The first value that `is_it`, or the last.
    fn first(&mut self, operands: &'p [Expr], is_it: impl Fn(&Value) -> bool) -> Result<Value, Fault> {
        let mut value = Value::Undefined;
        for operand in operands {
            value = self.evaluate(operand)?;
            if is_it(&value) {
                break;
            }
        }
        Ok(value)
    }

    fn comparisons(&mut self, first: &'p Expr, others: &'p [(Comparison, Expr)]) -> Result<Value, Fault> {
        let mut left = self.evaluate(first)?;
        for (comparison, right) in others {
            let right = self.evaluate(right)?;
            if !self.compare(*comparison, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    /// Whether a comparison holds.
    pub(super) fn compare(&self, comparison: Comparison, a: &Value, b: &Value) -> Result<bool, Fault> {
        let ordered = |wanted: &[Ordering]| Ok(order(a, b, self.meter)?.is_some_and(|order| wanted.contains(&order)));
        match comparison {
            Comparison::Equal => equal(a, b, self.meter),
            Comparison::NotEqual => Ok(!equal(a, b, self.meter)?),
            Comparison::Less => ordered(&[Ordering::Less]),
            Comparison::LessOrEqual => ordered(&[Ordering::Less, Ordering::Equal]),
            Comparison::Greater => ordered(&[Ordering::Greater]),
            Comparison::GreaterOrEqual => ordered(&[Ordering::Greater, Ordering::Equal]),
            Comparison::In => contains(b, a, self.meter),
            Comparison::NotIn => Ok(!contains(b, a, self.meter)?),
        }
    }

    /// `base` with its links. A method that is called at once is not made a value.
    fn chain(&mut self, base: &'p Expr, links: &'p [Link]) -> Result<Value, Fault> {
        let mut value = self.evaluate(base)?;
        let mut place = 0;
        while let Some(link) = links.get(place) {
            self.meter.step(1)?;
            if matches!(value, Value::Undefined)
                && matches!(
                    link.kind,
                    LinkKind::Attribute(_) | LinkKind::Item(_) | LinkKind::Slice(_) | LinkKind::Call(_)
                )
            {
                return Err(fault(format!("`{}` is undefined", self.described(base, &links[..place]))).at(link.line));
            }
            if let Some((method, arguments)) = called_method(&value, link, links.get(place + 1)) {
                let given = self.given(arguments)?;
                value = self.call_method(&value, method, given).map_err(|error| error.at(link.line))?;
                place += 2;
                continue;
            }
            value = self.link(value, link).map_err(|error| error.at(link.line))?;
            place += 1;
        }
        Ok(value)
    }

    /// `value` after one link.
    pub(super) fn link(&mut self, value: Value, link: &'p Link) -> Result<Value, Fault> {
        match &link.kind {
            LinkKind::Attribute(name) => self.attribute(&value, name),
            LinkKind::Item(index) => {
                let index = self.evaluate(index)?;
                self.item(&value, &index)
            }
            LinkKind::Slice(parts) => {
                let mut bounds = [None, None, None];
                for (bound, part) in bounds.iter_mut().zip(&**parts) {
                    *bound = part.as_ref().map(|part| self.evaluate(part)).transpose()?;
                }
                self.slice(&value, &bounds)
            }
            LinkKind::Call(arguments) => {
                let given = self.given(arguments)?;
                self.call_value(&value, given)
            }
            LinkKind::Filter(filter) => {
                let function = filter.function.ok_or_else(|| fault(format!("there is no filter `{}`", filter.name)))?;
                let given = self.given(&filter.arguments)?;
                function(self, &value, given)
            }
            LinkKind::Test { test, negated } => {
                let function = test.function.ok_or_else(|| fault(format!("there is no test `{}`", test.name)))?;
                let given = self.given(&test.arguments)?;
                Ok(Value::Bool(function(self, &value, given)? != *negated))
            }
        }
    }

    /// The values of arguments.
    pub(super) fn given(&mut self, arguments: &'p Arguments) -> Result<Given, Fault> {
        let mut given = Given::default();
        for argument in &arguments.positional {
            given.positional.push(self.evaluate(argument)?);
        }
        if let Some(more) = &arguments.more {
            let more = self.evaluate(more)?;
            given.positional.extend_from_slice(self.elements(&more)?.walk(self.meter)?);
        }
        for (name, argument) in &arguments.named {
            given.named.push((name.clone(), self.evaluate(argument)?));
        }
        if let Some(more) = &arguments.more_named {
            let more = self.evaluate(more)?;
            let dict = more.as_dict().ok_or_else(|| fault("** needs a dictionary"))?;
            for (key, value) in dict.walk(self.meter)? {
                let key = key.as_text().ok_or_else(|| fault("** needs keys that are strings"))?;
                self.meter.read(key.len())?;
                given.named.push((key.into(), value.clone()));
            }
        }
        Ok(given)
    }

    /// The value of a call with the block that is its caller.
    pub(super) fn call_with(&mut self, call: &'p Expr, caller: Value) -> Result<Value, Fault> {
        let ExprKind::Chain(base, links) = &call.kind else { return Err(fault("a block call has no call")) };
        let Some((Link { kind: LinkKind::Call(arguments), line }, before)) = links.split_last() else {
            return Err(fault("a block call has no call"));
        };
        let callee = self.chain(base, before)?;
        let mut given = self.given(arguments)?;
        given.named.push((Arc::from("caller"), caller));
        self.call_value(&callee, given).map_err(|error| error.at(*line))
    }

    /// An expression for messages.
    fn described(&self, base: &Expr, links: &[Link]) -> String {
        let mut text = if let ExprKind::Name(name) = base.kind { self.name_text(name) } else { "a value".into() };
        for link in links {
            match &link.kind {
                LinkKind::Attribute(name) => text.push_str(&format!(".{name}")),
                LinkKind::Item(Expr { kind: ExprKind::Constant(index), .. }) => match index.as_text() {
                    Some(index) => text.push_str(&format!(".{index}")),
                    None => text.push_str("[..]"),
                },
                LinkKind::Item(_) | LinkKind::Slice(_) => text.push_str("[..]"),
                LinkKind::Call(_) => text.push_str("(..)"),
                LinkKind::Filter(filter) => text.push_str(&format!("|{}", filter.name)),
                LinkKind::Test { .. } => text.push_str(" is .."),
            }
        }
        match text.char_indices().nth(100) {
            Some((end, _)) => format!("{}..", &text[..end]),
            None => text,
        }
    }
}

/// The method that `link` names, where the next one calls it.
fn called_method<'p>(value: &Value, link: &'p Link, next: Option<&'p Link>) -> Option<(Method, &'p Arguments)> {
    let LinkKind::Attribute(name) = &link.kind else { return None };
    let Some(LinkKind::Call(arguments)) = next.map(|next| &next.kind) else { return None };
    Some((methods::find(value, name)?, arguments))
}
