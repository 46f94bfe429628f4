//! Tables and compressed streams that pyarrow and zstd wrote (`tools/reference/tables.py`): every row comes back, and
//! what is cut off or changed is refused or read as it was, without a panic.

use std::path::PathBuf;

use formats::arrow::Arrow;
use formats::parquet::Parquet;
use formats::{Cell, ColumnChoice, Compression, Decompressed, Format, FormatError, Nesting, Problem, Rows};

const ROWS: u32 = 60;
/// The rule of `tools/reference/tables.py`.
fn text(row: u32) -> String {
    match row % 10 {
        9 => String::new(),
        _ => format!("row {row} {}", "wörter für ".repeat(row as usize % 7)),
    }
}

fn tokens(row: u32) -> Vec<u32> {
    match row % 12 {
        11 => vec![],
        _ => (0..row % 5).map(|place| (row * 31 + place * 7) % 200).collect(),
    }
}

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/tables"))
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(folder().join(name)).expect("a file of tests/tables")
}

fn names(ending: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder()).expect("tests/tables");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(ending)).collect();
    names.sort();
    names
}

fn rows(bytes: &[u8], column: &str) -> Result<Vec<Cell>, FormatError> {
    let choice = ColumnChoice::Named(column.into());
    let mut table: Box<dyn Rows + '_> = match Format::of(bytes) {
        Some(Format::Parquet) => Box::new(Parquet::open(bytes, &choice, Nesting::Refused)?),
        Some(Format::ArrowFile | Format::ArrowStream) => Box::new(Arrow::open(bytes, &choice, Nesting::Refused)?),
        Some(Format::Compressed(_) | Format::Other(_)) | None => panic!("a table"),
    };
    let mut cells = vec![];
    while let Some(cell) = table.next_row()? {
        cells.push(cell);
    }
    Ok(cells)
}

fn tables() -> Vec<String> {
    [names(".parquet"), names(".arrow"), names(".arrows")].concat()
}

#[test]
fn every_table_has_its_rows() {
    let texts: Vec<Cell> = (0..ROWS).map(|row| Cell::Text(text(row))).collect();
    let lists: Vec<Cell> = (0..ROWS).map(|row| Cell::Tokens(tokens(row))).collect();
    assert_eq!(tables().len(), 14 + 10);
    for name in tables() {
        let bytes = file(&name);
        assert_eq!(rows(&bytes, "text").unwrap_or_else(|error| panic!("{name}: {error}")), texts, "{name}");
        assert_eq!(rows(&bytes, "input_ids").unwrap_or_else(|error| panic!("{name}: {error}")), lists, "{name}");
    }
}

#[test]
fn the_column_is_the_first_of_several_or_the_one_that_is_named() {
    let bytes = file("zstd-pages-1.parquet");
    let first = Parquet::open(bytes.as_slice(), &ColumnChoice::FirstOf(&["content", "text"]), Nesting::Refused)
        .expect("a table");
    assert!(!first.has_tokens());
    let refused = rows(&bytes, "content").expect_err("missing").to_string();
    let expected = "there is no column \"content\"; its columns are \"id\", \"labels\", \"meta\", \"text\", \"input_ids\", \
                    \"last\"; name one of them with `column`";
    assert!(refused.ends_with(expected), "{refused}");
    for (column, expected) in [
        ("id", "column \"id\" has values of type INT64; use a column of strings, or of lists of whole numbers"),
        ("labels", "column \"labels\" has lists of type BYTE_ARRAY;"),
        ("meta", "column \"meta\" is nested deeper than a list;"),
    ] {
        let refused = rows(&bytes, column).expect_err("no text").to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    for (column, expected) in [
        ("id", "column \"id\" has values of type int;"),
        ("labels", "column \"labels\" has lists of other things than whole numbers;"),
        ("meta", "column \"meta\" has values of type struct;"),
    ] {
        let refused = rows(&file("strings-zstd.arrow"), column).expect_err("no text").to_string();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn encrypted_tables_are_named_and_their_plain_columns_are_read() {
    let file = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/encrypted");
        std::fs::read(PathBuf::from(folder).join(name)).expect("a table")
    };
    let refused = rows(&file("encrypted.parquet"), "text").expect_err("encrypted").to_string();
    assert_eq!(refused, "byte 0: a table that is encrypted is not supported; write the table without encryption");
    let bytes = file("encrypted-column.parquet");
    let refused = rows(&bytes, "text").expect_err("encrypted").to_string();
    let expected = ": row group 0 with an encrypted column is not supported; write the table without encryption";
    assert!(refused.ends_with(expected), "{refused}");
    let lists: Vec<Cell> = (0..ROWS).map(|row| Cell::Tokens(tokens(row))).collect();
    assert_eq!(rows(&bytes, "input_ids").expect("a plain column"), lists);
}

#[test]
fn a_table_that_is_cut_off_is_refused_with_its_place() {
    for name in tables() {
        let bytes = file(&name);
        for end in (0..bytes.len()).step_by(23) {
            let cut = &bytes[..end];
            // The marks of the formats distinguish them; a shorter beginning is not a table.
            if Format::of(cut).is_none_or(|format| matches!(format, Format::Compressed(_))) {
                continue;
            }
            match rows(cut, "text") {
                Err(error) => assert!(!error.place.is_empty(), "{name} at {end}"),
                // A stream may end between two messages.
                Ok(cells) => {
                    assert!(name.ends_with(".arrows") && cells.len() < ROWS as usize || end > bytes.len() - 16)
                }
            }
        }
    }
    let bytes = file("zstd-pages-1.parquet");
    let refused = rows(&bytes[..bytes.len() - 100], "text").expect_err("cut off");
    assert_eq!(refused.problem, Problem::Truncated("a table of parquet, which ends with `PAR1`"));
}

#[test]
fn a_changed_byte_is_refused_or_leaves_a_table() {
    let mut refused = 0;
    for name in tables() {
        let bytes = file(&name);
        for (turn, place) in (8..bytes.len()).step_by(3).enumerate() {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (turn % 8);
            refused += usize::from(rows(&changed, ["text", "input_ids"][turn % 2]).is_err());
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn a_page_with_a_checksum_shows_every_change() {
    let bytes = file("none-pages-1.parquet");
    let place = bytes.windows(7).position(|window| window == b"row 12 ").expect("a row");
    let mut changed = bytes;
    changed[place] ^= 0x20;
    let error = rows(&changed, "text").expect_err("changed").to_string();
    assert!(error.starts_with("row group 0, byte ") && error.contains(": the CRC of a page is "), "{error}");
}

fn decompressed(bytes: &[u8]) -> Result<Vec<u8>, FormatError> {
    let Some(Format::Compressed(compression)) = Format::of(bytes) else { panic!("compressed") };
    let mut stream = Decompressed::new(bytes, compression, bytes.len() as u64);
    let (mut content, mut block) = (vec![], [0; 100]);
    loop {
        match stream.fill(&mut block)? {
            0 => return Ok(content),
            count => content.extend_from_slice(&block[..count]),
        }
    }
}

#[test]
fn compressed_streams_of_several_parts_come_back() {
    let line = |row: u32| if row % 10 == 9 { "None\n".into() } else { format!("{}\n", text(row)) };
    let expected: String = (0..ROWS).map(line).collect();
    for name in ["lines.txt.gz", "lines.txt.zst"] {
        let bytes = file(name);
        let content = decompressed(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(String::from_utf8(content).expect("text"), expected, "{name}");
        let cut = decompressed(&bytes[..bytes.len() - 2]).expect_err("cut off");
        assert_eq!(cut.problem, Problem::Truncated("compressed data"), "{name}");
        assert!(cut.place.contains(" stream 2, near byte "), "{}", cut.place);
        let mut changed = bytes.clone();
        let middle = bytes.len() / 3;
        changed[middle] ^= 4;
        assert!(decompressed(&changed).is_err(), "{name}");
        let more = [bytes.as_slice(), b"more"].concat();
        assert!(decompressed(&more).is_err(), "{name}");
    }
    let padded = [file("lines.txt.gz"), vec![0; 1024]].concat();
    assert_eq!(decompressed(&padded).expect("zeros are skipped").len(), expected.len());
}

#[test]
fn a_bomb_is_refused_where_it_has_grown_too_much() {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::best());
    let block = vec![0; 1 << 20];
    (0..130).for_each(|_| encoder.write_all(&block).expect("written"));
    let bytes = encoder.finish().expect("a stream");
    let mut stream = Decompressed::new(bytes.as_slice(), Compression::Gzip, bytes.len() as u64);
    let mut block = vec![0; 1 << 20];
    let error = loop {
        match stream.fill(&mut block) {
            Ok(0) => panic!("the stream ended"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error.problem, Problem::Growth { .. }), "{error}");
}
