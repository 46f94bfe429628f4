//! Conversations as transformers writes them: text, tokens and answers, token by token (`tools/reference/chat.py`).

mod packing;
mod refusals;
mod rewritten;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use config::DataSpec;
use config::{ChatDate, ChatSpec, LongConversations, Positions, RewrittenAnswers, SourceSpec, TokenizerSpec, Visible};
use data::{Chat, Corpus, DataError, Tokenizer};
use serde_json::Value;

/// The vectors of this repository.
fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/chat")
}

/// The template at `path`, on the day of the vectors.
fn chat_of(path: &Path) -> Result<Chat, DataError> {
    let date = ChatDate::parse("2026-01-31");
    let (long, rewritten) = (LongConversations::Refuse, RewrittenAnswers::Refuse);
    Chat::open(&ChatSpec { template: path.to_path_buf(), date, long, rewritten })
}

/// Conversations of `path` under the template `template`, in the tokenizer of the vectors.
fn spec_of(path: &Path, template: &Path) -> DataSpec {
    DataSpec {
        sources: vec![SourceSpec::of(path)],
        tokenizer: TokenizerSpec::File(vectors().join("tokenizer.json")),
        begin: String::new(),
        end: String::new(),
        visible: Visible::Past,
        positions: Positions::Sequence,
        blanks: None,
        chat: Some(ChatSpec {
            template: template.to_path_buf(),
            date: ChatDate::parse("2026-01-31"),
            long: LongConversations::Refuse,
            rewritten: RewrittenAnswers::Split,
        }),
        held_out: 0.0,
        validation: vec![],
        cache: None,
        odd_files: config::OddFiles::Refuse,
        requests: None,
    }
}

/// Whether the first message of a record is an answer.
fn begins_with_an_answer(line: &str) -> bool {
    let record: Value = serde_json::from_str(line).expect("JSON");
    record["messages"][0]["role"] == "assistant"
}

/// Compares all templates and conversations of `folder`; the texts that were compared, the refusals, and
/// the texts whose answers the script does not place.
fn compare(folder: &Path, differences: &mut Vec<String>) -> (usize, usize, usize) {
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let expected: Value = serde_json::from_str(&text("expected.json")).expect("JSON");
    let conversations = text("conversations.jsonl");
    let tokenizer = Tokenizer::open(&folder.join("tokenizer.json")).expect("a tokenizer");
    let (mut texts, mut refusals, mut placed) = (0, 0, 0);
    for (name, cases) in expected.as_object().expect("an object") {
        // Special tokens are in the folder of the template.
        let path = std::env::temp_dir().join(format!("pleach-chat-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::write(path.join("tokenizer_config.json"), text("tokenizer_config.json")).expect("a file");
        fs::write(path.join("chat_template.jinja"), text(&format!("templates/{name}"))).expect("a file");
        let chat = chat_of(&path);
        fs::remove_dir_all(&path).expect("a folder");
        let chat = match chat {
            Ok(chat) => chat,
            Err(error) => {
                differences.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (number, (line, case)) in conversations.lines().zip(cases.as_array().expect("a list")).enumerate() {
            let place = format!("{name}, conversation {number}");
            let rendered = chat.rendered(place.clone(), line, None).map(|mut texts| texts.remove(0));
            let (rendered, expected) = match (rendered, case.get("text")) {
                (Ok(rendered), Some(expected)) => (rendered, expected.as_str().expect("text")),
                (Err(_), None) => {
                    refusals += 1;
                    continue;
                }
                // The script that made the vectors needs a message before an answer, and its generation prompt there.
                (Ok(rendered), None)
                    if begins_with_an_answer(line) || case["error"] == "ValueError: earlier messages change" =>
                {
                    placed += 1;
                    let answers =
                        rendered.answers.iter().all(|answer| rendered.document.text.get(answer.clone()).is_some());
                    assert!(answers && !rendered.answers.is_empty(), "{place}: {rendered:?}");
                    continue;
                }
                (Ok(rendered), None) => {
                    differences.push(format!("{place}: {} but {:?}", case["error"], rendered.document.text));
                    continue;
                }
                (Err(error), Some(_)) => {
                    differences.push(error.to_string());
                    continue;
                }
            };
            texts += 1;
            if rendered.document.text != expected {
                differences.push(format!("{place}: {:?}\nis not {expected:?}", rendered.document.text));
                continue;
            }
            let corpus = Corpus::of_conversations(&[rendered], &tokenizer).expect("tokens");
            let tokens: Vec<String> = corpus.document_tokens(0).map(|token| token.to_string()).collect();
            let mask: String = corpus.document_answers(0).map(|answer| if answer { '1' } else { '0' }).collect();
            if case["tokens"] != tokens.join(" ") || case["mask"] != mask {
                differences.push(format!("{place}: {}\n{mask}\nis not\n{}", tokens.join(" "), case["mask"]));
            }
        }
    }
    (texts, refusals, placed)
}

#[test]
fn texts_tokens_and_answers_are_those_of_transformers() {
    let mut differences = vec![];
    let counts = compare(&vectors(), &mut differences);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(counts, (61, 8, 3), "texts, refusals, and answers that only pleach places");
}

/// Templates of published models, in the folder that `tools/install-chats.sh` makes.
#[needs::chats]
#[test]
fn templates_of_other_models() {
    let folder = std::env::var("PLEACH_CHATS").expect("PLEACH_CHATS must be set: run tools/install-chats.sh");
    let mut differences = vec![];
    let counts = compare(Path::new(&folder), &mut differences);
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
    assert_eq!(counts, (506, 85, 57), "texts, refusals, and answers that only pleach places");
}
