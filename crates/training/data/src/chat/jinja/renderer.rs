//! The rendering of a program: its statements, and the scopes of its names.

use std::sync::Arc;

use config::ChatDate;

use super::arguments::Given;
use super::ast::{Block, Expr, For, Macro, Name, Place, Statement, StatementKind};
use super::meter::{Fault, Meter, fault};
use super::value::{Form, List, ListBuilder, Value};
use super::writer::TextBuilder;
use crate::chat::answer_marks::{ANSWER_BEGINS, ANSWER_ENDS};

/// Most statements, expressions and calls within each other, whose frames are on the stack of a thread.
const MOST_LEVELS: usize = 800;

/// Steps of a scope, which a macro may keep.
pub(super) const SCOPE_STEPS: usize = 4;

/// The value of a filter.
pub(super) type Made = Result<Value, Fault>;

/// The result of a filter for a value and arguments.
pub(super) type Filter = fn(&mut Renderer<'_>, &Value, Given) -> Made;

/// Whether a value passes, with arguments.
pub(super) type Predicate = fn(&mut Renderer<'_>, &Value, Given) -> Result<bool, Fault>;

/// The names of a block, or of one turn of a loop.
struct Scope {
    outer: Option<usize>,
    values: Vec<(Name, Value)>,
}

/// A macro with the scope that it was defined in.
#[derive(Clone, Copy)]
pub(super) struct Defined<'p> {
    pub(super) definition: &'p Macro,
    pub(super) scope: usize,
}

/// A loop that runs.
pub(super) struct LoopState<'p> {
    pub(super) node: &'p For,
    /// The scope around the loop.
    pub(super) scope: usize,
    pub(super) elements: Arc<List>,
    pub(super) index: usize,
    /// Loops of the same node around it.
    pub(super) depth: usize,
    /// The last argument of `loop.changed`.
    pub(super) last: Option<Value>,
}

/// The statement that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
}

pub(super) struct Renderer<'p> {
    pub(super) meter: &'p Meter,
    pub(super) date: Option<ChatDate>,
    names: &'p [Arc<str>],
    /// The number of a name that the renderer sets itself, where the program uses it.
    pub(super) loop_name: Option<Name>,
    pub(super) caller_name: Option<Name>,
    scopes: Vec<Scope>,
    scope: usize,
    depth: usize,
    outputs: Vec<TextBuilder<'p>>,
    pub(super) namespaces: Vec<Vec<(Arc<str>, Value)>>,
    pub(super) macros: Vec<Defined<'p>>,
    pub(super) turns: Vec<LoopState<'p>>,
}

impl<'p> Renderer<'p> {
    /// A renderer with the names of the whole program.
    pub(super) fn new(
        meter: &'p Meter,
        date: Option<ChatDate>,
        names: &'p [Arc<str>],
        values: Vec<(Name, Value)>,
    ) -> Renderer<'p> {
        Renderer {
            meter,
            date,
            names,
            loop_name: None,
            caller_name: None,
            scopes: vec![Scope { outer: None, values }],
            scope: 0,
            depth: 0,
            outputs: vec![],
            namespaces: vec![],
            macros: vec![],
            turns: vec![],
        }
    }

    /// The text that `inner` writes.
    pub(super) fn captured(&mut self, inner: impl FnOnce(&mut Self) -> Result<(), Fault>) -> Result<String, Fault> {
        self.outputs.push(TextBuilder::new(self.meter));
        inner(self)?;
        Ok(self.outputs.pop().map(TextBuilder::into_string).unwrap_or_default())
    }

    /// The same as a value.
    pub(super) fn captured_value(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Result<(), Fault>,
    ) -> Result<Value, Fault> {
        let text = self.captured(inner)?;
        self.meter.step(1)?;
        Ok(Value::Text(text.into()))
    }

    fn output(&mut self) -> Result<&mut TextBuilder<'p>, Fault> {
        self.outputs.last_mut().ok_or_else(|| fault("there is no output"))
    }

    /// The result of `inner`, one level deeper.
    ///
    /// # Errors
    /// Too many levels.
    pub(super) fn deeper<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.depth += 1;
        if self.depth > MOST_LEVELS {
            return Err(fault(format!(
                "its recursion is deeper than {MOST_LEVELS} statements, expressions and calls within each other"
            )));
        }
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// A name for messages.
    pub(super) fn name_text(&self, name: Name) -> String {
        self.names.get(name.0 as usize).map_or_else(String::new, |name| name.to_string())
    }

    /// The value of a name.
    pub(super) fn lookup(&self, name: Name) -> Result<Value, Fault> {
        let mut next = Some(self.scope);
        while let Some(scope) = next.and_then(|scope| self.scopes.get(scope)) {
            self.meter.read(scope.values.len())?;
            if let Some((_, value)) = scope.values.iter().find(|(own, _)| *own == name) {
                return Ok(value.clone());
            }
            next = scope.outer;
        }
        Ok(Value::Undefined)
    }

    /// Sets a name of the current scope.
    pub(super) fn bind(&mut self, name: Name, value: Value) -> Result<(), Fault> {
        self.meter.step(1)?;
        let values = &mut self.scopes[self.scope].values;
        self.meter.read(values.len())?;
        match values.iter_mut().find(|(own, _)| *own == name) {
            Some(place) => place.1 = value,
            None => values.push((name, value)),
        }
        Ok(())
    }

    /// The result of `inner` in a new scope within `outer`, which ends with it unless a macro was defined in it.
    pub(super) fn scoped<T>(
        &mut self,
        outer: usize,
        inner: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.meter.step(SCOPE_STEPS)?;
        let (before, macros) = (self.scope, self.macros.len());
        self.scope = self.scopes.len();
        self.scopes.push(Scope { outer: Some(outer), values: vec![] });
        let result = inner(self)?;
        if self.macros.len() == macros {
            self.scopes.truncate(self.scope);
        }
        self.scope = before;
        Ok(result)
    }

    pub(super) fn block(&mut self, block: &'p Block) -> Result<Flow, Fault> {
        self.deeper(|renderer| {
            for statement in block {
                let flow = renderer.statement(statement).map_err(|error| error.at(statement.line))?;
                if flow != Flow::Next {
                    return Ok(flow);
                }
            }
            Ok(Flow::Next)
        })
    }

    /// A block in a scope of its own, which no jump leaves.
    fn inner_block(&mut self, block: &'p Block) -> Result<(), Fault> {
        self.scoped(self.scope, |renderer| renderer.block(block)).map(|_| ())
    }

    fn statement(&mut self, statement: &'p Statement) -> Result<Flow, Fault> {
        self.meter.step(1)?;
        match &statement.kind {
            StatementKind::Data(text) => self.output()?.push(text)?,
            StatementKind::Print(value) => {
                let value = self.evaluate(value)?;
                self.output()?.print(&value)?;
            }
            StatementKind::Evaluate(value) => {
                self.evaluate(value)?;
            }
            StatementKind::If(branches, otherwise) => {
                for (test, block) in branches {
                    if self.evaluate(test)?.is_true() {
                        return self.block(block);
                    }
                }
                return self.block(otherwise);
            }
            StatementKind::For(node) => {
                let elements = self.evaluate(&node.elements)?;
                self.run_loop(node, &elements, self.scope, 0)?;
            }
            StatementKind::Set(place, value) => {
                let value = self.evaluate(value)?;
                self.assign(place, value)?;
            }
            StatementKind::SetBlock(place, links, block) => {
                let mut value = self.captured_value(|renderer| renderer.inner_block(block))?;
                for link in links {
                    value = self.link(value, link).map_err(|error| error.at(link.line))?;
                }
                self.assign(place, value)?;
            }
            StatementKind::With(values, block) => self.with(values, block)?,
            StatementKind::Filter(links, block) => {
                let mut value = self.captured_value(|renderer| renderer.inner_block(block))?;
                for link in links {
                    value = self.link(value, link).map_err(|error| error.at(link.line))?;
                }
                self.output()?.print(&value)?;
            }
            StatementKind::Macro(name, definition) => {
                let value = self.define(definition)?;
                self.bind(*name, value)?;
            }
            StatementKind::Call(call, definition) => {
                let caller = self.define(definition)?;
                let value = self.call_with(call, caller)?;
                self.output()?.print(&value)?;
            }
            StatementKind::Generation(block) => {
                self.output()?.push_char(ANSWER_BEGINS)?;
                self.inner_block(block)?;
                self.output()?.push_char(ANSWER_ENDS)?;
            }
            StatementKind::Break => return Ok(Flow::Break),
            StatementKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn define(&mut self, definition: &'p Macro) -> Result<Value, Fault> {
        self.meter.step(1)?;
        self.macros.push(Defined { definition, scope: self.scope });
        Ok(Value::Macro(self.macros.len() - 1))
    }

    fn with(&mut self, values: &'p [(Place, Expr)], block: &'p Block) -> Result<(), Fault> {
        let mut evaluated = vec![];
        for (place, value) in values {
            evaluated.push((place, self.evaluate(value)?));
        }
        self.scoped(self.scope, |renderer| {
            for (place, value) in evaluated {
                renderer.assign(place, value)?;
            }
            renderer.block(block).map(|_| ())
        })
    }

    /// Runs the loop `node` over `elements`, in scopes within `scope`.
    pub(super) fn run_loop(
        &mut self,
        node: &'p For,
        elements: &Value,
        scope: usize,
        depth: usize,
    ) -> Result<(), Fault> {
        let mut elements = self.elements(elements)?;
        if let Some(condition) = &node.condition {
            elements = self.selected(node, condition, &elements, scope)?;
        }
        let count = elements.len();
        let mut ends = false;
        let number = self.turns.len();
        self.meter.step(1)?;
        self.turns.push(LoopState { node, scope, elements, index: 0, depth, last: None });
        for index in 0..count {
            let flow = self.scoped(scope, |renderer| renderer.turn(number, index))?;
            ends |= flow == Flow::Next;
            if flow == Flow::Break {
                break;
            }
        }
        self.turns.truncate(number);
        // As jinja2 compiles it: also where a jump ended every turn.
        if !ends {
            self.scoped(scope, |renderer| renderer.block(&node.otherwise))?;
        }
        Ok(())
    }

    /// One turn of the loop `number`.
    fn turn(&mut self, number: usize, index: usize) -> Result<Flow, Fault> {
        let Some(turn) = self.turns.get_mut(number) else { return Ok(Flow::Break) };
        turn.index = index;
        let (node, element) = (turn.node, turn.elements.get(index).cloned());
        self.assign(&node.place, element.unwrap_or(Value::Undefined))?;
        if let Some(name) = self.loop_name {
            self.bind(name, Value::Loop(number))?;
        }
        self.block(&node.body)
    }

    /// The elements for which `condition` holds.
    fn selected(
        &mut self,
        node: &'p For,
        condition: &'p Expr,
        elements: &List,
        scope: usize,
    ) -> Result<Arc<List>, Fault> {
        let mut selected = ListBuilder::new(self.meter);
        for element in elements.walk(self.meter)? {
            let is_wanted = self.scoped(scope, |renderer| {
                renderer.assign(&node.place, element.clone())?;
                Ok(renderer.evaluate(condition)?.is_true())
            })?;
            if is_wanted {
                selected.push(element.clone())?;
            }
        }
        selected.finish_list(Form::List)
    }

    /// Sets `place` to `value`.
    ///
    /// # Errors
    /// An attribute of a value that is not a namespace, a namespace within a namespace, and a value that does not have
    /// as many elements as the place.
    fn assign(&mut self, place: &'p Place, value: Value) -> Result<(), Fault> {
        match place {
            Place::Name(name) => self.bind(*name, value),
            Place::Attribute(name, attribute) => {
                let Value::Namespace(number) = self.lookup(*name)? else {
                    return Err(fault(format!("an attribute `{attribute}` is set of a value that is not a namespace")));
                };
                self.set_attribute(number, attribute.clone(), value)
            }
            Place::Tuple(places) => {
                let elements = self.elements(&value)?;
                if elements.len() != places.len() {
                    let (wanted, count) = (places.len(), elements.len());
                    return Err(fault(format!("{count} values are set to {wanted} names")));
                }
                for (place, value) in places.iter().zip(elements.walk(self.meter)?) {
                    self.assign(place, value.clone())?;
                }
                Ok(())
            }
        }
    }

    /// Sets an attribute of the namespace `number`.
    pub(super) fn set_attribute(&mut self, number: usize, attribute: Arc<str>, value: Value) -> Result<(), Fault> {
        if value.holds_namespace() {
            return Err(fault(format!("attribute `{attribute}` of a namespace holds a namespace or a loop")));
        }
        self.meter.step(1)?;
        let Some(values) = self.namespaces.get_mut(number) else { return Ok(()) };
        self.meter.read(values.len().saturating_mul(1 + attribute.len()))?;
        match values.iter_mut().find(|(own, _)| **own == *attribute) {
            Some(place) => place.1 = value,
            None => values.push((attribute, value)),
        }
        Ok(())
    }

    /// The elements over which Python iterates.
    ///
    /// # Errors
    /// A value without elements.
    pub(super) fn elements(&self, value: &Value) -> Result<Arc<List>, Fault> {
        let mut list = ListBuilder::new(self.meter);
        match value {
            Value::List(list) => return Ok(list.clone()),
            Value::Undefined => {}
            Value::Dict(dict) => {
                for (key, _) in dict.walk(self.meter)? {
                    list.push(key.clone())?;
                }
            }
            Value::Text(text) => {
                for letter in text.chars() {
                    list.push(Value::text(letter.encode_utf8(&mut [0; 4])))?;
                }
            }
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => return Err(fault(format!("{} has no elements", value.kind()))),
        }
        list.finish_list(Form::List)
    }
}
