//! Conversations of tables (`tools/reference/chats.py`): lists of structs have the texts and tokens of the same
//! conversations as JSON lines, with their tools.

use super::{chat_of, vectors};
use crate::tests::folder::Folder;
use data::{Corpus, DataError, Tokenizer};

/// Writes all that it reads of a conversation.
const TEMPLATE: &str = "{% if tools %}{% for tool in tools %}{{ tool.function.description }}{% endfor %}{% endif %}\
                        {% for message in messages %}<{{ message.role }}>{{ message.content }}</s>{% endfor %}\
                        {% if add_generation_prompt %}<assistant>{% endif %}";

/// A conversation: its text, its tokens, and which of them are of an answer.
type Tokenized = (String, Vec<i64>, Vec<bool>);

/// The text, the tokens and the answers of each conversation of `path`, with the template in `folder`.
fn read(folder: &Folder, path: &std::path::Path) -> Result<Vec<Tokenized>, DataError> {
    folder.put("one.jinja", TEMPLATE.as_bytes());
    let conversations = chat_of(&folder.path("one.jinja"))?.read(path, None)?;
    let tokenizer = Tokenizer::open(&vectors().join("tokenizer.json")).expect("a tokenizer");
    let tokens = |(number, conversation): (usize, &data::Rendered)| {
        let corpus = Corpus::of_conversations(std::slice::from_ref(conversation), &tokenizer).expect("tokens");
        assert!(!conversation.answers.is_empty() || number % 3 == 1, "{number}");
        let text = conversation.document.text.clone();
        (text, corpus.document_tokens(0).collect(), corpus.document_answers(0).collect())
    };
    Ok(conversations.iter().enumerate().map(tokens).collect())
}

#[test]
fn lists_of_structs_have_the_tokens_of_json_lines() {
    let folder = Folder::new("chat-tables");
    let tables = vectors().join("tables");
    let expected = read(&folder, &tables.join("lines.jsonl")).expect("JSON lines");
    assert_eq!(expected.len(), 6);
    assert_eq!(expected[1].0.matches("sum 1").count(), 1, "{}", expected[1].0);
    for name in ["structs.parquet", "texts.arrow"] {
        let read = read(&folder, &tables.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read, expected, "{name}");
    }
    // The same records in one array, over several lines.
    let lines = std::fs::read_to_string(tables.join("lines.jsonl")).expect("text");
    let records: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    folder.put("array.json", serde_json::to_string_pretty(&records).expect("JSON").as_bytes());
    assert_eq!(read(&folder, &folder.path("array.json")).expect("an array"), expected);
}

#[test]
fn rows_without_messages_are_named() {
    let folder = Folder::new("chat-tables-empty");
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/formats/src/tests/chats/pages-1.parquet");
    let said = read(&folder, std::path::Path::new(table)).expect_err("no messages").to_string();
    assert!(said.contains("pages-1.parquet, row 0 has no messages; a conversation is an object"), "{said}");
}
