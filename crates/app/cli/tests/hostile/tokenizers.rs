//! Files `tokenizer.json`.

use serde_json::{Value, json};

use crate::hostile::case::{Case, case};
use crate::hostile::fixtures::Fixture;
use crate::hostile::verdict::hold;

/// A text that becomes tokens by a tokenizer of this content.
fn tokenizer(name: &str, content: impl Into<Vec<u8>>) -> Case {
    case(format!("tokenizer: {name}"), "data tokenize {}/text.txt --tokenizer {}/it.json --out {}/o.tokens")
        .with("text.txt", Fixture::Text.read())
        .with("it.json", content.into())
}

/// A byte-level tokenizer of 256 tokens, with some of its fields replaced.
fn with(name: &str, fields: Value) -> Case {
    tokenizer(name, described(fields))
}

fn described(fields: Value) -> String {
    let mut description: Value = serde_json::from_slice(&Fixture::Tokenizer.read()).expect("JSON");
    let fields = fields.as_object().expect("fields").clone();
    description.as_object_mut().expect("an object").extend(fields);
    description.to_string()
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": pattern}, "content": content})
}

fn sequence(of: Vec<Value>) -> Value {
    json!({"type": "Sequence", "normalizers": of})
}

#[test]
fn files_that_are_no_tokenizers_are_refused() {
    let model = |model: Value| json!({"model": model});
    let whole = |end: usize| String::from_utf8(Fixture::Tokenizer.read()[..end].to_vec()).expect("text");
    let len = Fixture::Tokenizer.read().len();
    let vocabulary =
        |n: u64| (0..n).map(|token| (format!("t{token}"), json!(token))).collect::<serde_json::Map<_, _>>();
    hold(vec![
        tokenizer("sound", Fixture::Tokenizer.read()).writes("o.tokens").done("1 document, "),
        tokenizer("empty", "").refused("it.json"),
        tokenizer("an empty object", "{}").refused("it.json"),
        tokenizer("half", whole(len / 2)).refused("it.json"),
        tokenizer("twice", whole(len).repeat(2)).refused("it.json"),
        tokenizer("byte order mark", format!("\u{feff}{}", whole(len))).refused("it.json"),
        tokenizer("no UTF-8", vec![0xff, 0xfe, 0]).refused("it.json").says("is not UTF-8"),
        tokenizer("arrays in arrays", "[".repeat(1_000_000)).refused("it.json"),
        tokenizer("normalizers in normalizers", format!("{{\"normalizer\": {}", "{\"type\": \"Sequence\", \"normalizers\": [".repeat(50_000))).refused("it.json"),
        with("no model", model(Value::Null)).refused("it.json"),
        with("an unknown model", model(json!({"type": "LSTM", "vocab": {}}))).refused("it.json"),
        with("no tokens", model(json!({"type": "BPE", "vocab": {}, "merges": []}))).refused("it.json"),
        with("a merge of unknown tokens", model(json!({"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}))).refused("it.json"),
        with("a merge without its result", model(json!({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}))).refused("it.json"),
        with("a token of 2^32 - 1", model(json!({"type": "WordLevel", "vocab": {"a": 4294967295u32}, "unk_token": "a"}))).refused("it.json"),
        with("a token of 2^31", model(json!({"type": "WordLevel", "vocab": {"a": 2147483648u32}, "unk_token": "a"}))).refused("it.json"),
        with("a negative token", model(json!({"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}))).refused("it.json"),
        with("100,000 tokens", model(json!({"type": "WordLevel", "vocab": vocabulary(100_000), "unk_token": "t0"}))).writes("o.tokens").done("tokens"),
        with("no token for the unknown", model(json!({"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "u"}))).refused(""),
        with("a token of ten million letters", model(json!({"type": "WordLevel", "vocab": {"a".repeat(10_000_000): 0, "u": 1}, "unk_token": "u"}))).refused("it.json"),
        with("a Unigram token of 5,000 bytes", model(json!({"type": "Unigram", "unk_id": 0, "vocab": [["a".repeat(5000), -1.0]], "byte_fallback": false}))).refused("5000 bytes"),
        with("a Unigram score of text", model(json!({"type": "Unigram", "unk_id": 0, "vocab": [["a", "b"]]}))).refused("it.json"),
        with("a Unigram model without tokens", model(json!({"type": "Unigram", "unk_id": 0, "vocab": []}))).refused("it.json"),
        with("an unknown token that is not there", model(json!({"type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0]]}))).refused("it.json"),
        with("an unknown normalizer", json!({"normalizer": {"type": "Rot13"}})).refused("it.json"),
        with("an unknown pre-tokenizer", json!({"pre_tokenizer": {"type": "Rot13"}})).refused("it.json"),
        with("a malformed pattern", json!({"normalizer": {"type": "Replace", "pattern": {"Regex": "("}, "content": ""}})).refused("it.json"),
        with("a pattern that backtracks", json!({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(\\w+\\s?)+\\1\\z"}, "behavior": "Isolated", "invert": false}})).writes("o.tokens").done("tokens"),
        with("padding to 2^60", json!({"padding": {"strategy": {"Fixed": 1u64 << 60}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}})).writes("o.tokens").done("tokens"),
        with("truncation to nothing", json!({"truncation": {"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 0}})).writes("o.tokens").done("tokens"),
        with("truncation with a stride above its length", json!({"truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 9}})).writes("o.tokens").done("tokens"),
        with("words of any length", json!({"pre_tokenizer": null, "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "l": 1, "##i": 2}, "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 1u64 << 40}})).refused("model.max_input_chars_per_word"),
        with("20,000 added tokens", json!({"added_tokens": (0..20_000).map(|n| json!({"id": 300 + n, "content": format!("<{n}>"), "single_word": false, "lstrip": false, "rstrip": false, "normalized": true, "special": false})).collect::<Vec<_>>()})).writes("o.tokens").done("tokens"),
        with("an added token without letters", json!({"added_tokens": [{"id": 300, "content": "", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}]})).writes("o.tokens").done("tokens"),
    ]);
}

/// A text grows by what replaces parts of it, again and again.
#[test]
fn text_that_grows_without_limit_is_refused_by_the_key_that_lets_it() {
    let doubled = |times: usize| (0..times).map(|_| replace("e", "ee")).collect::<Vec<Value>>();
    let long = "e".repeat(1_000_000);
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    let pre = |of: Vec<Value>| json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": of}});
    let many: Vec<Value> = ('a'..='z').map(|letter| replace(&letter.to_string(), "\u{2581}")).collect();
    hold(vec![
        with("normalizers that double 40 times", json!({"normalizer": sequence(doubled(40))})).refused("normalizer"),
        with("normalizers that double 12 times", json!({"normalizer": sequence(doubled(12))})).refused("normalizer"),
        with("normalizers that double 40 times, two by two", json!({"normalizer": sequence(doubled(40).chunks(2).map(|pair| sequence(pair.to_vec())).collect())})).refused("normalizer"),
        with("a letter that becomes a million", json!({"normalizer": replace("e", &long)})).refused("`content` of a step has 1000000 bytes"),
        with("nothing that becomes a million", json!({"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": long}})).refused("`content` of a step has 1000000 bytes"),
        with("a beginning of a million letters", json!({"normalizer": {"type": "Prepend", "prepend": long}})).refused("`prepend` of a step has 1000000 bytes"),
        with("any letter that becomes two, 40 times", json!({"normalizer": sequence((0..40).map(|_| json!({"type": "Replace", "pattern": {"Regex": "."}, "content": "ab"})).collect())})).refused("normalizer"),
        with("bytes of bytes, 20 times", json!({"normalizer": sequence(vec![json!({"type": "ByteLevel"}); 20])})).refused("normalizer"),
        with("pre-tokenizers that write bytes of bytes, 20 times", pre(vec![byte_level.clone(); 20])).refused("pre_tokenizer"),
        with("decoders that double 40 times", json!({"decoder": {"type": "Sequence", "decoders": doubled(40)}})).refused("decoder"),
        with("a space that becomes a mark, as in many", json!({"normalizer": sequence(vec![json!({"type": "Prepend", "prepend": "\u{2581}"}), replace(" ", "\u{2581}")])})).writes("o.tokens").done("tokens"),
        with("a mark for each of 26 letters", json!({"normalizer": sequence(many)})).writes("o.tokens").done("tokens"),
        with("bytes of bytes, twice", pre(vec![byte_level.clone(); 2])).writes("o.tokens").done("tokens"),
    ]);
}
