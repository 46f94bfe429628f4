//! Values of a `config.json`, and what is said about those that cannot be used.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::InterchangeError;

/// The values of a file, or of an object in it. An absent value and `null` are the same.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// The file, for messages.
    pub path: &'a Path,
    /// The values.
    pub map: &'a Map<String, Value>,
}

/// The largest size: products of two sizes then fit a machine word with room for a third factor of a few heads.
const MAX_SIZE: usize = 1 << 24;

impl<'a> Fields<'a> {
    fn find(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// The value of `key` breaks `rule`.
    pub fn refused(&self, key: &str, rule: impl Into<String>) -> InterchangeError {
        let value = self.find(key).map_or("null".into(), ToString::to_string);
        InterchangeError::Config { path: self.path.into(), key: key.into(), value, rule: rule.into() }
    }

    fn or_default<T>(
        &self,
        key: &str,
        wanted: &str,
        default: T,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<T, InterchangeError> {
        match self.find(key) {
            None => Ok(default),
            Some(value) => convert(value).ok_or_else(|| self.refused(key, format!("is not {wanted}"))),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is absent, or something else.
    pub fn count(&self, key: &str) -> Result<usize, InterchangeError> {
        match self.find(key) {
            None => Err(self.refused(key, "must be a size; use a whole number")),
            Some(_) => self.count_or(key, 0),
        }
    }

    /// A whole number, or `default`.
    ///
    /// # Errors
    /// It is something else.
    pub fn count_or(&self, key: &str, default: usize) -> Result<usize, InterchangeError> {
        let wanted = "a whole number up to 16777216";
        self.or_default(key, wanted, default, |value| {
            usize::try_from(value.as_u64()?).ok().filter(|size| *size <= MAX_SIZE)
        })
    }

    /// The whole number under the first of `keys` that is there.
    ///
    /// # Errors
    /// None is, or it is something else.
    pub fn count_of(&self, keys: [&str; 2]) -> Result<usize, InterchangeError> {
        let key = keys.into_iter().find(|key| self.find(key).is_some()).unwrap_or(keys[0]);
        self.count(key)
    }

    /// A number.
    ///
    /// # Errors
    /// It is absent, or something else.
    pub fn number(&self, key: &str) -> Result<f32, InterchangeError> {
        match self.find(key) {
            None => Err(self.refused(key, "is not a number")),
            Some(_) => self.number_or(key, 0.0),
        }
    }

    /// A number, or `default`.
    ///
    /// # Errors
    /// It is something else.
    pub fn number_or(&self, key: &str, default: f32) -> Result<f32, InterchangeError> {
        self.or_default(key, "a number", default, |value| value.as_f64().map(|number| number as f32))
    }

    /// A positive number in double precision, or `default`.
    ///
    /// # Errors
    /// It is something else.
    pub fn positive_or(&self, key: &str, default: f64) -> Result<f64, InterchangeError> {
        let is_positive = |number: &f64| *number > 0.0 && number.is_finite();
        self.or_default(key, "a number above 0", default, |value| value.as_f64().filter(is_positive))
    }

    /// True or false, or `default`.
    ///
    /// # Errors
    /// It is something else.
    pub fn truth_or(&self, key: &str, default: bool) -> Result<bool, InterchangeError> {
        self.or_default(key, "true or false", default, Value::as_bool)
    }

    /// A string, or `default`.
    ///
    /// # Errors
    /// It is something else.
    pub fn text_or(&self, key: &str, default: &'a str) -> Result<&'a str, InterchangeError> {
        self.or_default(key, "a string", default, Value::as_str)
    }

    /// The object under `key`, if there is one.
    ///
    /// # Errors
    /// It is something else.
    pub fn object(&self, key: &str) -> Result<Option<Fields<'a>>, InterchangeError> {
        let map = self.or_default(key, "an object", None, |value| value.as_object().map(Some))?;
        Ok(map.map(|map| Fields { path: self.path, map }))
    }

    /// Refuses every value of `key` but `only`, which an absent one means.
    ///
    /// # Errors
    /// It has another value.
    pub fn only(&self, key: &str, only: impl Into<Value>) -> Result<(), InterchangeError> {
        let only = only.into();
        // Files write 0 and 0.0 for one number.
        let is_same = |value: &Value| *value == only || only.is_number() && value.as_f64() == only.as_f64();
        match self.find(key) {
            None => Ok(()),
            Some(value) if is_same(value) => Ok(()),
            Some(_) => Err(self.refused(key, format!("is not supported; use {only}"))),
        }
    }

    /// Refuses any value of `key`, which breaks `rule`.
    ///
    /// # Errors
    /// It has one.
    pub fn none(&self, key: &str, rule: &str) -> Result<(), InterchangeError> {
        match self.find(key) {
            None => Ok(()),
            Some(_) => Err(self.refused(key, rule)),
        }
    }

    /// Refuses any value of `key`.
    ///
    /// # Errors
    /// It has one.
    pub fn absent(&self, key: &str) -> Result<(), InterchangeError> {
        self.none(key, "is not supported; use null")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        let only = |value: Value| {
            let map = Map::from_iter([("scale".to_string(), value)]);
            let fields = Fields { path: Path::new("config.json"), map: &map };
            fields.only("scale", 1.0).map_err(|error| error.to_string())
        };
        assert_eq!([only(1.into()), only(1.0.into())], [Ok(()), Ok(())]);
        let refused = |value: &str| Err(format!("config.json: scale = {value} is not supported; use 1.0"));
        assert_eq!([only(2.into()), only("1".into())], [refused("2"), refused("\"1\"")]);
    }

    #[test]
    fn sizes_whose_products_overflow_are_refused() {
        let read = |size: u64| {
            let map = Map::from_iter([("num_heads".to_string(), Value::from(size))]);
            Fields { path: Path::new("config.json"), map: &map }
                .count_or("num_heads", 1)
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(1 << 24), Ok(1 << 24));
        for size in [(1 << 24) + 1, 1 << 33, u64::MAX] {
            assert!(read(size).is_err_and(|said| said.contains("a whole number up to 16777216")), "{size}");
        }
    }
}
