//! Tokenizers, streams of tokens, chat sets and data sets of current Python libraries, with the numbers of transformers
//! and TRL: `tools/reference/strangers.py` makes them.

use std::path::Path;

use config::{ChatSpec, LongConversations, RewrittenAnswers, TokenizerSpec};
use data::{Chat, Content, Corpus, Document, Rendered, Tokenizer, marks_of};
use serde_json::Value;

use crate::tests::folder::Folder;

fn vectors() -> Value {
    serde_json::from_str(include_str!("cases.json")).expect("the vectors are JSON")
}

/// The cases of a kind, with their numbers among all cases.
fn cases<'a>(vectors: &'a Value, kind: &str) -> Vec<(usize, &'a Value)> {
    let all = vectors["cases"].as_array().expect("a list");
    all.iter().enumerate().filter(|(_, case)| case["kind"] == kind).collect()
}

/// The tokenizers by name, with the tokens around documents that their folders say.
fn tokenizer(folder: &Folder, vectors: &Value, name: &Value) -> Tokenizer {
    let name = name.as_str().expect("a name");
    for (file, text) in vectors["tokenizers"][name].as_object().expect("files") {
        folder.put(&format!("{name}/{file}"), text.as_str().expect("text").as_bytes());
    }
    let path = folder.path(&format!("{name}/tokenizer.json"));
    let marks = marks_of(&TokenizerSpec::File(path.clone())).expect("marks");
    Tokenizer::open(&path).and_then(|own| own.with_marks(&marks)).expect("a tokenizer")
}

/// Writes the file of a case.
fn put(folder: &Folder, number: usize, case: &Value) -> std::path::PathBuf {
    let name = format!("{number}/{}", case["name"].as_str().expect("a name"));
    let bytes = match case["text"].as_str() {
        Some(text) => text.as_bytes().to_vec(),
        None => {
            let digits = case["hex"].as_str().expect("digits");
            (0..digits.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("a byte"))
                .collect()
        }
    };
    folder.put(&name, &bytes);
    folder.path(&name)
}

fn numbers(value: &Value) -> Vec<u32> {
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok()).expect("a token");
    value.as_array().expect("a list").iter().map(number).collect()
}

fn document(corpus: &Corpus, index: usize) -> Vec<u32> {
    corpus.document_tokens(index).map(|token| u32::try_from(token).expect("a token")).collect()
}

/// The tokens of a document, and a 1 for each that is learned.
fn learned(corpus: &Corpus, index: usize) -> (Vec<u32>, Vec<u32>) {
    (document(corpus, index), corpus.document_answers(index).map(u32::from).collect())
}

#[test]
fn texts_have_the_tokens_of_transformers_and_ends() {
    let (folder, vectors) = (Folder::new("strangers-tokenizers"), vectors());
    let own = cases(&vectors, "tokenizer");
    assert_eq!(own.len(), 24);
    for (number, case) in own {
        let tokenizer = tokenizer(&folder, &vectors, &case["tokenizer"]);
        let texts = case["texts"].as_array().expect("texts").iter();
        let texts: Vec<&str> = texts.map(|text| text.as_str().expect("a text")).collect();
        for (text, right) in texts.iter().zip(case["tokens"].as_array().expect("tokens")) {
            let documents = [Document { name: "text".into(), text: text.to_string() }];
            let corpus = Corpus::new(&documents, &tokenizer).expect("tokens");
            let found = if corpus.num_documents() == 0 { vec![] } else { document(&corpus, 0) };
            // A text of blanks alone may have no tokens, and then gets none around it.
            let right = if tokenizer.encode(text).expect("tokens").is_empty() { vec![] } else { numbers(right) };
            assert_eq!(found, right, "case {number}, {text:?}");
        }
    }
}

#[test]
fn streams_print_what_the_streamer_of_transformers_prints() {
    let (folder, vectors) = (Folder::new("strangers-streams"), vectors());
    let own = cases(&vectors, "stream");
    assert_eq!(own.len(), 30);
    for (number, case) in own {
        let tokenizer = tokenizer(&folder, &vectors, &case["tokenizer"]);
        let found = tokenizer.continuation(&numbers(&case["prompt"]), &numbers(&case["tokens"])).expect("text");
        assert_eq!(found, case["text"].as_str().expect("text"), "case {number} of {}", case["tokenizer"]);
    }
}

#[test]
fn chats_are_rendered_and_masked_as_transformers_does_it() {
    let (folder, vectors) = (Folder::new("strangers-chats"), vectors());
    let own = cases(&vectors, "chat");
    assert_eq!(own.len(), 20);
    for (number, case) in own {
        let tokenizer = tokenizer(&folder, &vectors, &case["tokenizer"]);
        let template = folder.path(case["tokenizer"].as_str().expect("a name"));
        folder.put(
            &format!("{}/chat_template.jinja", case["tokenizer"].as_str().expect("a name")),
            case["template"].as_str().expect("a template").as_bytes(),
        );
        let (long, rewritten) = (LongConversations::Refuse, RewrittenAnswers::Split);
        let chat = Chat::open(&ChatSpec { template, date: None, long, rewritten }).expect("a template");
        let rendered: Vec<Rendered> = chat.read(&put(&folder, number, case), None).expect("chats");
        let corpus = Corpus::of_conversations(&rendered, &tokenizer).expect("tokens");
        let rights = case["right"].as_array().expect("rights");
        assert_eq!(rendered.len(), rights.len());
        for (index, right) in rights.iter().enumerate() {
            assert_eq!(rendered[index].document.text, right["text"].as_str().expect("text"), "case {number}");
            assert_eq!(
                learned(&corpus, index),
                (numbers(&right["tokens"]), numbers(&right["learned"])),
                "case {number}, row {index}"
            );
        }
    }
}

fn content(path: &Path) -> Content {
    data::read(path, None).expect("a data set")
}

#[test]
fn labels_and_masks_of_data_sets_are_those_of_a_collator() {
    let (folder, vectors) = (Folder::new("strangers-labels"), vectors());
    let own = cases(&vectors, "labels");
    assert_eq!(own.len(), 15);
    for (number, case) in own {
        let Content::Tokens(corpus) = content(&put(&folder, number, case)) else { panic!("case {number} is text") };
        for (index, right) in case["right"].as_array().expect("rights").iter().enumerate() {
            assert_eq!(
                learned(&corpus, index),
                (numbers(&right["tokens"]), numbers(&right["learned"])),
                "case {number}, row {index}"
            );
        }
    }
}

#[test]
fn texts_of_pandas_and_datasets_are_read_whole() {
    let (folder, vectors) = (Folder::new("strangers-texts"), vectors());
    let own = cases(&vectors, "text");
    assert_eq!(own.len(), 11);
    for (number, case) in own {
        let Content::Text(documents) = content(&put(&folder, number, case)) else { panic!("case {number} is tokens") };
        let found: Vec<&str> = documents.iter().map(|document| document.text.as_str()).collect();
        let right: Vec<&str> = case["right"].as_array().expect("texts").iter().filter_map(Value::as_str).collect();
        assert_eq!(found, right, "case {number}");
    }
}
