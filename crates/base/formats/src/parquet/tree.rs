//! The chosen column among the elements of a schema: one column of values, or a tree of lists and structs above
//! several.
//!
//! Source of the forms of lists: <https://github.com/apache/parquet-format/blob/master/LogicalTypes.md>; of the levels:
//! `README.md` there (nested encoding).

use std::ops::Range;

use super::columns::{Column, Element, Physical, Repetition, after};
use crate::error::Problem;
use crate::kinds::{ColumnChoice, MOST_LEVELS, Nesting, USE_FLAT, USE_FLAT_OR_CHAT};

/// The most columns of values below a nested column.
const MOST_LEAVES: usize = 1024;

/// The chosen column: its columns of values, and its tree if it has one.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The place of the first column of values among all of the table.
    pub first_leaf: usize,
    pub columns: Vec<Column>,
    pub tree: Option<Tree>,
}

/// The meaning of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    Text,
    Boolean,
    Signed,
    Unsigned,
    Float,
    /// The field and its type, which are named where a value is there.
    Refused(String),
}

/// The content of a part of a nested column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Value(Meaning),
    Struct(Vec<(String, Tree)>),
    List {
        /// Definition level from which on the list has an element.
        element_definition: u32,
        /// Repetition level of the elements after the first.
        repetition: u32,
        element: Box<Tree>,
    },
}

/// A part of a nested column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Definition level from which on it is there.
    pub definition: u32,
    /// Its columns of values.
    pub leaves: Range<usize>,
    pub content: Content,
}

/// Finds the column among `elements`.
///
/// # Errors
/// No such column, or one of values that are not read.
pub fn choose(elements: &[Element], choice: &ColumnChoice, nesting: Nesting) -> Result<Chosen, Problem> {
    let root = elements.first().ok_or_else(|| Problem::damaged("it describes no columns"))?;
    let mut tops = Vec::new();
    let mut at = 1;
    for _ in 0..root.children {
        let after = after(elements, at)?;
        tops.push((at, after));
        at = after;
    }
    let names: Vec<&str> = tops.iter().map(|(at, _)| elements[*at].name.as_str()).collect();
    let (start, end) = tops[choice.place(&names)?];
    let own = &elements[start..end];
    let first_leaf = elements[1..start].iter().filter(|element| element.children == 0).count();
    match (flat(own), nesting) {
        (Ok(column), Nesting::Refused | Nesting::Json) => Ok(Chosen { first_leaf, columns: vec![column], tree: None }),
        (Err(refused), Nesting::Refused) => Err(refused),
        (Err(_), Nesting::Json) | (_, Nesting::Numbers) => {
            let mut builder = Builder { elements: own, at: 0, columns: vec![] };
            let tree = builder.tree(Levels::default(), Place::Outside)?;
            Ok(Chosen { first_leaf, columns: builder.columns, tree: Some(tree) })
        }
    }
}

/// The column of strings, or of lists of whole numbers.
fn flat(own: &[Element]) -> Result<Column, Problem> {
    let wrong = |found: String, remedy: &str| Problem::Column { found, remedy: remedy.into() };
    let name = &own[0].name;
    let (mut max_definition, mut max_repetition, mut element_definition) = (0, 0, 0);
    for element in own {
        max_definition += u32::from(element.repetition != Repetition::Required);
        if element.repetition == Repetition::Repeated {
            max_repetition += 1;
            element_definition = max_definition;
        }
    }
    let is_chain = own.iter().rev().skip(1).all(|element| element.children == 1);
    let last = own.last().ok_or_else(|| wrong(format!("column {name:?} has no values"), USE_FLAT))?;
    // A list is a group around a repeated one around the element; a fourth is a struct.
    if !is_chain || max_repetition > 1 || own.len() > 3 || (max_repetition == 0 && own.len() > 1) {
        return Err(wrong(format!("column {name:?} is nested deeper than a list"), USE_FLAT_OR_CHAT));
    }
    let physical = match (last.kind, max_repetition) {
        (Some(1), 1) => Physical::Int32,
        (Some(2), 1) => Physical::Int64,
        (Some(6), 0) => Physical::Bytes,
        (_, repetition) => {
            let what = if repetition == 1 { "lists of" } else { "values of" };
            return Err(wrong(format!("column {name:?} has {what} type {}", last.type_name()), USE_FLAT));
        }
    };
    Ok(Column { physical, max_definition, element_definition, max_repetition })
}

/// Levels of the element above.
#[derive(Clone, Copy, Debug, Default)]
struct Levels {
    definition: u32,
    repetition: u32,
    depth: usize,
}

/// Whether the repetition of an element was followed by the list around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Outside,
    Followed,
}

struct Builder<'e> {
    elements: &'e [Element],
    at: usize,
    columns: Vec<Column>,
}

impl<'e> Builder<'e> {
    fn tree(&mut self, above: Levels, place: Place) -> Result<Tree, Problem> {
        let missing = || Problem::damaged("a column announces more columns than there are");
        let element = self.elements.get(self.at).ok_or_else(missing)?;
        if above.depth > MOST_LEVELS {
            return Err(Problem::damaged(format!("its columns have more than {MOST_LEVELS} levels")));
        }
        let first = self.columns.len();
        let mut levels = Levels { depth: above.depth + 1, ..above };
        match (place, element.repetition) {
            (Place::Followed, Repetition::Repeated) | (_, Repetition::Required) => {}
            (_, Repetition::Optional) => levels.definition += 1,
            // Repeated without a group around it: a list that is never null.
            (Place::Outside, Repetition::Repeated) => {
                let (definition, depth) = (above.definition, levels.depth);
                let levels = Levels { definition: definition + 1, repetition: above.repetition + 1, depth };
                let own = Box::new(self.tree(levels, Place::Followed)?);
                let content = Content::List {
                    element_definition: levels.definition,
                    repetition: levels.repetition,
                    element: own,
                };
                return Ok(Tree { definition, leaves: first..self.columns.len(), content });
            }
        }
        let content = if element.children == 0 {
            self.at += 1;
            Content::Value(self.leaf(element, levels)?)
        } else if is_list(element) && self.elements.get(self.at + 1).is_some_and(is_repeated) && element.children == 1 {
            self.at += 1;
            self.list(&element.name, levels)?
        } else if is_map(element) {
            return Err(refused(&element.name, "maps"));
        } else {
            self.at += 1;
            let mut fields = vec![];
            for _ in 0..element.children {
                let name = self.elements.get(self.at).ok_or_else(missing)?.name.clone();
                fields.push((name, self.tree(levels, Place::Outside)?));
            }
            Content::Struct(fields)
        };
        Ok(Tree { definition: levels.definition, leaves: first..self.columns.len(), content })
    }

    /// The list `name`, whose repeated element is the next one: the group around its elements, or the element itself in
    /// the older form.
    fn list(&mut self, name: &str, levels: Levels) -> Result<Content, Problem> {
        let missing = || Problem::damaged("a column announces more columns than there are");
        let repeated = self.elements.get(self.at).ok_or_else(missing)?;
        let own =
            Levels { definition: levels.definition + 1, repetition: levels.repetition + 1, depth: levels.depth + 1 };
        let is_tuple = repeated.name == "array" || repeated.name.strip_suffix("_tuple") == Some(name);
        let holds_list = self.elements.get(self.at + 1).is_some_and(is_repeated);
        let is_group = repeated.children == 1 && !is_tuple && !holds_list && !is_list(repeated);
        let element = if is_group {
            self.at += 1;
            self.tree(own, Place::Outside)?
        } else {
            self.tree(own, Place::Followed)?
        };
        Ok(Content::List { element_definition: own.definition, repetition: own.repetition, element: Box::new(element) })
    }

    fn leaf(&mut self, element: &Element, levels: Levels) -> Result<Meaning, Problem> {
        if self.columns.len() == MOST_LEAVES {
            let what = format!("a nested column of more than {MOST_LEAVES} columns of values");
            return Err(Problem::Unsupported { what, remedy: "write it as JSON in a column of strings" });
        }
        let physical = element.physical().ok_or_else(|| refused(&element.name, "values of an unknown type"))?;
        let (max_definition, max_repetition) = (levels.definition, levels.repetition);
        self.columns.push(Column { physical, max_definition, element_definition: max_definition, max_repetition });
        Ok(meaning(element, physical))
    }
}

fn refused(name: &str, what: &str) -> Problem {
    let remedy = "leave the field out, or write it as a string";
    Problem::Unsupported { what: format!("field {name:?} with {what}"), remedy }
}

fn is_repeated(element: &Element) -> bool {
    element.repetition == Repetition::Repeated
}

/// The lists of types that values mean: the older, `ConvertedType`, and the newer, `LogicalType`.
fn is_list(element: &Element) -> bool {
    element.converted == Some(3) || element.logical == Some(3)
}

fn is_map(element: &Element) -> bool {
    matches!(element.converted, Some(1 | 2)) || element.logical == Some(2)
}

/// The meaning of values of `physical`: strings (UTF8, ENUM, JSON), whole numbers (INT_8 to INT_64, UINT_8 to UINT_64)
/// and others without an annotation.
fn meaning(element: &Element, physical: Physical) -> Meaning {
    let is_unsigned = element.is_unsigned || matches!(element.converted, Some(11..=14));
    match (physical, element.converted, element.logical) {
        (Physical::Bytes, None | Some(0 | 4 | 19), None | Some(1 | 4 | 12)) => Meaning::Text,
        (Physical::Boolean, None, None) => Meaning::Boolean,
        (Physical::Int32 | Physical::Int64, None | Some(11..=18), None | Some(10)) if is_unsigned => Meaning::Unsigned,
        (Physical::Int32 | Physical::Int64, None | Some(11..=18), None | Some(10)) => Meaning::Signed,
        (Physical::Float | Physical::Double, None, None) => Meaning::Float,
        (
            Physical::Boolean
            | Physical::Int32
            | Physical::Int64
            | Physical::Float
            | Physical::Double
            | Physical::Bytes
            | Physical::Fixed(_),
            ..,
        ) => Meaning::Refused(format!("field {:?} with values of type {}", element.name, type_name(element))),
    }
}

/// Logical types of the format by their numbers; those that are read have none here.
fn type_name(element: &Element) -> String {
    let logical = match (element.logical, element.converted) {
        (Some(5), _) | (_, Some(5)) => "DECIMAL",
        (Some(6), _) | (_, Some(6)) => "DATE",
        (Some(7), _) | (_, Some(7 | 8)) => "TIME",
        (Some(8), _) | (_, Some(9 | 10)) => "TIMESTAMP",
        (Some(13), _) | (_, Some(20)) => "BSON",
        (Some(14), _) => "UUID",
        (Some(15), _) => "FLOAT16",
        _ => return element.type_name().into(),
    };
    logical.into()
}
