//! Inline tables: their keys, each said once.

use super::nearest::nearest;
use super::source::Value;
use super::value::Slot;
use crate::problem::Problem;

/// A value that is an inline table.
pub trait Table: Clone {
    /// Its description, as the rest of a sentence that begins with "is not".
    const WANTED: &'static str = "";
    /// The same of a list of such tables.
    const LIST: &'static str = "";

    /// The table for a value that stands for one.
    fn short(_value: &Value) -> Option<Self> {
        None
    }

    /// Visits the keys.
    fn fields(&mut self, fields: &mut Fields<'_>);
}

/// The purpose of a visit of a table's keys.
pub enum Fields<'a> {
    /// To read them: the entries, and whether all is right.
    Read(&'a [(String, Value)], bool),
    /// To write them.
    Write(Vec<String>),
    /// To list their names.
    List(Vec<&'static str>),
}

impl Fields<'_> {
    /// A key that may be left out. Returns whether it was there and is right.
    pub fn field<T: Slot>(&mut self, name: &'static str, slot: &mut T) -> bool {
        use super::value::Item as _;
        match self {
            Fields::Read(entries, is_right) => {
                let Some((_, value)) = entries.iter().find(|(key, _)| key == name) else { return false };
                let read = T::Item::read(value);
                *is_right &= read.is_some();
                let given = read.is_some();
                *slot = read.map_or(slot.clone(), T::of);
                return given;
            }
            Fields::Write(lines) => lines.extend(slot.item().map(|item| format!("{name} = {}", item.written()))),
            Fields::List(names) => names.push(name),
        }
        false
    }

    /// A key that must be there.
    pub fn required<T: Slot>(&mut self, name: &'static str, slot: &mut T) {
        let given = self.field(name, slot);
        self.require(given);
    }

    /// Whether they are read.
    pub fn reads(&self) -> bool {
        matches!(self, Fields::Read(..))
    }

    /// A rule that a table must keep, which is read.
    pub fn require(&mut self, holds: bool) {
        if let Fields::Read(_, is_right) = self {
            *is_right &= holds;
        }
    }
}

/// `blank` with the entries of `value`; `None` where one is wrong or lacks.
pub fn read_table<T: Table>(value: &Value, mut blank: T) -> Option<T> {
    if let Some(table) = T::short(value) {
        return Some(table);
    }
    let mut fields = Fields::Read(value.table()?, true);
    blank.fields(&mut fields);
    matches!(fields, Fields::Read(_, true)).then_some(blank)
}

/// The table, with nothing left to defaults.
pub fn written_table<T: Table>(table: &T) -> String {
    let mut fields = Fields::Write(vec![]);
    table.clone().fields(&mut fields);
    let Fields::Write(lines) = fields else { return String::new() };
    format!("{{ {} }}", lines.join(", "))
}

/// The names of its keys.
pub fn keys_of<T: Table>(mut blank: T) -> Vec<&'static str> {
    let mut fields = Fields::List(vec![]);
    blank.fields(&mut fields);
    let Fields::List(names) = fields else { return vec![] };
    names
}

/// A table of [`Table`] as a value, with what it is where its keys are left out.
macro_rules! tables {
    ($($type:ident = $blank:expr;)+) => {$(
        impl $crate::run_file::value::Item for $type {
            const LIST: &'static str = <$type as $crate::run_file::table::Table>::LIST;

            fn wanted() -> String {
                <$type as $crate::run_file::table::Table>::WANTED.into()
            }

            fn read(value: &$crate::run_file::source::Value) -> Option<$type> {
                $crate::run_file::table::read_table(value, $blank)
            }

            fn written(&self) -> String {
                $crate::run_file::table::written_table(self)
            }

            fn table_keys() -> Vec<&'static str> {
                $crate::run_file::table::keys_of::<$type>($blank)
            }
        }
    )+};
}

pub(crate) use tables;

/// The problems of `key = value`, a table or a list of tables, whose keys are `known`: one for each other key.
pub fn unknown(key: &str, value: &Value, known: &[&str]) -> Vec<Problem> {
    let tables = match value.list() {
        Some(items) => items,
        None => std::slice::from_ref(value),
    };
    let of_table = |table: &Value| {
        let entries = table.table().unwrap_or_default();
        let others = entries.iter().filter(|(name, _)| !known.contains(&name.as_str()));
        others.map(|(name, _)| problem(key, table, name, known)).collect::<Vec<_>>()
    };
    tables.iter().flat_map(of_table).collect()
}

fn problem(key: &str, table: &Value, name: &str, known: &[&str]) -> Problem {
    let remedy = match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("its keys are {}", known.join(", ")),
    };
    Problem::of_key(key, format!("has the unknown key `{name}` in {table}"), remedy)
}
