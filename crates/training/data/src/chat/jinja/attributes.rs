//! Attributes, items and slices of values.

use std::sync::Arc;

use super::arguments::integer;
use super::meter::{Fault, fault};
use super::methods;
use super::renderer::Renderer;
use super::value::{Form, ListBuilder, Value};
use super::writer::TextBuilder;

impl Renderer<'_> {
    /// `value.name`: a method, or else an item of a dictionary. Undefined where it is missing.
    pub(super) fn attribute(&mut self, value: &Value, name: &str) -> Result<Value, Fault> {
        self.meter.step(1)?;
        self.meter.read(name.len())?;
        if let Some(method) = methods::find(value, name) {
            return Ok(Value::Method(Arc::new((value.clone(), method))));
        }
        match value {
            Value::Undefined => Err(fault(format!("`{name}` of an undefined value"))),
            Value::Dict(dict) => Ok(dict.get_text(name).cloned().unwrap_or(Value::Undefined)),
            Value::Namespace(number) => {
                let values = self.namespaces.get(*number).map_or(&[][..], |values| values);
                self.meter.read(values.len().saturating_mul(1 + name.len()))?;
                let found = values.iter().find(|(own, _)| **own == *name);
                Ok(found.map_or(Value::Undefined, |(_, value)| value.clone()))
            }
            Value::Loop(number) => self.loop_attribute(*number, name),
            // The pairs of `groupby`.
            Value::List(list) if list.form() == Form::Tuple && list.len() == 2 => {
                let index = ["grouper", "list"].iter().position(|own| *own == name);
                Ok(index.and_then(|index| list.get(index).cloned()).unwrap_or(Value::Undefined))
            }
            Value::Macro(number) if name == "name" => {
                Ok(self.macros.get(*number).map_or(Value::Undefined, |own| Value::Text(own.definition.name.clone())))
            }
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::List(_)
            | Value::Macro(_)
            | Value::Function(_)
            | Value::Method(_) => Ok(Value::Undefined),
        }
    }

    /// An attribute of a `loop`.
    fn loop_attribute(&mut self, number: usize, name: &str) -> Result<Value, Fault> {
        let Some(turn) = self.turns.get(number) else { return Ok(Value::Undefined) };
        let (index, count) = (turn.index, turn.elements.len());
        let element = |index: Option<usize>| {
            index.and_then(|index| turn.elements.get(index)).cloned().unwrap_or(Value::Undefined)
        };
        let int = |value: usize| Value::Int(value as i128);
        Ok(match name {
            "index" => int(index + 1),
            "index0" => int(index),
            "revindex" => int(count - index),
            "revindex0" => int(count - index - 1),
            "first" => Value::Bool(index == 0),
            "last" => Value::Bool(index + 1 == count),
            "length" => int(count),
            "depth" => int(turn.depth + 1),
            "depth0" => int(turn.depth),
            "previtem" => element(index.checked_sub(1)),
            "nextitem" => element(Some(index + 1)),
            _ => Value::Undefined,
        })
    }

    /// `value[index]`: an item, or else a method. Undefined where it is missing.
    pub(super) fn item(&mut self, value: &Value, index: &Value) -> Result<Value, Fault> {
        self.meter.step(1)?;
        if let Value::Dict(dict) = value
            && let Some(item) = dict.get(index, self.meter)?
        {
            return Ok(item.clone());
        }
        if let Value::Text(name) = index {
            return self.attribute(value, name);
        }
        match value {
            Value::Undefined => Err(fault("an item of an undefined value")),
            Value::List(list) => {
                let place = integer(index, "an index")?;
                let place = if place < 0 { place + list.len() as i128 } else { place };
                Ok(usize::try_from(place).ok().and_then(|place| list.get(place).cloned()).unwrap_or(Value::Undefined))
            }
            Value::Text(text) => {
                self.meter.letters(text.len())?;
                let place = integer(index, "an index")?;
                let letter = match place >= 0 {
                    true => usize::try_from(place).ok().and_then(|place| text.chars().nth(place)),
                    false => usize::try_from(-(place + 1)).ok().and_then(|place| text.chars().rev().nth(place)),
                };
                match letter {
                    Some(letter) => {
                        let mut text = TextBuilder::new(self.meter);
                        text.push_char(letter)?;
                        text.finish()
                    }
                    None => Ok(Value::Undefined),
                }
            }
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Dict(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => Ok(Value::Undefined),
        }
    }

    /// `value[start:stop:step]`.
    pub(super) fn slice(&mut self, value: &Value, bounds: &[Option<Value>; 3]) -> Result<Value, Fault> {
        match value {
            Value::List(list) => {
                let mut part = ListBuilder::new(self.meter);
                for place in places(list.len(), bounds)? {
                    part.push(list.get(place).cloned().unwrap_or(Value::Undefined))?;
                }
                part.finish(list.form())
            }
            Value::Text(text) => {
                self.meter.letters(text.len())?;
                let count = text.chars().count();
                let mut part = TextBuilder::new(self.meter);
                let places = places(count, bounds)?;
                if places.step == 1 {
                    let byte = |place: usize| text.char_indices().nth(place).map_or(text.len(), |(at, _)| at);
                    let (start, stop) = (byte(places.start()), byte(places.stop()));
                    part.push(&text[start..stop.max(start)])?;
                    return part.finish();
                }
                self.meter.step(count)?;
                let letters: Vec<char> = text.chars().collect();
                for place in places {
                    part.push_char(letters[place])?;
                }
                part.finish()
            }
            Value::Undefined
            | Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Dict(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => Err(fault(format!("{} has no slices", value.kind()))),
        }
    }
}

/// The places that a slice selects.
struct Places {
    next: i128,
    stop: i128,
    step: i128,
}

impl Places {
    fn start(&self) -> usize {
        usize::try_from(self.next).unwrap_or_default()
    }

    fn stop(&self) -> usize {
        usize::try_from(self.stop).unwrap_or_default()
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let is_inside = if self.step > 0 { self.next < self.stop } else { self.next > self.stop };
        let place = usize::try_from(self.next).ok().filter(|_| is_inside)?;
        self.next = self.next.saturating_add(self.step);
        Some(place)
    }
}

/// The places of `start:stop:step` among `len`, as Python counts them.
fn places(len: usize, bounds: &[Option<Value>; 3]) -> Result<Places, Fault> {
    let bound = |value: &Option<Value>| match value {
        None | Some(Value::None) => Ok(None),
        Some(value) => integer(value, "a slice").map(Some),
    };
    let len = len as i128;
    let step = bound(&bounds[2])?.unwrap_or(1);
    if step == 0 {
        return Err(fault("the step of a slice is 0"));
    }
    let (lowest, highest) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamped = |place: i128| {
        let place = if place < 0 { place.saturating_add(len) } else { place };
        place.clamp(lowest, highest)
    };
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let next = bound(&bounds[0])?.map_or(first, clamped);
    let stop = bound(&bounds[1])?.map_or(last, clamped);
    Ok(Places { next, stop, step })
}
