//! Records of JSON with objects in an array or over several lines, and of CSV and TSV.

use crate::tests::folder::Folder;
use data::{Content, DataError};

/// The texts of the file `name` with `bytes`, or the error.
fn texts(name: &str, bytes: &[u8], column: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let folder = Folder::new(&format!("records-{name}"));
    folder.put(name, bytes);
    let path = folder.path(name);
    let short = |text: String| text.replace(&path.display().to_string(), name);
    match data::read(&path, column).map_err(|error: DataError| short(error.to_string()))? {
        Content::Text(documents) => Ok(documents.into_iter().map(|own| (short(own.name), own.text)).collect()),
        Content::Tokens(_) => panic!("{name} holds tokens"),
    }
}

fn expected(records: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
    Ok(records.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect())
}

#[test]
fn objects_of_json_may_be_in_an_array_or_over_several_lines() {
    let array = "\u{feff}\n[\n  {\n    \"text\": \"a } \\\" ]\",\n    \"n\": [{}]\n  },\n  {\"text\": \"b\"}\n]\n";
    let records = expected(&[("a.json:3", "a } \" ]"), ("a.json:7", "b")]);
    assert_eq!(texts("a.json", array.as_bytes(), None), records);
    assert_eq!(texts("b.jsonl", b"[{\"text\": \"a\"}]", None), expected(&[("b.jsonl:1", "a")]));
    assert_eq!(
        texts("c.json", b"{\n\"text\": \"a\"\n}\n{\"text\":\"b\"}", None),
        expected(&[("c.json:1", "a"), ("c.json:4", "b")])
    );
    // An object that is longer than a block that is read at once.
    let long = "x".repeat(600_000);
    let text = format!("[{{\"text\": \"{long}\"}},\n{{\"text\": \"b\"}}]");
    assert_eq!(texts("d.json", text.as_bytes(), None), expected(&[("d.json:1", &long), ("d.json:2", "b")]));
}

#[test]
fn damaged_arrays_are_refused_with_the_place() {
    let rule = "; a *.json holds objects, or one array of them";
    for (text, problem) in [
        ("[{\"text\": \"a\"}", "a.json:1 (byte 14) ends within an array"),
        ("[{\"text\": \"a\"}\n{}]", "a.json:2 (byte 15) has no comma after an object"),
        ("[{\"text\": \"a\"}, 3]", "a.json:1 (byte 16) has something else than an object"),
        ("[{\"text\": \"a\"}] x", "a.json:1 (byte 16) continues after its array"),
        ("[{\"text\": \"a\"},\n {\"text", "a.json:2 (byte 17) ends within an object"),
    ] {
        assert_eq!(texts("a.json", text.as_bytes(), None), Err(format!("{problem}{rule}")), "{text}");
    }
    let said = texts("b.json", b"[{\"text\": \"a\"},\n{\n\"text\": 'b'}]", None).expect_err("not JSON");
    assert!(said.starts_with("b.json:2 (byte 26) is not JSON; "), "{said}");
}

#[test]
fn a_column_of_csv_has_a_text_in_each_row() {
    let csv = b"id,text\r\n1,plain\r\n2,\"a, \"\"b\"\"\nc\"\r\n\r\n3,\n4,\"\"\n5,last";
    let records = expected(&[("a.csv:2", "plain"), ("a.csv:3", "a, \"b\"\nc"), ("a.csv:8", "last")]);
    assert_eq!(texts("a.csv", csv, None), records);
    let tsv = b"\"body\"\tn\nsay \"hi\", you\t1\n";
    assert_eq!(texts("b.tsv", tsv, Some("body")), expected(&[("b.tsv:2", "say \"hi\", you")]));
}

#[test]
fn rows_that_are_not_csv_are_refused_with_the_place() {
    let rule = "; rows have a field for each column of the header, and fields with separators or quotes are in quotes";
    for (text, problem) in [
        ("", "a.csv:1 has no header"),
        ("id,text\n1\n", "a.csv:2 has 1 fields, and the header 2"),
        ("id,text\n1,\"a\n\nb", "a.csv:2 has quotes that do not end"),
        ("text\n\"a\nb\"\n\"c\" d\n", "a.csv:4 has text after the quotes of a field"),
    ] {
        assert_eq!(texts("a.csv", text.as_bytes(), None), Err(format!("{problem}{rule}")), "{text}");
    }
    let said = texts("b.csv", b"id,body\n1,a\n", None).expect_err("no column");
    let columns = "there is no column \"text\" or \"input_ids\" or \"tokens\"; its columns are \"id\", \"body\"; name one of \
                   them with `column`";
    assert_eq!(said, format!("b.csv, line 1: {columns}"));
}
