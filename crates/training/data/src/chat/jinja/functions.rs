//! The functions that a template may call.

use std::sync::Arc;

use super::arguments::{Given, integer, required, text};
use super::dict::DictBuilder;
use super::meter::{Fault, fault};
use super::renderer::{Renderer, SCOPE_STEPS};
use super::value::{Form, Function, ListBuilder, Value};
use crate::chat::dates;

/// Most elements of a range, as in the sandbox of jinja2.
const MOST_RANGE: i128 = 100_000;

impl Renderer<'_> {
    pub(super) fn call_function(&mut self, function: Function, given: Given) -> Result<Value, Fault> {
        match function {
            Function::Range => self.range(given),
            Function::Dict => self.dict(given),
            Function::Namespace => {
                let values = self.dict(given)?;
                let number = self.namespaces.len();
                self.meter.step(SCOPE_STEPS)?;
                self.namespaces.push(vec![]);
                if let Some(values) = values.as_dict() {
                    for (name, value) in values.walk(self.meter)? {
                        let name: Arc<str> = text(name, "a namespace", self.meter)?.into();
                        self.set_attribute(number, name, value.clone())?;
                    }
                }
                Ok(Value::Namespace(number))
            }
            Function::RaiseException => {
                let [message] = given.bind("raise_exception", ["message"])?;
                Err(fault(text(&required(message, "raise_exception", "a message")?, "raise_exception", self.meter)?))
            }
            Function::StrftimeNow => {
                let [format] = given.bind("strftime_now", ["format"])?;
                let format = required(format, "strftime_now", "a format")?;
                let format = text(&format, "strftime_now", self.meter)?;
                // A directive writes at most five times its bytes, number by number.
                self.meter.step(format.len())?;
                let remedy = "the template asks for the time; give data.chat a date, as in date = \"2026-01-31\"";
                let date = self.date.ok_or_else(|| fault(remedy))?;
                Ok(Value::text(&dates::formatted(date, format).map_err(fault)?))
            }
        }
    }

    fn range(&mut self, given: Given) -> Result<Value, Fault> {
        let [first, second, step] = given.bind("range", ["start", "stop", "step"])?;
        let first = integer(&required(first, "range", "an integer")?, "range")?;
        let (start, stop) = match second {
            Some(stop) => (first, integer(&stop, "range")?),
            None => (0, first),
        };
        let step = step.map_or(Ok(1), |step| integer(&step, "range"))?;
        if step == 0 {
            return Err(fault("the step of range is 0"));
        }
        let (distance, stride) = if step > 0 {
            (stop.saturating_sub(start), step)
        } else {
            (start.saturating_sub(stop), step.saturating_neg())
        };
        let count = if distance <= 0 { 0 } else { (distance - 1) / stride + 1 };
        if count > MOST_RANGE {
            return Err(fault(format!("range has {count} elements; at most {MOST_RANGE} are made")));
        }
        let mut list = ListBuilder::new(self.meter);
        for index in 0..count {
            list.push(Value::Int(start + index * step))?;
        }
        list.finish(Form::List)
    }

    /// A dictionary of the names, after that of a dictionary or of pairs.
    fn dict(&mut self, given: Given) -> Result<Value, Fault> {
        let Given { positional, named } = given;
        if positional.len() > 1 {
            return Err(fault(format!("dict takes 1 argument; got {}", positional.len())));
        }
        let mut dict = DictBuilder::new(self.meter);
        match positional.first() {
            Some(Value::Dict(first)) => {
                for (key, value) in first.walk(self.meter)? {
                    dict.set(key.clone(), value.clone())?;
                }
            }
            Some(pairs) => {
                for pair in self.elements(pairs)?.walk(self.meter)? {
                    match self.elements(pair)?.walk(self.meter)? {
                        [key, value] => dict.set(key.clone(), value.clone())?,
                        _ => return Err(fault("dict needs pairs")),
                    }
                }
            }
            None => {}
        }
        for (name, value) in named {
            dict.set(Value::Text(name), value)?;
        }
        dict.finish()
    }
}
