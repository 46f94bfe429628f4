//! Rows of a nested column, from the levels of its columns of values.
//!
//! A value has two levels: of definition, how many of the optional and repeated parts above it are there; and of
//! repetition, in which of the lists around it it continues. All columns below a part agree on whether the part is
//! there and whether it continues, which is checked.

use super::columns::Physical;
use super::leaf::LeafReader;
use super::tree::{Content, Meaning, Tree};
use crate::error::Problem;
use crate::growth::Growth;
use crate::json::JsonText;
use crate::kinds::Cell;

/// The columns of values of a table that is read.
pub struct Assembly<'a> {
    pub file: &'a [u8],
    pub leaves: &'a mut [LeafReader],
    pub growth: &'a mut Growth,
}

/// Whether a value was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Value,
    /// It is null.
    Nothing,
}

impl Assembly<'_> {
    /// The next row of `tree`, whose columns are all of these; `None` at the end of the row group.
    pub fn row(&mut self, tree: &Tree) -> Result<Option<Cell>, Problem> {
        let first = self.agreed(tree, |levels| levels.map(|(repetition, _)| repetition))?;
        match first {
            None => return Ok(None),
            Some(0) => {}
            Some(_) => return Err(Problem::damaged("a row begins within a list")),
        }
        let mut json = JsonText::default();
        self.value(tree, &mut json)?;
        json.finish(self.growth).map(Some)
    }

    /// The result of `of` for the next levels of each column below `tree`, which must be the same for all.
    fn agreed<T: PartialEq>(&mut self, tree: &Tree, of: impl Fn(Option<(u32, u32)>) -> T) -> Result<T, Problem> {
        let mut first = None;
        for leaf in &mut self.leaves[tree.leaves.clone()] {
            let own = of(leaf.peek(self.file, self.growth)?);
            if first.as_ref().is_some_and(|first| *first != own) {
                return Err(Problem::damaged("the levels of the fields of a nested column contradict each other"));
            }
            first = Some(own);
        }
        first.ok_or_else(|| Problem::damaged("a nested column has a part without values"))
    }

    fn value(&mut self, tree: &Tree, json: &mut JsonText) -> Result<Written, Problem> {
        let definition = tree.definition;
        match &tree.content {
            Content::Value(meaning) => {
                let leaf = &mut self.leaves[tree.leaves.start];
                let (_, own) = leaf.levels(self.file, self.growth)?.ok_or_else(early)?;
                if own < definition {
                    return Ok(Written::Nothing);
                }
                write(leaf, meaning, json)?;
                Ok(Written::Value)
            }
            Content::Struct(fields) => {
                if !self.agreed(tree, |levels| levels.is_some_and(|(_, own)| own >= definition))? {
                    return self.nothing(tree);
                }
                json.mark('{');
                for (name, field) in fields {
                    let before = json.place();
                    json.field(name)?;
                    if self.value(field, json)? == Written::Nothing {
                        json.cut(before);
                    }
                }
                json.mark('}');
                Ok(Written::Value)
            }
            Content::List { element_definition, repetition, element } => {
                let element_definition = *element_definition;
                let state =
                    |levels: Option<(u32, u32)>| levels.map(|(_, own)| (own >= definition, own >= element_definition));
                match self.agreed(tree, state)? {
                    Some((true, true)) => self.list(element, *repetition, json)?,
                    Some((true, false)) => {
                        self.nothing(tree)?;
                        json.mark('[');
                        json.mark(']');
                    }
                    Some((false, _)) | None => return self.nothing(tree),
                }
                Ok(Written::Value)
            }
        }
    }

    /// A list of one element or more.
    fn list(&mut self, element: &Tree, repetition: u32, json: &mut JsonText) -> Result<(), Problem> {
        json.mark('[');
        loop {
            if self.value(element, json)? == Written::Nothing {
                json.null();
            }
            json.count(1, self.growth)?;
            if !self.agreed(element, |levels| levels.is_some_and(|(own, _)| own >= repetition))? {
                break;
            }
            // Lists within the element have ended, so that only this one continues.
            if self.agreed(element, |levels| levels.map_or(0, |(own, _)| own))? != repetition {
                return Err(Problem::damaged("a value continues a list that has ended"));
            }
            json.mark(',');
        }
        json.mark(']');
        Ok(())
    }

    /// Skips the places of a part that is null or empty: one of each column.
    fn nothing(&mut self, tree: &Tree) -> Result<Written, Problem> {
        for leaf in &mut self.leaves[tree.leaves.clone()] {
            leaf.levels(self.file, self.growth)?.ok_or_else(early)?;
        }
        Ok(Written::Nothing)
    }
}

/// Writes the next value of `leaf`.
fn write(leaf: &mut LeafReader, meaning: &Meaning, json: &mut JsonText) -> Result<(), Problem> {
    match meaning {
        Meaning::Text => json.string(leaf.bytes()?)?,
        Meaning::Boolean => json.boolean(leaf.integer()? != 0),
        Meaning::Signed => json.integer(leaf.integer()?.into()),
        Meaning::Unsigned => {
            let number = leaf.integer()?;
            let is_narrow = leaf.leaf.column.physical == Physical::Int32;
            json.integer(if is_narrow { (number as u32).into() } else { (number as u64).into() });
        }
        Meaning::Float => match leaf.bytes()? {
            [a, b, c, d] => json.float(f32::from_le_bytes([*a, *b, *c, *d]).into())?,
            [a, b, c, d, e, f, g, h] => json.float(f64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]))?,
            other => return Err(Problem::damaged(format!("a number has {} bytes", other.len()))),
        },
        Meaning::Refused(what) => {
            let remedy = "leave the field out, or write it as a string";
            return Err(Problem::Unsupported { what: what.clone(), remedy });
        }
    }
    Ok(())
}

fn early() -> Problem {
    Problem::damaged("a field of a nested column has fewer rows than others")
}

#[cfg(test)]
mod tests {
    use super::super::columns::{Column, Element, Repetition};
    use super::super::footer::{Chunk, Leaf};
    use super::super::tree::choose;
    use super::*;
    use crate::kinds::{ColumnChoice, Nesting};

    const REQUIRED: Repetition = Repetition::Required;
    const OPTIONAL: Repetition = Repetition::Optional;
    const REPEATED: Repetition = Repetition::Repeated;
    const LIST: Option<i64> = Some(3);

    /// An element of a schema: one without children is a string.
    fn element(name: &str, repetition: Repetition, children: usize, converted: Option<i64>) -> Element {
        let kind = (children == 0).then_some(6);
        Element { name: name.into(), kind, repetition, children, converted, ..Element::default() }
    }

    /// The repetition and definition of a value, and the value if there is one.
    type Place = (u8, u8, Option<&'static str>);

    /// A column in a plain page of `file`, with levels in runs of one.
    fn column(file: &mut Vec<u8>, column: Column, places: &[Place]) -> LeafReader {
        let runs = |levels: Vec<u8>| {
            let runs: Vec<u8> = levels.into_iter().flat_map(|level| [2, level]).collect();
            [&(runs.len() as u32).to_le_bytes()[..], &runs].concat()
        };
        let mut page = vec![];
        if column.max_repetition > 0 {
            page.extend(runs(places.iter().map(|(repetition, ..)| *repetition).collect()));
        }
        if column.max_definition > 0 {
            page.extend(runs(places.iter().map(|(_, definition, _)| *definition).collect()));
        }
        for value in places.iter().filter_map(|(.., value)| *value) {
            page.extend((value.len() as u32).to_le_bytes());
            page.extend(value.as_bytes());
        }
        let start = file.len();
        let (size, count) = (page.len() as u8, places.len() as u8);
        // Numbers are twice as large in a header, and below 128 one byte: type, sizes, number, encodings.
        assert!(size < 64, "{size}");
        file.extend([0x15, 0, 0x15, 2 * size, 0x15, 2 * size, 0x2c, 0x15, 2 * count, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        file.extend(page);
        let bytes = file.len() - start;
        let chunk = Chunk { num_values: places.len() as u64, start, bytes, ..Chunk::default() };
        LeafReader::new(Leaf { column, chunks: vec![chunk] })
    }

    /// The rows of the only column of a schema, or the error.
    fn rows(elements: &[Element], columns: &[&[Place]]) -> Result<Vec<String>, String> {
        let elements = [&[element("schema", REQUIRED, 1, None)], elements].concat();
        let chosen =
            choose(&elements, &ColumnChoice::Named("m".into()), Nesting::Json).map_err(|error| error.to_string())?;
        let tree = chosen.tree.expect("a nested column");
        let mut file = vec![];
        assert_eq!(chosen.columns.len(), columns.len());
        let own = chosen.columns.into_iter().zip(columns);
        let mut leaves: Vec<LeafReader> = own.map(|(own, places)| column(&mut file, own, places)).collect();
        let mut growth = Growth::of_file(file.len() as u64);
        let mut assembly = Assembly { file: &file, leaves: &mut leaves, growth: &mut growth };
        let mut rows = vec![];
        while let Some(cell) = assembly.row(&tree).map_err(|error| error.to_string())? {
            let Cell::Text(text) = cell else { panic!("tokens") };
            rows.push(text);
        }
        Ok(rows)
    }

    /// Lists of structs as they are written today.
    fn messages() -> Vec<Element> {
        vec![
            element("m", OPTIONAL, 1, LIST),
            element("list", REPEATED, 1, None),
            element("element", OPTIONAL, 2, None),
            element("role", OPTIONAL, 0, None),
            element("content", OPTIONAL, 0, None),
        ]
    }

    #[test]
    fn rows_are_null_empty_or_lists_whose_fields_may_be_null() {
        let roles: &[Place] =
            &[(0, 4, Some("a")), (1, 4, Some("b")), (0, 0, None), (0, 1, None), (0, 2, None), (1, 3, None)];
        let contents: &[Place] =
            &[(0, 4, Some("x")), (1, 3, None), (0, 0, None), (0, 1, None), (0, 2, None), (1, 4, Some("y"))];
        let expected =
            ["[{\"role\":\"a\",\"content\":\"x\"},{\"role\":\"b\"}]", "", "[]", "[null,{\"content\":\"y\"}]"];
        assert_eq!(rows(&messages(), &[roles, contents]).expect("rows"), expected);
    }

    #[test]
    fn older_forms_of_lists_are_read() {
        let (a, b) = (element("a", REQUIRED, 0, None), element("b", REQUIRED, 0, None));
        let one: &[Place] = &[(0, 2, Some("x")), (1, 2, Some("y")), (0, 1, None), (0, 0, None)];
        let list = element("m", OPTIONAL, 1, LIST);
        for (name, fields, expected) in [
            // The repeated group is the element.
            ("group", vec![&a, &b], "[{\"a\":\"x\",\"b\":\"x\"},{\"a\":\"y\",\"b\":\"y\"}]"),
            ("array", vec![&a], "[{\"a\":\"x\"},{\"a\":\"y\"}]"),
            ("m_tuple", vec![&a], "[{\"a\":\"x\"},{\"a\":\"y\"}]"),
            // It is around the element, whatever its name.
            ("bag", vec![&a], "[\"x\",\"y\"]"),
        ] {
            let mut elements = vec![list.clone(), element(name, REPEATED, fields.len(), None)];
            elements.extend(fields.iter().map(|field| (*field).clone()));
            let own = rows(&elements, &vec![one; fields.len()]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(own, [expected, "[]", ""], "{name}");
        }
        // Without a group around it, a repeated element is a list.
        let bare = [element("m", REPEATED, 2, None), a, b];
        let one: &[Place] = &[(0, 1, Some("x")), (1, 1, Some("y")), (0, 0, None)];
        let expected = ["[{\"a\":\"x\",\"b\":\"x\"},{\"a\":\"y\",\"b\":\"y\"}]", "[]"];
        assert_eq!(rows(&bare, &[one, one]).expect("rows"), expected);
    }

    #[test]
    fn columns_that_contradict_each_other_are_refused() {
        let two: &[Place] = &[(0, 4, Some("a")), (1, 4, Some("b")), (0, 0, None)];
        let said = |other: &[Place]| rows(&messages(), &[two, other]).expect_err("refused");
        let contradict =
            "the levels of the fields of a nested column contradict each other; the file was damaged: write it again";
        // Fewer elements, a list that is null, a list that is empty, an element that is null, and a row too few.
        assert_eq!(said(&[(0, 4, Some("x")), (0, 0, None), (0, 0, None)]), contradict);
        assert_eq!(said(&[(0, 0, None), (0, 0, None)]), contradict);
        assert_eq!(said(&[(0, 1, None), (0, 0, None)]), contradict);
        assert_eq!(said(&[(0, 2, None), (1, 4, Some("x")), (0, 0, None)]), contradict);
        assert_eq!(said(&[(0, 4, Some("x")), (1, 4, Some("y"))]), contradict);
        let first: &[Place] = &[(1, 4, Some("a"))];
        let within = rows(&messages(), &[first, first]).expect_err("refused");
        assert_eq!(within, "a row begins within a list; the file was damaged: write it again");
    }

    #[test]
    fn maps_and_columns_without_an_end_are_refused() {
        let map = [element("m", OPTIONAL, 1, Some(1)), element("key_value", REPEATED, 2, None)];
        let fields = [element("key", REQUIRED, 0, None), element("value", OPTIONAL, 0, None)];
        let refused = rows(&[map, fields].concat(), &[]).expect_err("a map");
        assert_eq!(refused, "field \"m\" with maps is not supported; leave the field out, or write it as a string");
        let mut deep = vec![element("m", OPTIONAL, 2, None), element("a", OPTIONAL, 0, None)];
        (0..40).for_each(|_| deep.push(element("b", OPTIONAL, 1, None)));
        deep.push(element("c", OPTIONAL, 0, None));
        assert!(rows(&deep, &[]).expect_err("deep").starts_with("its columns have more than 32 levels"));
    }
}
