//! Folders of the Hugging Face library: configurations, indexes, and names that lead out of the folder.

use crate::hostile::case::{Case, Content, case, replaced};
use crate::hostile::fixtures::Fixture;
use crate::hostile::verdict::hold;

fn imported(name: &str, content: Content) -> Case {
    case(format!("folder: {name}"), "import {}/hf --out {}/run").with("hf", content)
}

fn config(name: &str, from: &'static str, to: impl Into<String>) -> Case {
    imported(name, Content::Changed(Fixture::HuggingFace, "config.json", replaced(from, to))).refused("hf")
}

/// A number of `config.json`.
fn number(key: &'static str, value: &str) -> Case {
    let (name, value) = (format!("{key} = {value}"), value.to_string());
    let changed = move |bytes: Vec<u8>| {
        let mut map: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes).expect("JSON");
        assert!(map.contains_key(key), "config.json has {key}: {map:?}");
        map.insert(key.into(), serde_json::Value::from("HERE"));
        serde_json::Value::Object(map).to_string().replace("\"HERE\"", &value).into_bytes()
    };
    imported(&name, Content::Changed(Fixture::HuggingFace, "config.json", Box::new(changed))).refused("hf")
}

#[test]
fn configurations_of_no_model_are_refused() {
    let typed = |name: &str, model_type: &str| {
        let without_class = replaced("\"architectures\"", "\"architecture\"");
        let with_type = replaced("\"model_type\": \"gpt2\"", model_type);
        let change = Box::new(move |bytes| with_type(without_class(bytes)));
        imported(name, Content::Changed(Fixture::HuggingFace, "config.json", change))
    };
    let mut cases = vec![
        imported("sound", Content::Copy(Fixture::HuggingFace)).writes("run").done("written"),
        typed("no class, with a known type", "\"model_type\": \"gpt2\"").writes("run").done("written"),
        typed("no class, with an unknown type", "\"model_type\": \"gtp2\"").refused("hf/config.json: model_type"),
        typed("no class and no type", "\"type\": \"gpt2\"").refused("hf/config.json: model_type"),
        config("cut off", "}", ""),
        config("arrays in arrays", "\"architectures\": [", format!("\"architectures\": {}", "[".repeat(200_000))),
        config("an unknown class", "GPT2LMHeadModel", "GPT2LMHaedModel").says("hf/config.json: architectures"),
    ];
    for key in ["n_layer", "n_embd", "n_head", "n_positions", "vocab_size"] {
        for value in
            ["0", "-1", "1e9", "2147483647", "1000000000", "9223372036854775808", "null", "\"2\"", "1.5", "[2]"]
        {
            cases.push(number(key, value));
        }
    }
    hold(cases);
}

/// A folder whose tensors are in files of an index.
fn index(name: &str, file: &str) -> Case {
    let tensors = std::fs::read(Fixture::HuggingFace.path().join("model.safetensors")).expect("tensors");
    let len = u64::from_le_bytes(tensors[..8].try_into().expect("eight bytes")) as usize;
    let header: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&tensors[8..8 + len]).expect("JSON");
    let map: serde_json::Map<String, serde_json::Value> =
        header.keys().map(|tensor| (tensor.clone(), file.into())).collect();
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    let config = std::fs::read(Fixture::HuggingFace.path().join("config.json")).expect("a configuration");
    case(format!("index: {name}"), "import {}/hf --out {}/run")
        .with("outside.safetensors", tensors)
        .with("hf", Content::Folder)
        .with("hf/config.json", config)
        .with("hf/model.safetensors.index.json", index)
}

#[test]
fn names_stay_in_their_folder_and_links_lead_out_for_reading() {
    let outside = || Content::Link("../outside.safetensors".into());
    let must = "must be the name of a file inside";
    hold(vec![
        index("a file above", "../outside.safetensors").refused(must),
        index("a file above, by a detour", "a/../../outside.safetensors").refused(must),
        index("an absolute name", "/etc/passwd").refused(must),
        index("nothing", "").refused(must),
        index("the folder itself", ".").refused(must),
        index("a zero byte", "a\u{0}b").refused(must),
        index("a file that is not there", "a.safetensors").refused("a.safetensors"),
        index("a device by a link", "a.safetensors")
            .with("hf/a.safetensors", Content::Link("/dev/zero".into()))
            .refused("a.safetensors"),
        index("a pipe", "a.safetensors").with("hf/a.safetensors", Content::Pipe).refused("a.safetensors"),
        index("a file outside by a link, as in the caches of hubs", "a.safetensors")
            .with("hf/a.safetensors", outside())
            .writes("run")
            .done("written"),
        index("numbers as names", "a")
            .with("hf/model.safetensors.index.json", "{\"weight_map\": {\"a\": 1}}")
            .refused("hf"),
        index("no map", "a").with("hf/model.safetensors.index.json", "{}").refused("weight_map"),
        index("a list", "a").with("hf/model.safetensors.index.json", "[]").refused("index.json"),
        index("arrays in arrays", "a")
            .with("hf/model.safetensors.index.json", "[".repeat(1_000_000))
            .refused("index.json"),
        index("100,000 files", "a")
            .with(
                "hf/model.safetensors.index.json",
                format!(
                    "{{\"weight_map\": {{{}\"z\": \"z\"}}}}",
                    (0..100_000).map(|n| format!("\"t{n}\": \"f{n}\",")).collect::<String>()
                ),
            )
            .refused("hf"),
        case("index: a whole file outside by a link", "import {}/hf --out {}/run")
            .with("hf", Content::Copy(Fixture::HuggingFace))
            .with(
                "hf/model.safetensors",
                Content::Link(Fixture::HuggingFace.path().join("model.safetensors").display().to_string()),
            )
            .writes("run")
            .done("written"),
        imported("pickled", Content::Copy(Fixture::HuggingFace))
            .with("hf/model.safetensors", Content::Link("nowhere".into()))
            .with("hf/pytorch_model.bin", "a")
            .refused("hf"),
        imported("special tokens: arrays in arrays", Content::Copy(Fixture::HuggingFace))
            .with("hf/generation_config.json", "[".repeat(1_000_000))
            .writes("run")
            .refused("generation_config.json"),
        imported("special tokens: a device", Content::Copy(Fixture::HuggingFace))
            .with("hf/generation_config.json", Content::Link("/dev/zero".into()))
            .writes("run")
            .done("written"),
        imported("a tokenizer that is a pipe", Content::Copy(Fixture::HuggingFace))
            .with("hf/tokenizer.json", Content::Pipe)
            .writes("run")
            .done("written"),
        imported("a tokenizer that is a device", Content::Copy(Fixture::HuggingFace))
            .with("hf/merges.txt", Content::Link("/dev/zero".into()))
            .writes("run")
            .done("written"),
    ]);
}
