//! The section `[data]`.

use std::path::PathBuf;

use super::reader::{Choices, Reader, name_of};
use super::source::Value;
use super::writer::Writer;
use super::{blanks, chat};
use crate::data_spec::{DataSpec, Positions, SourceSpec, TokenizerSpec, ValidationSpec, Visible};
use crate::problem::{Location, Problem};

const VISIBLE: &Choices<Visible> = &[("past", Visible::Past), ("document", Visible::Document)];
const POSITIONS: &Choices<Positions> = &[("sequence", Positions::Sequence), ("document", Positions::Document)];

/// Tokens of the encoding that text gets where nothing else is said: some two and a half bytes each, so that a step
/// reads more text than bytes would, at a table small enough for a model that learns within a minute.
const DEFAULT_VOCABULARY: usize = 1024;

const VALIDATION: &str = "a list of texts such as [{ name = \"books\", path = \"books.txt\" }]";

/// Reads the section.
pub fn read(reader: &mut Reader) -> DataSpec {
    let sources = sources(reader);
    let default = match sources.iter().any(SourceSpec::is_tokens) {
        true => TokenizerSpec::OfTokenFiles,
        false => TokenizerSpec::Bpe { vocabulary: DEFAULT_VOCABULARY },
    };
    let tokenizer = reader.text_as("data.tokenizer", TokenizerSpec::FORMS, TokenizerSpec::parse).unwrap_or(default);
    DataSpec {
        visible: reader.choice("data.visible", VISIBLE, Visible::Past),
        positions: reader.choice("data.positions", POSITIONS, Positions::Sequence),
        blanks: blanks::read(reader),
        chat: chat::read(reader, &tokenizer),
        held_out: reader.number("data.held_out", 0.1),
        validation: reader
            .tables_of("data.validation", VALIDATION, &["name", "path", "column"], validation)
            .unwrap_or_default(),
        cache: reader.acting_text("data.cache").map(|path| path.map(PathBuf::from)),
        requests: reader.requests(&["data.path", "data.sources", "data.validation"]),
        tokenizer,
        sources,
    }
}

/// `data.path` is short for one source. Where one of the two keys is an override, it wins over the other in the file.
fn sources(reader: &mut Reader) -> Vec<SourceSpec> {
    let path = reader.optional_text("data.path").map(|path| vec![SourceSpec::of(path)]);
    let sources = reader.tables_of(
        "data.sources",
        "a list of sources such as [{ path = \"a.txt\", weight = 2.0 }, { path = \"b.jsonl\" }]",
        &["path", "weight", "column"],
        source,
    );
    match (path, sources) {
        (Some(path), Some(sources)) => {
            let overrides = |key| matches!(reader.location(key), Some(Location::Override(_)));
            match (overrides("data.path"), overrides("data.sources")) {
                (true, false) => path,
                (false, true) => sources,
                (true, true) | (false, false) => {
                    let problem = Problem::of_key("data.path", "conflicts with data.sources", "leave one of them out");
                    reader.report(problem);
                    sources
                }
            }
        }
        (path, sources) => path.or(sources).unwrap_or_default(),
    }
}

/// A table with a path and, if it likes, a weight; or the path alone.
fn source(value: &Value) -> Option<SourceSpec> {
    if let Some(path) = value.text() {
        return Some(SourceSpec::of(path));
    }
    let mut source = SourceSpec::of("");
    for (key, value) in value.table()? {
        match key.as_str() {
            "path" => source.path = value.text()?.into(),
            "weight" => source.weight = value.number()?,
            "column" => source.column = Some(value.text()?.into()),
            _ => return None,
        }
    }
    (!source.path.as_os_str().is_empty()).then_some(source)
}

/// A table with a name, a path and, if it likes, a column.
fn validation(value: &Value) -> Option<ValidationSpec> {
    let mut text = ValidationSpec { name: String::new(), source: SourceSpec::of("") };
    for (key, value) in value.table()? {
        match key.as_str() {
            "name" => text.name = value.text()?.into(),
            "path" => text.source.path = value.text()?.into(),
            "column" => text.source.column = Some(value.text()?.into()),
            _ => return None,
        }
    }
    (!text.name.is_empty() && !text.source.path.as_os_str().is_empty()).then_some(text)
}

fn quoted(text: &str) -> toml::Value {
    toml::Value::String(text.into())
}

/// Writes the section; without sources the embedded corpus is meant.
pub fn write(data: &DataSpec, writer: &mut Writer) {
    writer.section("data");
    match data.sources.as_slice() {
        [] => {}
        [SourceSpec { path, weight, column: None }] if *weight == 1.0 => writer.text("path", &path.to_string_lossy()),
        sources => {
            let table = |SourceSpec { path, weight, column }: &SourceSpec| {
                let column = column.as_ref().map(|column| format!(", column = {}", quoted(column)));
                format!(
                    "{{ path = {}, weight = {weight:?}{} }}",
                    quoted(&path.to_string_lossy()),
                    column.unwrap_or_default()
                )
            };
            let tables: Vec<String> = sources.iter().map(table).collect();
            writer.bare("sources", &format!("[{}]", tables.join(", ")));
        }
    }
    writer.text("tokenizer", &data.tokenizer.to_string());
    writer.text("visible", name_of(VISIBLE, data.visible));
    writer.text("positions", name_of(POSITIONS, data.positions));
    if let Some(blanks) = &data.blanks {
        writer.bare("blanks", &blanks::written(blanks));
    }
    if let Some(chat) = &data.chat {
        writer.bare("chat", &chat::written(chat));
    }
    writer.number("held_out", data.held_out);
    if !data.validation.is_empty() {
        let table = |ValidationSpec { name, source }: &ValidationSpec| {
            let column = source.column.as_ref().map(|column| format!(", column = {}", quoted(column)));
            let (name, path) = (quoted(name), quoted(&source.path.to_string_lossy()));
            format!("{{ name = {name}, path = {path}{} }}", column.unwrap_or_default())
        };
        let tables: Vec<String> = data.validation.iter().map(table).collect();
        writer.bare("validation", &format!("[{}]", tables.join(", ")));
    }
    if let Some(cache) = &data.cache {
        writer.text("cache", &cache.to_string_lossy());
    }
}
