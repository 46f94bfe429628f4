//! Numbers of one step by name. Steps with the same names share them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

/// Names that a run has at most; numbers of further names are left out.
pub const MOST_NAMES: usize = 256;

/// The numbers of a step, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// In order.
    names: Arc<[Arc<str>]>,
    numbers: Box<[f64]>,
}

impl Values {
    /// The number of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        let place = self.names.binary_search_by(|own| (**own).cmp(name)).ok()?;
        self.numbers.get(place).copied()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.names.iter().map(|name| &**name).zip(self.numbers.iter().copied())
    }
}

/// Reads the numbers of steps.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    known: BTreeMap<String, Arc<str>>,
    /// The values of the step before.
    last: Arc<[Arc<str>]>,
}

impl Reader {
    /// Values of `record` that `number` accepts.
    pub(crate) fn read(&mut self, record: &Map<String, Value>, number: impl Fn(&str, &Value) -> Option<f64>) -> Values {
        let mut found: Vec<(Arc<str>, f64)> = vec![];
        for (name, value) in record {
            if let Some(number) = number(name, value)
                && let Some(name) = self.known(name)
            {
                found.push((name, number));
            }
        }
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let is_same =
            found.len() == self.last.len() && self.last.iter().zip(&found).all(|(last, (name, _))| last == name);
        if !is_same {
            self.last = found.iter().map(|(name, _)| Arc::clone(name)).collect();
        }
        Values { names: Arc::clone(&self.last), numbers: found.into_iter().map(|(_, number)| number).collect() }
    }

    fn known(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.known.get(name) {
            return Some(Arc::clone(known));
        }
        (self.known.len() < MOST_NAMES)
            .then(|| Arc::clone(self.known.entry(name.into()).or_insert_with(|| name.into())))
    }
}

#[cfg(test)]
pub(crate) fn values(pairs: &[(&str, f64)]) -> Values {
    let record: Map<String, Value> = pairs.iter().map(|(name, number)| ((*name).into(), (*number).into())).collect();
    Reader::default().read(&record, |name, _| pairs.iter().find(|(own, _)| *own == name).map(|(_, number)| *number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_share_names_and_have_no_more_of_them_than_the_limit() {
        let mut reader = Reader::default();
        let mut read = |text: &str| {
            let Ok(Value::Object(record)) = serde_json::from_str(text) else { panic!("{text}") };
            reader.read(&record, |name, value| value.as_f64().filter(|_| name != "step"))
        };
        let [first, second] = ["{\"step\":1,\"b\":2,\"a\":1}", "{\"a\":3,\"b\":4}"].map(&mut read);
        assert_eq!(first.iter().collect::<Vec<_>>(), [("a", 1.0), ("b", 2.0)]);
        assert!(Arc::ptr_eq(&first.names, &second.names) && second.get("b") == Some(4.0) && second.get("c").is_none());
        for number in 2..MOST_NAMES {
            assert!(read(&format!("{{\"n{number}\":1}}")).get(&format!("n{number}")).is_some());
        }
        let beyond = read("{\"one more\":1,\"a\":5}");
        assert_eq!(beyond.iter().collect::<Vec<_>>(), [("a", 5.0)]);
    }
}
