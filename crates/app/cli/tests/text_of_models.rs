//! Text as it leaves a folder of the Hugging Face library: its beginning, its spaces, its characters and its end.
//!
//! Models of these tests have no attention to speak of: the token after each token is written in their output matrix.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::harness::several::Folder;
use crate::harness::{pleach, stderr, stdout};

/// States of a model: one for each token that is followed by another.
const HIDDEN: usize = 16;

/// Tokens of the tokenizer of these tests, in the form of that of Llama 2.
struct Vocabulary(BTreeMap<String, usize>);

const WORDS: [&str; 11] = ["▁", "t", "h", "e", "▁t", "▁th", "▁the", "▁fox", "▁dog", "▁.", "fox"];

impl Vocabulary {
    fn new() -> Vocabulary {
        let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
        let all = ["<unk>", "<s>", "</s>"].map(String::from).into_iter().chain(bytes).chain(WORDS.map(String::from));
        Vocabulary(all.enumerate().map(|(number, text)| (text, number)).collect())
    }

    fn token(&self, text: &str) -> usize {
        self.0[text]
    }

    fn bytes(&self, text: &[u8]) -> Vec<usize> {
        text.iter().map(|byte| self.token(&format!("<0x{byte:02X}>"))).collect()
    }

    /// With a post-processor that puts `<s>` before a text.
    fn tokenizer(&self) -> Value {
        let special = |(id, content): (usize, &str)| {
            json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": true })
        };
        let begin = json!({ "SpecialToken": { "id": "<s>", "type_id": 0 } });
        let text = |id: &str| json!({ "Sequence": { "id": id, "type_id": 0 } });
        let added: Vec<Value> = ["<unk>", "<s>", "</s>"].into_iter().enumerate().map(special).collect();
        json!({
            "version": "1.0",
            "added_tokens": added,
            "normalizer": { "type": "Sequence", "normalizers": [
                { "type": "Prepend", "prepend": "▁" },
                { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
            ] },
            "pre_tokenizer": null,
            "post_processor": { "type": "TemplateProcessing", "single": [begin, text("A")],
                                "pair": [begin, text("A"), begin, text("B")],
                                "special_tokens": { "<s>": { "id": "<s>", "ids": [1], "tokens": ["<s>"] } } },
            "decoder": { "type": "Sequence", "decoders": [
                { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
                { "type": "ByteFallback" },
                { "type": "Fuse" },
                { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
            ] },
            "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "vocab": self.0,
                       "merges": [["▁", "t"], ["▁t", "h"], ["▁th", "e"]] },
        })
    }
}

/// Tensors as a safetensors file of single precision.
fn tensors(all: &[(&str, [usize; 2], Vec<f32>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), vec![]);
    for (name, [rows, cols], values) in all {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let shape = if *rows == 0 { json!([cols]) } else { json!([rows, cols]) };
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert((*name).into(), entry);
    }
    let header = Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

/// A Llama in `folder` that writes the tokens of `chain` one after the other, after the first of them.
fn write_model(folder: &Folder, vocabulary: &Vocabulary, chain: &[usize]) -> String {
    let path = folder.path("model");
    fs::create_dir_all(&path).expect("a folder");
    let tokens = vocabulary.0.len();
    let (mut table, mut output) = (vec![0.0; tokens * HIDDEN], vec![0.0; tokens * HIDDEN]);
    // A token without a place in the chain has the last state, from which nothing follows.
    (0..tokens).for_each(|token| table[token * HIDDEN + HIDDEN - 1] = 1.0);
    for (state, pair) in chain.windows(2).enumerate() {
        table[pair[0] * HIDDEN..(pair[0] + 1) * HIDDEN].fill(0.0);
        table[pair[0] * HIDDEN + state] = 1.0;
        output[pair[1] * HIDDEN + state] = 10.0;
    }
    let (matrix, norm) = (vec![0.0; HIDDEN * HIDDEN], vec![1.0; HIDDEN]);
    let mut all = vec![
        ("model.embed_tokens.weight", [tokens, HIDDEN], table),
        ("lm_head.weight", [tokens, HIDDEN], output),
        ("model.norm.weight", [0, HIDDEN], norm.clone()),
        ("model.layers.0.input_layernorm.weight", [0, HIDDEN], norm.clone()),
        ("model.layers.0.post_attention_layernorm.weight", [0, HIDDEN], norm),
    ];
    let matrices = [
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
    ];
    all.extend(matrices.map(|name| (name, [HIDDEN, HIDDEN], matrix.clone())));
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN, "max_position_embeddings": 64, "num_attention_heads": 2, "num_hidden_layers": 1,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "tie_word_embeddings": false, "vocab_size": tokens,
        "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 10000.0,
    });
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path(&format!("model/{name}")), bytes).expect("a file");
    put("model.safetensors", &tensors(&all));
    put("config.json", config.to_string().as_bytes());
    put("tokenizer.json", vocabulary.tokenizer().to_string().as_bytes());
    path
}

/// The output of `generate` after `prompt` with a model of this chain, and with these options more.
fn generated(name: &str, prompt: &str, chain: impl FnOnce(&Vocabulary) -> Vec<usize>, more: &[&str]) -> String {
    let (folder, vocabulary) = (Folder::new(name), Vocabulary::new());
    let model = write_model(&folder, &vocabulary, &chain(&vocabulary));
    let words = ["generate", "--from", &model, "--prompt", prompt, "--max-tokens", "8", "--temperature", "0"];
    let output = pleach(&[&words[..], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

/// The tokens of these texts.
fn chain(texts: &'static [&'static str]) -> impl FnOnce(&Vocabulary) -> Vec<usize> {
    |vocabulary| texts.iter().map(|text| vocabulary.token(text)).collect()
}

#[test]
fn a_text_ends_at_the_end_token_which_is_not_printed() {
    let text = generated("end", "the", chain(&["▁the", "▁fox", "▁dog", "</s>"]), &[]);
    assert_eq!(text, "the fox dog\n");
}

#[test]
fn several_end_tokens_of_a_folder_end_a_text() {
    let (folder, vocabulary) = (Folder::new("ends"), Vocabulary::new());
    let tokens = ["▁the", "▁fox", "▁dog", "▁."].map(|text| vocabulary.token(text));
    let model = write_model(&folder, &vocabulary, &tokens);
    let settings = json!({ "eos_token_id": [2, vocabulary.token("▁dog")] }).to_string();
    fs::write(format!("{model}/generation_config.json"), settings).expect("a file");
    let output = pleach(&["generate", "--from", &model, "--prompt", "the", "--temperature", "0"]);
    assert_eq!(stdout(&output), "the fox\n", "{}", stderr(&output));
    fs::write(format!("{model}/generation_config.json"), "{\"eos_token_id\": \"</s>\"}").expect("a file");
    let output = pleach(&["generate", "--from", &model, "--prompt", "the"]);
    let expected = "eos_token_id = \"</s>\" must be a token or a list of tokens\n";
    assert!(output.status.code() == Some(2) && stderr(&output).ends_with(expected), "{}", stderr(&output));
}

#[test]
fn a_text_ends_before_a_stop() {
    let tokens = &["▁the", "▁fox", "▁dog", "▁.", "</s>"];
    assert_eq!(generated("stop", "the", chain(tokens), &["--stop", "dog"]), "the fox \n");
    assert_eq!(generated("stops", "the", chain(tokens), &["--stop", "cat", "--stop", "x d"]), "the fo\n");
    let (folder, vocabulary) = (Folder::new("empty-stop"), Vocabulary::new());
    let model = write_model(&folder, &vocabulary, &[]);
    let output = pleach(&["generate", "--from", &model, "--prompt", "the", "--stop", ""]);
    assert!(output.status.code() == Some(2) && stderr(&output).contains("use at least one character"));
}

#[test]
fn documents_have_the_tokens_that_the_files_of_the_tokenizer_say() {
    let (folder, vocabulary) = (Folder::new("begun"), Vocabulary::new());
    let tokens = ["▁the", "▁fox", "</s>"].map(|text| vocabulary.token(text));
    let model = write_model(&folder, &vocabulary, &tokens);
    let logged = |more: &[&str]| {
        fs::write(folder.path("d.jsonl"), "{\"text\": \"the\"}\n{\"text\": \"the the\"}\n").expect("a file");
        let (out, tokenizer) = (folder.path("d.tokens"), format!("{model}/tokenizer.json"));
        let _ = fs::remove_file(&out);
        let words =
            ["data", "tokenize", &folder.path("d.jsonl"), "--out", &out, "--tokenizer", &tokenizer].map(String::from);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let output = pleach(&words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).split(", ").nth(1).map(str::to_string)
    };
    let counted = |more| logged(more).unwrap_or_default().split(' ').next().map(str::to_string);
    // <s> ▁the </s> and <s> ▁the ▁the </s>: the end is that of config.json.
    assert_eq!(counted(&[]).as_deref(), Some("7"));
    assert_eq!(counted(&["--begin", "", "--end", ""]).as_deref(), Some("3"));
    assert_eq!(counted(&["--begin", "<s>", "--end", ""]).as_deref(), Some("5"));
}

#[test]
fn characters_of_several_tokens_are_whole_and_cut_ones_are_marked() {
    let whole = |vocabulary: &Vocabulary| {
        [vec![vocabulary.token("▁the")], vocabulary.bytes("\u{1f600}".as_bytes()), vec![2]].concat()
    };
    assert_eq!(generated("whole", "the", whole, &[]), "the\u{1f600}\n");
    let cut =
        |vocabulary: &Vocabulary| [vec![vocabulary.token("▁the")], vocabulary.bytes(b"\n\xf0\x9f"), vec![2]].concat();
    assert_eq!(generated("cut", "the", cut, &[]), "the\n\u{fffd}\u{fffd}\n");
}
