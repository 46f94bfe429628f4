//! The arguments of a call.

use std::sync::Arc;

use super::meter::{Fault, Meter, fault};
use super::value::Value;

/// Values by position, and values by name.
#[derive(Clone, Default)]
pub(super) struct Given {
    pub(super) positional: Vec<Value>,
    pub(super) named: Vec<(Arc<str>, Value)>,
}

impl Given {
    pub(super) fn of(positional: Vec<Value>) -> Given {
        Given { positional, named: vec![] }
    }

    /// The values of the parameters `names` of `callee`; an undefined value is one.
    ///
    /// # Errors
    /// More values, or a name that `callee` does not have.
    pub(super) fn bind<const N: usize>(self, callee: &str, names: [&str; N]) -> Result<[Option<Value>; N], Fault> {
        if self.positional.len() > N {
            return Err(fault(format!("{callee} takes {N} arguments; got {}", self.positional.len())));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            match names.iter().position(|own| *own == &*name) {
                Some(place) if bound[place].is_none() => bound[place] = Some(value),
                Some(_) => return Err(fault(format!("{callee} has {name} twice"))),
                None => return Err(fault(format!("{callee} has no {name}; leave it out"))),
            }
        }
        Ok(bound)
    }

    /// The first value, and the others.
    pub(super) fn split_first(mut self) -> (Option<Value>, Given) {
        let first = if self.positional.is_empty() { None } else { Some(self.positional.remove(0)) };
        (first, self)
    }
}

/// The text of an argument, whose letters are looked at.
pub(super) fn text<'v>(value: &'v Value, callee: &str, meter: &Meter) -> Result<&'v str, Fault> {
    let text = value.as_text().ok_or_else(|| fault(format!("{callee} needs a string; got {}", value.kind())))?;
    meter.letters(text.len())?;
    Ok(text)
}

/// The whole number of an argument.
pub(super) fn integer(value: &Value, callee: &str) -> Result<i128, Fault> {
    match value {
        Value::Int(value) => Ok(*value),
        Value::Bool(value) => Ok(i128::from(*value)),
        Value::Undefined
        | Value::None
        | Value::Float(_)
        | Value::Text(_)
        | Value::List(_)
        | Value::Dict(_)
        | Value::Namespace(_)
        | Value::Macro(_)
        | Value::Loop(_)
        | Value::Function(_)
        | Value::Method(_) => Err(fault(format!("{callee} needs an integer; got {}", value.kind()))),
    }
}

/// A count: an integer, or 0 for a negative one.
pub(super) fn count(value: &Value, callee: &str) -> Result<usize, Fault> {
    Ok(usize::try_from(integer(value, callee)?.max(0)).unwrap_or(usize::MAX))
}

/// An argument that must be there.
pub(super) fn required(value: Option<Value>, callee: &str, name: &str) -> Result<Value, Fault> {
    value.ok_or_else(|| fault(format!("{callee} needs {name}")))
}

/// Whether an argument that may be missing is true.
pub(super) fn is_set(value: &Option<Value>) -> bool {
    value.as_ref().is_some_and(Value::is_true)
}
