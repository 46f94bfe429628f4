//! Dictionaries, in the order in which their keys were set.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::meter::{Fault, Meter, fault};
use super::value::{Nesting, Value};

/// Entries that are searched one by one; more have a table.
const SMALL: usize = 12;
/// Steps of an entry: a key, a value and a place in the table.
const ENTRY_STEPS: usize = 4;

/// Keys with values, which never change.
#[derive(Default)]
pub(in crate::chat) struct Dict {
    entries: Vec<(Value, Value)>,
    places: HashMap<Key, usize>,
    nesting: Nesting,
}

/// A key as Python compares it: 1, 1.0 and true are one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    None,
    Int(i128),
    /// The bits of a number that is not whole.
    Float(u64),
    Text(Arc<str>),
}

/// Whole numbers up to this one are the same as floats and as integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Key {
    /// # Errors
    /// A value that is not a key.
    fn of(value: &Value) -> Result<Key, Fault> {
        match value {
            Value::None => Ok(Key::None),
            Value::Bool(value) => Ok(Key::Int(i128::from(*value))),
            Value::Int(value) => Ok(Key::Int(*value)),
            Value::Float(value) if value.fract() == 0.0 && value.abs() <= EXACT => Ok(Key::Int(*value as i128)),
            Value::Float(value) => Ok(Key::Float(value.to_bits())),
            Value::Text(text) => Ok(Key::Text(text.clone())),
            Value::Undefined
            | Value::List(_)
            | Value::Dict(_)
            | Value::Namespace(_)
            | Value::Macro(_)
            | Value::Loop(_)
            | Value::Function(_)
            | Value::Method(_) => {
                Err(fault(format!("{} cannot be a key; use a string, a number, a boolean or none", value.kind())))
            }
        }
    }

    fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Key::Text(key), Value::Text(text)) => key == text,
            (Key::Text(_), _) | (_, Value::Text(_)) => false,
            (key, value) => Key::of(value).is_ok_and(|other| *key == other),
        }
    }

    fn bytes(&self) -> usize {
        if let Key::Text(text) = self { text.len() } else { 0 }
    }
}

impl Dict {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn nesting(&self) -> Nesting {
        self.nesting
    }

    /// The value of the text `key`.
    pub(in crate::chat) fn get_text(&self, key: &str) -> Option<&Value> {
        if self.places.is_empty() {
            return self.entries.iter().find(|(own, _)| own.as_text() == Some(key)).map(|(_, value)| value);
        }
        self.places.get(&Key::Text(key.into())).map(|place| &self.entries[*place].1)
    }

    /// The value of `key`; nothing for a value that is not a key.
    pub(super) fn get(&self, key: &Value, meter: &Meter) -> Result<Option<&Value>, Fault> {
        meter.step(1)?;
        if matches!(key, Value::Undefined) {
            return Ok(None);
        }
        let key = Key::of(key)?;
        meter.read(key.bytes())?;
        Ok(self.place(&key).map(|place| &self.entries[place].1))
    }

    fn place(&self, key: &Key) -> Option<usize> {
        match self.places.is_empty() {
            true => self.entries.iter().position(|(own, _)| key.is(own)),
            false => self.places.get(key).copied(),
        }
    }

    /// All entries, which are paid for.
    pub(super) fn walk(&self, meter: &Meter) -> Result<&[(Value, Value)], Fault> {
        meter.step(self.entries.len())?;
        Ok(&self.entries)
    }

    /// The keys, for messages.
    pub(in crate::chat) fn keys(&self) -> impl Iterator<Item = &Value> {
        self.entries.iter().map(|(key, _)| key)
    }

    /// Sets a key; a key that is there keeps its place.
    ///
    /// # Errors
    /// A value that is not a key, or a value that is nested too deep.
    fn set(&mut self, key: Value, value: Value) -> Result<(), Fault> {
        let hashed = Key::of(&key)?;
        self.nesting = self.nesting.around(&value)?;
        if let Some(place) = self.place(&hashed) {
            self.entries[place].1 = value;
            return Ok(());
        }
        if !self.places.is_empty() {
            self.places.insert(hashed, self.entries.len());
        }
        self.entries.push((key, value));
        if self.places.is_empty() && self.entries.len() > SMALL {
            let keys = self.entries.iter().enumerate().map(|(place, (key, _))| Ok((Key::of(key)?, place)));
            self.places = keys.collect::<Result<_, Fault>>()?;
        }
        Ok(())
    }
}

/// A dictionary under construction.
pub(super) struct DictBuilder<'m> {
    meter: &'m Meter,
    dict: Dict,
}

impl<'m> DictBuilder<'m> {
    pub(super) fn new(meter: &'m Meter) -> DictBuilder<'m> {
        DictBuilder { meter, dict: empty() }
    }

    pub(super) fn set(&mut self, key: Value, value: Value) -> Result<(), Fault> {
        self.meter.step(ENTRY_STEPS)?;
        self.meter.read(key.as_text().map_or(0, str::len))?;
        self.dict.set(key, value)
    }

    pub(super) fn finish(mut self) -> Result<Value, Fault> {
        self.meter.step(2)?;
        self.dict.entries.shrink_to_fit();
        Ok(Value::Dict(Arc::new(self.dict)))
    }
}

fn empty() -> Dict {
    Dict { nesting: Nesting::of_one(), ..Dict::default() }
}

impl Value {
    /// A dictionary of entries that are there.
    ///
    /// # Errors
    /// A value that is not a key, or values that are nested too deep.
    pub(in crate::chat) fn dict(entries: impl IntoIterator<Item = (Value, Value)>) -> Result<Value, Fault> {
        let mut dict = empty();
        for (key, value) in entries {
            dict.set(key, value)?;
        }
        dict.entries.shrink_to_fit();
        Ok(Value::Dict(Arc::new(dict)))
    }
}

/// Keys that were seen.
#[derive(Default)]
pub(super) struct Seen(HashSet<Key>);

impl Seen {
    /// Whether `value` is seen for the first time.
    ///
    /// # Errors
    /// A value that is not a key.
    pub(super) fn is_new(&mut self, value: &Value, meter: &Meter) -> Result<bool, Fault> {
        let key = Key::of(value)?;
        meter.step(2)?;
        meter.read(key.bytes())?;
        Ok(self.0.insert(key))
    }
}
