//! Tokenizers: the same text back, the same tokenizer for the same text.

use crate::tests::folder::Folder;
use config::TokenizerSpec;
use data::{Document, Tokenizer};
use proptest::prelude::*;

fn document(text: &str) -> Document {
    Document { name: "a".into(), text: text.into() }
}

fn sample() -> Vec<Document> {
    vec![
        document(&"the cat sat on the mat, and the other cat sat there too\n".repeat(8)),
        document("für Größe: 3.14\t\u{1f333}"),
    ]
}

#[test]
fn training_is_deterministic_and_merges_what_is_frequent() {
    let tokenizer = Tokenizer::train(&sample(), 270).expect("trained");
    let again = Tokenizer::train(&sample(), 270).expect("trained");
    assert_eq!(tokenizer.description().expect("JSON"), again.description().expect("JSON"));
    assert_eq!(tokenizer.vocabulary(), 270);
    let tokens = tokenizer.encode("the cat").expect("tokens");
    assert!(tokens.len() < 7 && tokens.iter().any(|token| *token >= 256), "{tokens:?}");
    let bytes_only = Tokenizer::train(&sample(), 256).expect("trained");
    assert_eq!(bytes_only.encode("the cat").expect("tokens").len(), 7);
}

#[test]
fn a_tokenizer_survives_its_folder() {
    let folder = Folder::new("tokenizer");
    let trained = Tokenizer::train(&sample(), 300).expect("trained");
    for tokenizer in [trained, Tokenizer::bytes()] {
        tokenizer.save(&folder.path("")).expect("written");
        let loaded = Tokenizer::load(&folder.path("")).expect("read");
        assert_eq!(loaded.identity().expect("JSON"), tokenizer.identity().expect("JSON"));
        let text = "the cat: \u{1f333} Größe";
        assert_eq!(loaded.encode(text), tokenizer.encode(text));
        assert_eq!(loaded.decode(&loaded.encode(text).expect("tokens")).expect("text"), text);
    }
    let files: Vec<_> =
        std::fs::read_dir(folder.path("")).expect("a folder").map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(files, ["tokenizer.txt"]);
}

#[test]
fn what_is_no_tokenizer_is_refused() {
    let folder = Folder::new("no-tokenizer");
    folder.put("tokenizer.json", b"{}");
    let path = folder.path("tokenizer.json");
    let said = Tokenizer::new(&TokenizerSpec::File(path.clone()), &[]).expect_err("no tokenizer").to_string();
    let expected = format!("the tokenizer {} cannot be used: it is not a tokenizer: ", path.display());
    assert!(said.starts_with(&expected), "{said}");
    // The library has no stack for this one.
    let long = "a".repeat(50_000);
    let unigram =
        format!("{{\"model\":{{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0.0],[\"{long}\",-1.0]]}}}}");
    folder.put("long.json", unigram.as_bytes());
    let said = Tokenizer::open(&folder.path("long.json")).expect_err("too long").to_string();
    assert!(said.ends_with("model.vocab has a token of 50000 bytes; use at most 4096"), "{said}");
    // Neither of two models is looked at while the library takes the other.
    for (key, twice) in [
        ("model", format!("{{\"model\":{{}},{}", &unigram[1..])),
        ("vocab", unigram.replacen("\"vocab\":", "\"vocab\":[],\"vocab\":", 1)),
    ] {
        folder.put("twice.json", twice.as_bytes());
        let said = Tokenizer::open(&folder.path("twice.json")).expect_err("two of them").to_string();
        assert!(said.contains(&format!("it is not a tokenizer: duplicate field `{key}`")), "{said}");
    }
    // The library panics at this one.
    folder.put("contradictory.json", trained_json("\"decoder\":", "\"decoder\":{\"type\":\"Fuse\",\"a\":").as_bytes());
    let said = Tokenizer::open(&folder.path("contradictory.json")).expect_err("no tokenizer").to_string();
    assert!(said.contains("it is not a tokenizer: "), "{said}");
    let said = Tokenizer::open(&folder.path("absent.json")).expect_err("absent").to_string();
    assert!(said.contains("absent.json cannot be read: "), "{said}");
}

/// The file of a tokenizer with `new` in the place of `old`.
fn trained_json(old: &str, new: &str) -> String {
    let description = Tokenizer::train(&sample(), 280).expect("trained").description().expect("JSON");
    let file = serde_json::from_str::<serde_json::Value>(&description).expect("JSON").to_string();
    assert!(file.contains(old), "{file}");
    file.replacen(old, new, 1)
}

#[test]
fn documents_are_neither_cut_off_nor_filled_up() {
    let folder = Folder::new("batches");
    let text = "the cat sat on the mat";
    let options = [
        ("truncation", "{\"direction\":\"Right\",\"max_length\":4,\"strategy\":\"LongestFirst\",\"stride\":0}"),
        (
            "padding",
            "{\"strategy\":{\"Fixed\":99},\"direction\":\"Right\",\"pad_to_multiple_of\":null,\"pad_id\":0,\
             \"pad_type_id\":0,\"pad_token\":\"a\"}",
        ),
    ];
    for (key, value) in options {
        let file = trained_json(&format!("\"{key}\":null"), &format!("\"{key}\":{value}"));
        folder.put("tokenizer.json", file.as_bytes());
        let tokenizer = Tokenizer::open(&folder.path("tokenizer.json")).expect("a tokenizer");
        let tokens = tokenizer.encode(text).expect("tokens");
        assert_eq!(tokenizer.decode(&tokens).expect("text"), text, "{key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_text_comes_back(text in "\\PC{0,60}|[ \t\n'a-z]{0,60}") {
        thread_local!(static TRAINED: Tokenizer = Tokenizer::train(&sample(), 280).expect("trained"));
        TRAINED.with(|trained| {
            for tokenizer in [trained, &Tokenizer::bytes()] {
                let tokens = tokenizer.encode(&text).expect("tokens");
                assert!(tokens.iter().all(|token| (*token as usize) < tokenizer.vocabulary()));
                assert_eq!(tokenizer.decode(&tokens).expect("text"), text);
            }
        });
    }
}
