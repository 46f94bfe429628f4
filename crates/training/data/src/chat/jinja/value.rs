//! The values of a template.
//!
//! A value never changes: methods that would change one are refused, as in transformers. So a list cannot hold itself.
//! Namespaces change, but their values are kept by the renderer, and no namespace holds another one.

use std::fmt;
use std::sync::Arc;

use super::dict::Dict;
use super::meter::{Fault, MOST_DEPTH, Meter, fault};

/// A value; a copy shares its elements.
#[derive(Clone)]
pub(in crate::chat) enum Value {
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    List(Arc<List>),
    Dict(Arc<Dict>),
    /// A namespace, by its number in the renderer.
    Namespace(usize),
    /// A macro, by its number in the renderer.
    Macro(usize),
    /// The `loop` of a loop, by its number in the renderer.
    Loop(usize),
    Function(Function),
    /// A method of a value, to be called.
    Method(Arc<(Value, Method)>),
}

/// A function of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chat) enum Function {
    Range,
    Dict,
    Namespace,
    RaiseException,
    StrftimeNow,
}

/// The functions by name.
pub(in crate::chat) const FUNCTIONS: [(&str, Function); 5] = [
    ("range", Function::Range),
    ("dict", Function::Dict),
    ("namespace", Function::Namespace),
    ("raise_exception", Function::RaiseException),
    ("strftime_now", Function::StrftimeNow),
];

/// A method of a value, by its name.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::chat) struct Method {
    pub(super) name: &'static str,
}

/// A form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::chat) enum Form {
    List,
    Tuple,
}

/// Elements in order.
pub(in crate::chat) struct List {
    elements: Vec<Value>,
    form: Form,
    nesting: Nesting,
}

/// The elements of a value, as far as other values that hold it must know.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nesting {
    /// Lists and dictionaries within each other.
    depth: u16,
    has_namespace: bool,
}

impl Nesting {
    /// The nesting of a list or dictionary without elements.
    pub(super) fn of_one() -> Nesting {
        Nesting { depth: 1, has_namespace: false }
    }

    /// The nesting of a list or dictionary with one more `element`.
    ///
    /// # Errors
    /// A list or dictionary that is nested too deep.
    pub(super) fn around(self, element: &Value) -> Result<Nesting, Fault> {
        let inner = element.nesting();
        let depth = self.depth.max(inner.depth + 1);
        if depth > MOST_DEPTH {
            return Err(fault(format!("it nests lists and dictionaries deeper than {MOST_DEPTH}")));
        }
        Ok(Nesting { depth, has_namespace: self.has_namespace || inner.has_namespace })
    }
}

/// A list under construction.
pub(super) struct ListBuilder<'m> {
    meter: &'m Meter,
    elements: Vec<Value>,
    nesting: Nesting,
}

impl<'m> ListBuilder<'m> {
    pub(super) fn new(meter: &'m Meter) -> ListBuilder<'m> {
        ListBuilder { meter, elements: vec![], nesting: Nesting::of_one() }
    }

    pub(super) fn push(&mut self, element: Value) -> Result<(), Fault> {
        self.meter.step(1)?;
        self.nesting = self.nesting.around(&element)?;
        self.elements.push(element);
        Ok(())
    }

    pub(super) fn finish(self, form: Form) -> Result<Value, Fault> {
        Ok(Value::List(self.finish_list(form)?))
    }

    pub(super) fn finish_list(self, form: Form) -> Result<Arc<List>, Fault> {
        self.meter.step(1)?;
        let ListBuilder { mut elements, nesting, .. } = self;
        elements.shrink_to_fit();
        Ok(Arc::new(List { elements, form, nesting }))
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.elements.len()
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// One element.
    pub(super) fn get(&self, index: usize) -> Option<&Value> {
        self.elements.get(index)
    }

    /// All elements, which are paid for.
    pub(super) fn walk(&self, meter: &Meter) -> Result<&[Value], Fault> {
        meter.step(self.elements.len())?;
        Ok(&self.elements)
    }
}

impl Value {
    /// A text of the program itself, or of a file that it has read.
    pub(in crate::chat) fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    /// A list of values that are there.
    ///
    /// # Errors
    /// Elements that are nested too deep.
    pub(in crate::chat) fn list(elements: Vec<Value>) -> Result<Value, Fault> {
        let nesting = elements.iter().try_fold(Nesting::of_one(), Nesting::around)?;
        Ok(Value::List(Arc::new(List { elements, form: Form::List, nesting })))
    }

    fn nesting(&self) -> Nesting {
        match self {
            Value::List(list) => list.nesting,
            Value::Dict(dict) => dict.nesting(),
            Value::Method(method) => {
                Nesting { depth: method.0.nesting().depth + 1, has_namespace: method.0.holds_namespace() }
            }
            Value::Namespace(_) | Value::Loop(_) => Nesting { depth: 0, has_namespace: true },
            Value::Undefined
            | Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Macro(_)
            | Value::Function(_) => Nesting::default(),
        }
    }

    /// Whether it is a namespace or holds one.
    pub(super) fn holds_namespace(&self) -> bool {
        self.nesting().has_namespace
    }

    /// The text, of a text.
    pub(in crate::chat) fn as_text(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    /// The elements of a list.
    pub(in crate::chat) fn as_elements(&self) -> Option<&[Value]> {
        if let Value::List(list) = self { Some(&list.elements) } else { None }
    }

    /// The dictionary.
    pub(in crate::chat) fn as_dict(&self) -> Option<&Dict> {
        if let Value::Dict(dict) = self { Some(dict) } else { None }
    }

    /// The kind of value, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Undefined => "an undefined value",
            Value::None => "none",
            Value::Bool(_) => "a boolean",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a float",
            Value::Text(_) => "a string",
            Value::List(list) if list.form == Form::Tuple => "a tuple",
            Value::List(_) => "a list",
            Value::Dict(_) => "a dictionary",
            Value::Namespace(_) => "a namespace",
            Value::Macro(_) => "a macro",
            Value::Loop(_) => "a loop",
            Value::Function(_) => "a function",
            Value::Method(_) => "a method",
        }
    }

    /// Whether Python takes it for true.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Value::Undefined | Value::None => false,
            Value::Bool(value) => *value,
            Value::Int(value) => *value != 0,
            Value::Float(value) => *value != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::List(list) => list.len() > 0,
            Value::Dict(dict) => dict.len() > 0,
            Value::Namespace(_) | Value::Macro(_) | Value::Loop(_) | Value::Function(_) | Value::Method(_) => true,
        }
    }
}

/// The kind alone: its elements are not walked.
impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind())
    }
}
