//! Tokens around documents, and text that leaves token by token.

use std::collections::BTreeMap;

use config::{Marks, TokenizerSpec};
use data::{Corpus, Document, TextStream, Tokenizer, marks_of};
use serde_json::{Value, json};

use crate::tests::folder::Folder;

/// A tokenizer in the form of Llama 2's: a space in front of each text, bytes for unknown characters, and a decoder
/// that takes a space away. It has the words "the" and "fox".
fn of_llama(processor: &Value) -> Value {
    let mut vocabulary: BTreeMap<String, usize> = BTreeMap::new();
    let mut add = |text: String| {
        let number = vocabulary.len();
        vocabulary.entry(text).or_insert(number);
    };
    ["<unk>", "<s>", "</s>"].into_iter().for_each(|text| add(text.into()));
    (0..=255).for_each(|byte| add(format!("<0x{byte:02X}>")));
    let words = ["▁", "t", "h", "e", "f", "o", "x", "▁t", "▁th", "▁the", "▁f", "▁fo", "▁fox", "th", "the"];
    words.into_iter().for_each(|text| add(text.into()));
    let merges =
        [["▁", "t"], ["▁t", "h"], ["▁th", "e"], ["▁", "f"], ["▁f", "o"], ["▁fo", "x"], ["t", "h"], ["th", "e"]];
    let special = |(id, content): (usize, &str)| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true })
    };
    let added: Vec<Value> = ["<unk>", "<s>", "</s>"].into_iter().enumerate().map(special).collect();
    json!({
        "version": "1.0",
        "added_tokens": added,
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] },
        "pre_tokenizer": null,
        "post_processor": processor,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" },
            { "type": "Fuse" },
            { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ] },
        "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
                   "vocab": vocabulary, "merges": merges },
    })
}

fn opened(folder: &Folder) -> Tokenizer {
    folder.put("tokenizer.json", of_llama(&Value::Null).to_string().as_bytes());
    Tokenizer::open(&folder.path("tokenizer.json")).expect("a tokenizer")
}

/// The token of a byte that is not part of a word.
fn of_byte(byte: u8) -> u32 {
    u32::from(byte) + 3
}

/// The text that is given out after each of `tokens`, and in the end.
fn given_out(tokenizer: &Tokenizer, before: &str, tokens: &[u32]) -> Vec<String> {
    let before = tokenizer.encode(before).expect("tokens");
    let mut stream = TextStream::after(tokenizer, &before);
    let mut parts: Vec<String> = tokens.iter().map(|token| stream.push(*token).expect("text")).collect();
    parts.push(stream.finish().expect("text"));
    assert_eq!(parts.concat(), tokenizer.continuation(&before, tokens).expect("text"));
    parts
}

#[test]
fn a_continuation_keeps_its_first_space_and_whole_characters() {
    let folder = Folder::new("streams");
    let tokenizer = opened(&folder);
    let fox = tokenizer.encode("the fox").expect("tokens")[1];
    assert_eq!(given_out(&tokenizer, "the", &[fox, fox]), [" fox", " fox", ""]);
    let bytes = |bytes: &[u8]| bytes.iter().map(|byte| of_byte(*byte)).collect::<Vec<u32>>();
    let smile = "\u{1f600}".as_bytes();
    assert_eq!(given_out(&tokenizer, "the", &bytes(smile)), ["", "", "", "", "\u{1f600}"]);
    // A byte outside of a character turns the bytes before it into replacements, so signs wait for what follows.
    let spoilt = bytes(&[b"ab ?", &smile[..1]].concat());
    assert_eq!(given_out(&tokenizer, "the", &spoilt), ["a", "b", " ", "", "", "\u{fffd}\u{fffd}"]);
    // The decoder takes the line end back where bytes after it are not a character: it has been given out, and stays.
    let cut = bytes(&[b"\n", &smile[..2]].concat());
    assert_eq!(given_out(&tokenizer, "the fox", &cut), ["\n", "", "", "\u{fffd}\u{fffd}"]);
    let then_a_word = [&cut[..], &[fox]].concat();
    assert_eq!(given_out(&tokenizer, "the fox", &then_a_word), ["\n", "", "", "\u{fffd}\u{fffd} fox", ""]);
    // Without a text before it, a text has no space in front.
    assert_eq!(given_out(&tokenizer, "", &[fox, fox]), ["fox", " fox", ""]);
}

#[test]
fn long_texts_have_the_tokens_that_they_have_as_a_whole() {
    let folder = Folder::new("long-marks");
    let tokenizer = opened(&folder);
    let [line, lines] = ["the fox\n".to_string(), "the fox\n".repeat(400_000)];
    let tokens = tokenizer.encode(&lines).expect("tokens");
    let first = tokenizer.encode(&line).expect("tokens");
    // Only the text begins with a space of its own: the other lines begin with "the" without one.
    let others = tokenizer.encode(&line.repeat(2)).expect("tokens")[first.len()..].to_vec();
    assert_ne!(first, others);
    assert_eq!(tokens.len(), first.len() + 399_999 * others.len());
    assert!(tokens.starts_with(&first));
    assert!(tokens[first.len()..].chunks(others.len()).all(|line| line == others));
}

#[test]
fn beginnings_and_ends_are_those_of_the_librarys_files() {
    let template = |pieces: &[&str]| {
        let piece = |text: &&str| match *text {
            "A" => json!({ "Sequence": { "id": "A", "type_id": 0 } }),
            token => json!({ "SpecialToken": { "id": token, "type_id": 0 } }),
        };
        json!({ "type": "TemplateProcessing", "single": pieces.iter().map(piece).collect::<Vec<_>>(), "pair": [],
                "special_tokens": {} })
    };
    let (none, begin, both) = (|| json!({}), template(&["<s>", "A"]), template(&["<s>", "A", "</s>"]));
    let bert = json!({ "type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2] });
    let sequence = json!({ "type": "Sequence", "processors": [{ "type": "ByteLevel" }, begin] });
    let (of, number) = (|text: &str| json!({ "eos_token": text }), |value: Value| json!({ "eos_token_id": value }));
    let adding = json!({ "add_bos_token": true, "bos_token": { "content": "<s>" } });
    // The post-processor; tokenizer_config.json, special_tokens_map.json, generation_config.json and config.json.
    let cases = [
        (json!(null), [none(), none(), none(), none()], ("", "")),
        (json!({ "type": "ByteLevel" }), [of("a"), of("b"), none(), none()], ("", "a")),
        (begin, [none(), of("b"), number(json!(2)), none()], ("<s>", "b")),
        (both, [of("a"), none(), none(), none()], ("<s>", "</s>")),
        (bert, [none(), none(), none(), none()], ("[CLS]", "[SEP]")),
        (sequence, [none(), none(), number(json!([2, 1])), none()], ("<s>", "</s>")),
        (json!(null), [none(), none(), none(), number(json!(2))], ("", "</s>")),
        (json!(null), [none(), none(), number(json!(300_000)), none()], ("", "")),
        (json!(null), [adding, none(), none(), none()], ("<s>", "")),
        (json!(null), [json!({ "bos_token": "<s>" }), none(), none(), none()], ("", "")),
    ];
    let names = ["tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json"];
    for (number, (processor, files, expected)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("marks-{number}"));
        folder.put("tokenizer.json", of_llama(&processor).to_string().as_bytes());
        names.iter().zip(files).for_each(|(name, file)| folder.put(name, file.to_string().as_bytes()));
        let Marks { begin, end } = marks_of(&TokenizerSpec::File(folder.path("tokenizer.json"))).expect("files");
        assert_eq!((begin.as_str(), end.as_str()), expected, "case {number}");
    }
    assert_eq!(marks_of(&TokenizerSpec::Bytes).expect("no file"), Marks::default());
    let folder = Folder::new("marks-bad");
    folder.put("tokenizer.json", of_llama(&Value::Null).to_string().as_bytes());
    folder.put("tokenizer_config.json", b"[");
    let said = marks_of(&TokenizerSpec::File(folder.path("tokenizer.json"))).expect_err("no JSON").to_string();
    assert!(said.contains("tokenizer_config.json is not a JSON object: "), "{said}");
}

#[test]
fn documents_have_the_tokens_around_them() {
    let folder = Folder::new("marked");
    let tokenizer = opened(&folder);
    let plain = tokenizer.encode("the fox").expect("tokens");
    let marks = |begin: &str, end: &str| Marks { begin: begin.into(), end: end.into() };
    let marked = tokenizer.clone().with_marks(&marks("<s>", "</s>")).expect("tokens");
    let documents = ["the fox", "", "the"].map(|text| Document { name: "a".into(), text: text.into() });
    let corpus = Corpus::new(&documents, &marked).expect("tokens");
    assert_eq!(corpus.num_documents(), 2, "a document without text is left out");
    let first: Vec<u32> = corpus.document_tokens(0).map(|token| u32::try_from(token).expect("a token")).collect();
    assert_eq!(first, [&[1][..], &plain, &[2]].concat());
    assert_eq!(marked.encode("the fox").expect("tokens"), plain, "text alone has none");
    assert_eq!(marked.identity().expect("JSON"), tokenizer.identity().expect("JSON"));
    let two = tokenizer.clone().with_marks(&marks("<s></s>", "")).expect("added tokens");
    assert_eq!((two.begin(), two.end()), (&[1, 2][..], &[][..]));
    let said = tokenizer.with_marks(&marks("", "fox and")).expect_err("no token").to_string();
    assert!(
        said.starts_with("data.end = \"fox and\" is not a token of ") && said.ends_with("or \"\" for none"),
        "{said}"
    );
    let lines = Tokenizer::bytes().with_marks(&marks("", "\n")).expect("a byte");
    assert_eq!(lines.end(), [u32::from(b'\n')]);
}
