//! The declarations of keys: each says once its name, its place in a run, its range with the remedy, its name in
//! Megatron-LM, and what it can cause. A visit of all declarations reads a run, writes it, or checks each value.

use std::fmt::Display;
use std::mem::{discriminant, take};

use super::reader::{Alias, OfWeights, Reader};
use super::source::Value;
use super::value::{Harmless, Item, Slot, quoted, shown};
use crate::problem::Problem;
use crate::trusted::{Consequence, Trusted};

/// The purpose of a visit.
pub enum Work<'a> {
    /// To take their values from a file. A value that was visited before stays where the file has none.
    Read(&'a mut Reader),
    /// To add a line for each.
    Write(&'a mut String),
    /// To report the values that are out of their range by themselves.
    Check(&'a mut Vec<Problem>),
}

/// The names of the values of a key, each with the first value of that name.
pub type Variants<T> = [(&'static str, T)];

/// The name of `value`, whatever it has with it.
///
/// # Panics
/// A value that the list of `key` lacks: a run file would be written that cannot be read.
fn variant_name<T>(key: &str, variants: &Variants<T>, value: &T) -> &'static str {
    let is_of = |(_, variant): &&(&'static str, T)| discriminant(variant) == discriminant(value);
    let found = variants.iter().find(is_of);
    assert!(found.is_some(), "every value of {key} must have a name among those that the key declares");
    found.map_or("", |(name, _)| name)
}

/// A key that is set where another one gives it no meaning.
pub struct Idle<'a> {
    /// The key.
    pub key: &'a str,
    /// The other key, and its value as it is written.
    pub other: (&'a str, String),
    /// The values with which the key has a meaning.
    pub with: Vec<String>,
    /// Whether the value of the other key is known, and no default that stands in for a wrong one.
    pub is_known: bool,
}

/// The rule that such a key breaks, and the remedy; `None` where one verdict, on the other key, is enough.
type IdleRule = fn(&Idle<'_>) -> Option<(String, String)>;

/// Names the value, and the first one with which the key has a meaning.
pub fn where_first(Idle { other: (key, value), with, .. }: &Idle<'_>) -> Option<(String, String)> {
    Some((format!("has no effect where {key} = {value}"), format!("write {key} = {}, or leave it out", with[0])))
}

/// Names the value, and all with which the key has a meaning.
pub fn where_all(idle: &Idle<'_>) -> Option<(String, String)> {
    let (rule, _) = where_first(idle)?;
    Some((rule, format!("write {} = {}, or leave it out", idle.other.0, either(&idle.with))))
}

/// Names the value with which the key has a meaning.
pub fn without(Idle { other: (key, _), with, .. }: &Idle<'_>) -> Option<(String, String)> {
    Some((format!("has no effect without {key} = {}", with[0]), "leave it out".into()))
}

/// Returns the same as [`without`], where the value of the other key is known.
pub fn without_known(idle: &Idle<'_>) -> Option<(String, String)> {
    if idle.is_known { without(idle) } else { None }
}

/// `a, b or c`.
pub fn either(names: &[String]) -> String {
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The text of a value, and the value of a text.
pub type AsText<T> = (fn(&T) -> String, fn(String) -> T);

/// A visit of the keys of a section.
pub struct Keys<'a> {
    section: &'static str,
    work: Work<'a>,
    /// Names of keys since the variants that are being visited began.
    seen: Vec<&'static str>,
    /// Whether all variants that are being visited are those of the run.
    is_chosen: bool,
}

impl<'a> Keys<'a> {
    /// A visit for `work`.
    pub fn new(work: Work<'a>) -> Keys<'a> {
        Keys { section: "", work, seen: vec![], is_chosen: true }
    }

    /// Continues with the keys of `[section]`.
    pub fn section(&mut self, section: &'static str) -> &mut Keys<'a> {
        self.section = section;
        if let Work::Write(text) = &mut self.work {
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}[{section}]\n"));
        }
        self
    }

    /// The reader, where values are read.
    pub fn reader(&mut self) -> Option<&mut Reader> {
        match &mut self.work {
            Work::Read(reader) => Some(reader),
            Work::Write(_) | Work::Check(_) => None,
        }
    }

    /// The reader, where values of the run are read.
    pub fn chosen_reader(&mut self) -> Option<&mut Reader> {
        if self.is_chosen { self.reader() } else { None }
    }

    /// Whether values are written.
    pub fn writes(&self) -> bool {
        matches!(self.work, Work::Write(_))
    }

    /// Whether values are read, and that of `name` was written.
    pub fn is_set(&mut self, name: &str) -> bool {
        let key = self.full(name);
        self.reader().is_some_and(|reader| reader.is_set(&key))
    }

    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    fn line(&mut self, name: &str, value: &str) {
        if let Work::Write(text) = &mut self.work {
            text.push_str(&format!("{name} = {value}\n"));
        }
    }

    /// A key whose value cannot name a file, an address or a command.
    pub fn key<'k, T: Slot<Item: Harmless>>(&'k mut self, name: &'static str, slot: &'k mut T) -> Key<'k, 'a, T> {
        self.judged(Consequence::Within, name, slot)
    }

    /// A key that is written where its value is not `usual`.
    pub fn key_unless<'k, T>(&'k mut self, usual: T, name: &'static str, slot: &'k mut T) -> Key<'k, 'a, T>
    where
        T: Slot<Item: Harmless> + PartialEq,
    {
        if self.writes() && *slot == usual {
            return Key { keys: self, name, slot, given: false };
        }
        self.key(name, slot)
    }

    /// A key whose value can cause what `consequence` says, at most.
    pub fn judged<'k, T: Slot>(
        &'k mut self,
        consequence: Consequence,
        name: &'static str,
        slot: &'k mut T,
    ) -> Key<'k, 'a, T> {
        self.judged_as(consequence, name, slot, T::Item::read)
    }

    /// Returns the same as [`Keys::judged`], for a value that `read` reads.
    pub fn judged_as<'k, T: Slot>(
        &'k mut self,
        consequence: Consequence,
        name: &'static str,
        slot: &'k mut T,
        read: impl Fn(&Value) -> Option<T::Item>,
    ) -> Key<'k, 'a, T> {
        self.seen.push(name);
        let key = if self.reader().is_some() { self.full(name) } else { String::new() };
        let taken = self.reader().and_then(|reader| reader.take(&key, consequence, read));
        let given = taken.is_some();
        if let Some(item) = taken {
            *slot = T::of(item);
        }
        // Nothing is said of an empty list.
        let written = if self.writes() { slot.item().map(Item::written).filter(|text| text != "[]") } else { None };
        if let Some(written) = written {
            self.line(name, &written);
        }
        Key { keys: self, name, slot, given }
    }

    /// A text that acts, which has to be the user's: left out where nobody answers for it.
    pub fn acting<T>(
        &mut self,
        consequence: Consequence,
        name: &'static str,
        slot: &mut Option<Trusted<T>>,
        (text, of): AsText<T>,
    ) {
        let key = self.full(name);
        if let (true, Some(value)) = (self.writes(), &slot) {
            self.line(name, &quoted(&text(value)));
        }
        if let Some(text) = self.reader().and_then(|reader| reader.acting_text(&key, consequence)) {
            *slot = Some(text.map(of));
        }
    }

    /// A key that has one of the names of `variants`, and the keys that its value has with it, which `visit` visits.
    /// Reports by `idle` those that are set and belong to other variants alone.
    pub fn variants<T: Clone>(
        &mut self,
        name: &'static str,
        slot: &mut T,
        variants: &Variants<T>,
        idle: IdleRule,
        mut visit: impl FnMut(&mut Keys<'a>, &mut T),
    ) {
        let names: Vec<&'static str> = variants.iter().map(|(name, _)| *name).collect();
        let key = self.full(name);
        self.seen.push(name);
        let mut chosen = variant_name(&key, variants, slot);
        self.line(name, &shown(chosen));
        let Some(reader) = self.reader() else { return visit(self, slot) };
        chosen = reader.take_name(&key, &names).unwrap_or(chosen);
        let (outer, is_chosen) = (take(&mut self.seen), self.is_chosen);
        let mut keys = vec![];
        for (name, variant) in variants {
            let mut value = variant.clone();
            self.is_chosen = is_chosen && *name == chosen;
            visit(self, &mut value);
            if *name == chosen {
                *slot = value;
            }
            keys.push((*name, take(&mut self.seen)));
        }
        (self.seen, self.is_chosen) = (outer, is_chosen);
        let mut others: Vec<&str> = vec![];
        for name in keys.iter().flat_map(|(_, own)| own) {
            if !others.contains(name) {
                others.push(name);
            }
        }
        for name in others {
            let with: Vec<&str> =
                keys.iter().filter(|(_, own)| own.contains(&name)).map(|(variant, _)| *variant).collect();
            let with_shown = with.iter().map(|variant| shown(variant)).collect();
            let own = self.full(name);
            let is_known = self.reader().is_some_and(|reader| !reader.unusable.contains(&key));
            let idle_key = Idle { key: &own, other: (&key, shown(chosen)), with: with_shown, is_known };
            let verdict = if with.contains(&chosen) { None } else { idle(&idle_key) };
            if let Some((rule, remedy)) = verdict {
                self.idle(true, &[name], &rule, &remedy);
            }
        }
    }

    /// Reports those of `names` that are set although they are idle.
    pub fn idle(&mut self, is_idle: bool, names: &[&str], rule: &str, remedy: &str) {
        for key in names.iter().map(|name| self.full(name)).collect::<Vec<_>>() {
            if let Some(reader) = self.reader().filter(|reader| is_idle && reader.is_set(&key)) {
                reader.report(Problem::of_key(&key, rule, remedy));
            }
        }
    }

    /// Whether weights depend on a key.
    pub fn of_weights(&mut self, name: &str, of_weights: OfWeights) {
        let key = self.full(name);
        if let Some(declared) = self.reader().and_then(|reader| reader.declared.get_mut(&key)) {
            declared.of_weights = of_weights;
        }
    }

    /// Another name of a key: `name`, or `name: note`.
    pub fn megatron(&mut self, key: &str, alias: &'static str) {
        let key = self.full(key);
        let (name, note) = alias.split_once(": ").unwrap_or((alias, ""));
        if let Some(reader) = self.reader() {
            reader.alias(Alias { name, key, note });
        }
    }
}

/// A key that was visited.
pub struct Key<'k, 'a, T> {
    keys: &'k mut Keys<'a>,
    name: &'static str,
    slot: &'k mut T,
    given: bool,
}

impl<T: Slot> Key<'_, '_, T> {
    /// Whether a value was read.
    pub fn given(self) -> bool {
        self.given
    }

    /// The value of a run file without the key, where it follows from others.
    pub fn or(self, default: T) -> Self {
        if !self.given && self.keys.reader().is_some() {
            *self.slot = default;
        }
        self
    }

    /// A rule that the value must keep.
    pub fn must(self, holds: impl Fn(&T::Item) -> bool, rule: &str, remedy: impl Display) -> Self {
        let broken = self.slot.item().filter(|item| !holds(item));
        if let (Some(item), Work::Check(problems)) = (broken, &mut self.keys.work) {
            let key = format!("{}.{}", self.keys.section, self.name);
            problems.push(Problem::of_value(&key, item.written(), rule, remedy.to_string()));
        }
        self
    }

    /// A count from 1.
    pub fn positive(self) -> Self
    where
        T::Item: PartialEq + Default,
    {
        self.must(|count| *count != T::Item::default(), "must be positive", "use at least 1")
    }

    /// At most `limit`.
    pub fn at_most(self, limit: T::Item, rule: &str) -> Self
    where
        T::Item: PartialOrd + Display,
    {
        self.must(|value| *value <= limit, rule, format!("use at most {limit}"))
    }

    /// The name of the key in Megatron-LM or DeepSpeed: `name`, or `name: note`.
    pub fn megatron(self, alias: &'static str) -> Self {
        self.keys.megatron(self.name, alias);
        self
    }

    /// Whether weights depend on it.
    pub fn of(self, of_weights: OfWeights) -> Self {
        self.keys.of_weights(self.name, of_weights);
        self
    }
}

impl<T: Slot<Item = f32>> Key<'_, '_, T> {
    /// A number above 0.
    pub fn above_zero(self, rule: &str, remedy: &str) -> Self {
        self.must(|value| *value > 0.0, rule, remedy)
    }

    /// A probability that something is left: `[0, 1)`.
    pub fn below_one(self, rule: &str) -> Self {
        self.must(|value| (0.0..1.0).contains(value), rule, "use 0 or more and less than 1")
    }
}

/// Declares the keys of a section: each field of a value with what it is where a run file leaves it out, then what is
/// said of the key of that name, or a block that visits keys of other names. A `[quiet]` one is not written while it
/// has that value.
macro_rules! keys {
    (@row $keys:ident $spec:ident [$field:ident $default:expr] [] [$own:block] []) => { $own };
    (@row $keys:ident $spec:ident [$field:ident $default:expr] [] [] [$($said:tt)*]) => {
        $keys.key(stringify!($field), &mut $spec.$field)$($said)*;
    };
    (@row $keys:ident $spec:ident [$field:ident $default:expr] [quiet] [] [$($said:tt)*]) => {
        $keys.key_unless($default, stringify!($field), &mut $spec.$field)$($said)*;
    };
    (
        $keys:ident, $spec:ident: $type:ident $(, $more:ident: $more_type:ty)*;
        $(
            $([$quiet:ident])? $field:ident = $default:expr
            $(=> $own:block)? $(, $(.$say:ident($($what:expr),*))+)? ;
        )+
    ) => {
        /// The values of keys that a run file leaves out, but for those that follow from other keys.
        pub fn defaults() -> $type {
            $type { $($field: $default),+ }
        }

        /// Visits the keys of the section.
        pub fn visit($keys: &mut Keys<'_>, $spec: &mut $type $(, $more: $more_type)*) {
            $(keys!(@row $keys $spec [$field $default] [$($quiet)?] [$($own)?] [$($(.$say($($what),*))+)?]);)+
        }
    };
}

pub(crate) use keys;
