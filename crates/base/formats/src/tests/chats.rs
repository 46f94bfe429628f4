//! Lists of structs that pyarrow wrote (`tools/reference/chats.py`) as JSON, and tables that
//! were damaged.

use std::path::PathBuf;

use formats::arrow::Arrow;
use formats::parquet::Parquet;
use formats::{Cell, ColumnChoice, Format, FormatError, Nesting, Rows};

fn file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/chats"));
    std::fs::read(folder.join(name)).expect("a file of tests/chats")
}

fn rows(bytes: &[u8], column: &str, nesting: Nesting) -> Result<Vec<Cell>, FormatError> {
    let choice = ColumnChoice::Named(column.into());
    let mut table: Box<dyn Rows + '_> = match Format::of(bytes) {
        Some(Format::Parquet) => Box::new(Parquet::open(bytes, &choice, nesting)?),
        Some(Format::ArrowFile | Format::ArrowStream) => Box::new(Arrow::open(bytes, &choice, nesting)?),
        Some(Format::Compressed(_) | Format::Other(_)) | None => panic!("a table"),
    };
    let mut cells = vec![];
    while let Some(cell) = table.next_row()? {
        cells.push(cell);
    }
    Ok(cells)
}

fn expected(name: &str) -> Vec<Cell> {
    let lines = String::from_utf8(file(name)).expect("text");
    lines.lines().map(|line| Cell::Text(line.into())).collect()
}

/// Tables with the column `messages`, and those that also have `tools`.
const TABLES: [&str; 6] =
    ["large.arrow", "pages-1.parquet", "pages-2.parquet", "shifted.arrow", "strings.arrow", "views.arrows"];
const WITH_TOOLS: [&str; 2] = ["pages-2.parquet", "views.arrows"];

#[test]
fn lists_of_structs_are_json() {
    for name in TABLES {
        let read = rows(&file(name), "messages", Nesting::Json).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read, expected("messages.jsonl"), "{name}");
    }
    for name in WITH_TOOLS {
        let read = rows(&file(name), "tools", Nesting::Json).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read, expected("tools.jsonl"), "{name}");
    }
}

#[test]
fn strings_stay_what_they_are_and_values_of_other_types_are_named() {
    for name in ["pages-2.parquet", "views.arrows"] {
        let calls = rows(&file(name), "calls", Nesting::Json).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(calls[2], Cell::Text(calls_of_row_2().into()), "{name}");
        let refused = rows(&file(name), "messages", Nesting::Refused).expect_err("nested").to_string();
        let remedy = "use a column of strings, or of lists of whole numbers; conversations are read by `data.chat`";
        assert!(refused.ends_with(remedy), "{refused}");
    }
    let remedy = "is not supported; leave the field out, or write it as a string";
    for (name, what) in [
        ("pages-2.parquet", "field \"at\" with values of type TIMESTAMP"),
        ("views.arrows", "field \"at\" with values of type timestamp that are not read"),
    ] {
        let refused = rows(&file(name), "stamps", Nesting::Json).expect_err("no text").to_string();
        assert!(refused.ends_with(&format!("{what} {remedy}")), "{refused}");
    }
}

fn calls_of_row_2() -> &'static str {
    "[{\"type\": \"function\", \"function\": {\"name\": \"add\", \"strict\": true}}, \
     {\"type\": \"function\", \"function\": {\"name\": \"add\", \"strict\": true}}]"
}

#[test]
fn a_nested_table_that_is_cut_off_or_changed_is_refused_or_read() {
    let mut refused = 0;
    for name in TABLES {
        let bytes = file(name);
        for end in (8..bytes.len() - 1).step_by(29) {
            let read = rows(&bytes[..end], "messages", Nesting::Json);
            // A stream may end between two messages.
            assert!(name.ends_with(".arrows") || read.is_err(), "{name} at {end}");
        }
        for (turn, place) in (8..bytes.len()).step_by(3).enumerate() {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (turn % 8);
            refused += usize::from(rows(&changed, "messages", Nesting::Json).is_err());
        }
    }
    assert!(refused > 500, "{refused}");
}
