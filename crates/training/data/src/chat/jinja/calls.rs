//! Calls of macros, loops, functions and methods.

use super::arguments::Given;
use super::ast::Macro;
use super::compare::equal;
use super::meter::{Fault, fault};
use super::renderer::{Defined, Renderer};
use super::value::{Form, ListBuilder, Value};

impl<'p> Renderer<'p> {
    /// The result of `callee` for `given`.
    pub(super) fn call_value(&mut self, callee: &Value, given: Given) -> Result<Value, Fault> {
        match callee {
            Value::Function(function) => self.call_function(*function, given),
            Value::Method(method) => self.call_method(&method.0, method.1, given),
            Value::Macro(number) => match self.macros.get(*number) {
                Some(defined) => self.call_macro(*defined, given),
                None => Err(fault("a macro is undefined")),
            },
            Value::Loop(number) => self.recurse(*number, given),
            Value::Undefined
            | Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Dict(_)
            | Value::Namespace(_) => Err(fault(format!("{} cannot be called", callee.kind()))),
        }
    }

    /// The text of a macro: its values by position and by name, the values that it has itself, and undefined ones.
    fn call_macro(&mut self, defined: Defined<'p>, given: Given) -> Result<Value, Fault> {
        let Macro { name, parameters, defaults, body } = defined.definition;
        if given.positional.len() > parameters.len() {
            let (count, most) = (given.positional.len(), parameters.len());
            return Err(fault(format!("macro {name} takes {most} arguments; got {count}")));
        }
        let call = |renderer: &mut Self| {
            let mut set = vec![false; parameters.len()];
            for (place, value) in given.positional.into_iter().enumerate() {
                renderer.bind(parameters[place].0, value)?;
                set[place] = true;
            }
            for (own, value) in given.named {
                renderer.meter.step(parameters.len())?;
                renderer.meter.read(own.len().saturating_mul(parameters.len()))?;
                match parameters.iter().position(|(_, parameter)| *parameter == own) {
                    Some(place) if set[place] => return Err(fault(format!("macro {name} has {own} twice"))),
                    Some(place) => {
                        renderer.bind(parameters[place].0, value)?;
                        set[place] = true;
                    }
                    None if &*own == "caller" => {
                        if let Some(caller) = renderer.caller_name {
                            renderer.bind(caller, value)?;
                        }
                    }
                    None => return Err(fault(format!("macro {name} has no {own}; leave it out"))),
                }
            }
            let required = parameters.len() - defaults.len();
            for place in (0..parameters.len()).filter(|place| !set[*place]) {
                let value = match place.checked_sub(required).and_then(|place| defaults.get(place)) {
                    Some(default) => renderer.evaluate(default)?,
                    None => Value::Undefined,
                };
                renderer.bind(parameters[place].0, value)?;
            }
            renderer.captured_value(|renderer| renderer.block(body).map(|_| ()))
        };
        self.deeper(|renderer| renderer.scoped(defined.scope, call))
    }

    /// The text of a recursive loop over the argument.
    fn recurse(&mut self, number: usize, given: Given) -> Result<Value, Fault> {
        let [elements] = given.bind("loop", ["iterable"])?;
        let Some(turn) = self.turns.get(number) else { return Err(fault("a loop is called after its end")) };
        if !turn.node.is_recursive {
            return Err(fault("a loop is called that is not recursive"));
        }
        let (node, scope, depth) = (turn.node, turn.scope, turn.depth + 1);
        let elements = elements.unwrap_or(Value::Undefined);
        self.captured_value(|renderer| renderer.deeper(|renderer| renderer.run_loop(node, &elements, scope, depth)))
    }

    /// The argument of `loop.cycle` whose turn it is.
    pub(super) fn cycle(&mut self, number: usize, given: Given) -> Result<Value, Fault> {
        let index = self.turns.get(number).map_or(0, |turn| turn.index);
        let count = given.positional.len();
        if count == 0 {
            return Err(fault("loop.cycle needs an argument"));
        }
        Ok(given.positional[index % count].clone())
    }

    /// Whether the arguments of `loop.changed` differ from those of its last call.
    pub(super) fn changed(&mut self, number: usize, given: Given) -> Result<Value, Fault> {
        let mut list = ListBuilder::new(self.meter);
        for value in given.positional {
            list.push(value)?;
        }
        let now = list.finish(Form::Tuple)?;
        let Some(last) = self.turns.get_mut(number).map(|turn| turn.last.replace(now.clone())) else {
            return Ok(Value::Bool(true));
        };
        match last {
            Some(last) => Ok(Value::Bool(!equal(&last, &now, self.meter)?)),
            None => Ok(Value::Bool(true)),
        }
    }
}
