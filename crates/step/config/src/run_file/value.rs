//! The types of values: how each is read, and how it is written.

use std::path::PathBuf;

use super::source::Value;
use crate::data_spec::{ChatDate, TokenizerSpec};
use crate::learning_rate::DecayLength;
use crate::model::TopQuery;
use crate::names::Names;
use crate::parallelism::{Overlap, SequenceParallel};

/// Largest count that a run file may name: every product of two counts then fits 64 bits.
const MAX_COUNT: i128 = i32::MAX as i128;

/// A value of a run file.
pub trait Item: Clone {
    /// The description of a list of such values, as the rest of a sentence that begins with "is not".
    const LIST: &'static str = "";

    /// Its description, as the rest of a sentence that begins with "is not".
    fn wanted() -> String;

    /// The value, or `None` for another type or another name.
    fn read(value: &Value) -> Option<Self>;

    /// As a run file has it.
    fn written(&self) -> String;

    /// The names that it may have; none where it has another type.
    fn names() -> Vec<&'static str> {
        vec![]
    }

    /// The keys of an inline table; none where it has another type.
    fn table_keys() -> Vec<&'static str> {
        vec![]
    }
}

/// A value that names neither a file nor an address nor a command, whatever it is.
pub trait Harmless {}

/// The place of a value in a run: the value itself, or an optional one, which is written where there is one.
pub trait Slot: Clone {
    type Item: Item;

    fn of(item: Self::Item) -> Self;

    fn item(&self) -> Option<&Self::Item>;
}

impl<T: Item> Slot for T {
    type Item = T;

    fn of(item: T) -> T {
        item
    }

    fn item(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T: Item> Slot for Option<T> {
    type Item = T;

    fn of(item: T) -> Option<T> {
        Some(item)
    }

    fn item(&self) -> Option<&T> {
        self.as_ref()
    }
}

impl<T: Names> Item for T {
    const LIST: &'static str = <T as Names>::LIST;

    fn wanted() -> String {
        one_of(&T::names())
    }

    fn read(value: &Value) -> Option<T> {
        T::of_name(&name_written(value)?)
    }

    fn written(&self) -> String {
        shown(self.name_in_files())
    }

    fn names() -> Vec<&'static str> {
        T::NAMES.iter().map(|(name, _)| *name).collect()
    }
}

impl<T: Names> Harmless for T {}
impl<T: Harmless> Harmless for Vec<T> {}

/// A name as it is written: in quotes, unless it is a number or a truth.
pub fn shown(name: &str) -> String {
    let is_bare = name.bytes().all(|byte| byte.is_ascii_digit()) || ["true", "false"].contains(&name);
    if is_bare { name.into() } else { format!("{name:?}") }
}

/// The name that a value is; a number stands for its own digits, `true` and `false` for themselves.
pub fn name_written(value: &Value) -> Option<String> {
    let digits = || value.integer().map(|number| number.to_string());
    let truth = || value.boolean().map(|truth| truth.to_string());
    value.text().map(str::to_string).or_else(digits).or_else(truth)
}

/// `"a"`, `"a" or "b"`, `one of "a", "b" and "c"`.
pub fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| shown(name)).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first, second] => format!("{first} or {second}"),
        [first @ .., last] => format!("one of {} and {last}", first.join(", ")),
    }
}

/// Types with a description, a way to read them, and one to write them.
macro_rules! items {
    ($($type:ty, $wanted:expr, $read:expr, $written:expr $(, $list:literal)?;)+) => {$(
        impl Item for $type {
            $(const LIST: &'static str = $list;)?

            fn wanted() -> String {
                $wanted.into()
            }

            fn read(value: &Value) -> Option<$type> {
                let read: fn(&Value) -> Option<$type> = $read;
                read(value)
            }

            fn written(&self) -> String {
                let written: fn(&$type) -> String = $written;
                written(self)
            }
        }
    )+};
}

/// A number that is written to the last digit, so that it is a power of two in 64 bits, too.
#[derive(Clone)]
pub struct PowerOfTwo(pub f32);

const COUNT: &str = "a whole number from 0 to 2147483647";

items! {
    usize, COUNT, count, usize::to_string, "a list of whole numbers such as [3, 3]";
    u32, COUNT, |value| count(value)?.try_into().ok(), u32::to_string;
    u64, "a whole number from 0 to 18446744073709551615", |value| value.integer()?.try_into().ok(), u64::to_string;
    // The fewest digits that give the same 32 bits again.
    f32, "a number", Value::number, |number| format!("{number:?}");
    PowerOfTwo, f32::wanted(), |value| value.number().map(PowerOfTwo), |scale| format!("{:.1}", scale.0);
    bool, "true or false", Value::boolean, bool::to_string;
    String, "a string", |value| value.text().map(str::to_string), |text| quoted(text),
        "a list of texts such as [\"The\"]";
    PathBuf, "a string", |value| value.text().map(PathBuf::from), |path| quoted(&path.to_string_lossy());
    DecayLength, "a number of steps, or a share of all steps such as 0.2", decay_length, |length| match length {
        DecayLength::Steps(steps) => steps.to_string(),
        DecayLength::Share(share) => share.written(),
    };
    TokenizerSpec, TokenizerSpec::FORMS, |value| TokenizerSpec::parse(value.text()?), |own| quoted(&own.to_string());
    ChatDate, "a date", |value| ChatDate::parse(value.text()?), |date| quoted(&date.to_string());
    TopQuery, "true or false", |value| value.boolean().map(|on| if on { TopQuery::On } else { TopQuery::Off }),
        |value| (*value == TopQuery::On).to_string();
    Overlap, "true or false", |value| value.boolean().map(|on| if on { Overlap::On } else { Overlap::Off }),
        |value| (*value == Overlap::On).to_string();
    SequenceParallel, "true or false",
        |value| value.boolean().map(|on| if on { SequenceParallel::On } else { SequenceParallel::Off }),
        |value| (*value == SequenceParallel::On).to_string();
}

macro_rules! harmless {
    ($($type:ty)+) => { $(impl Harmless for $type {})+ };
}

harmless! { usize u32 u64 f32 PowerOfTwo bool DecayLength TopQuery Overlap SequenceParallel }

impl<T: Item> Item for Vec<T> {
    fn wanted() -> String {
        T::LIST.into()
    }

    fn read(value: &Value) -> Option<Vec<T>> {
        value.list()?.iter().map(T::read).collect()
    }

    fn written(&self) -> String {
        format!("[{}]", self.iter().map(T::written).collect::<Vec<_>>().join(", "))
    }

    fn table_keys() -> Vec<&'static str> {
        T::table_keys()
    }
}

/// A string, quoted and escaped.
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}

/// A whole number below 2^31.
pub fn count(value: &Value) -> Option<usize> {
    value.integer().filter(|number| (0..=MAX_COUNT).contains(number)).and_then(|number| usize::try_from(number).ok())
}

/// A whole number is steps, a number below 1 a share.
fn decay_length(value: &Value) -> Option<DecayLength> {
    if let Some(steps) = count(value) {
        return u32::try_from(steps).ok().filter(|steps| *steps > 0).map(DecayLength::Steps);
    }
    value.number().filter(|share| 0.0 < *share && *share < 1.0).map(DecayLength::Share)
}
