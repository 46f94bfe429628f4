//! The section `[data]`: sources, tokenizers and what is said about those that cannot be.

use std::path::PathBuf;

use spec::{RunConfig, SourceSpec, TokenizerSpec, Visible};

fn load(text: &str, overrides: &[&str]) -> Result<RunConfig, String> {
    let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
    RunConfig::load("run.toml", text, &overrides)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn source(path: &str, weight: f32) -> SourceSpec {
    SourceSpec { path: path.into(), weight }
}

#[test]
fn sources_have_weights_and_survive_writing() {
    let text = "[data]\nsources = [{ path = \"a.jsonl\", weight = 2.5 }, \"b \\\"c\\\"\", { path = \"d\" }]\n";
    let config = load(text, &["data.visible=document", "data.held_out=0.25"]).expect("legal");
    assert_eq!(config.data.sources, [source("a.jsonl", 2.5), source("b \"c\"", 1.0), source("d", 1.0)]);
    assert_eq!((config.data.visible, config.data.held_out), (Visible::Document, 0.25));
    assert_eq!(load(&config.to_toml(), &[]).expect("legal"), config);
    let one = load("[data]\npath = \"a\"\n", &[]).expect("legal");
    assert_eq!(one.data.sources, [source("a", 1.0)]);
    assert!(one.to_toml().contains("path = \"a\"\n"));
}

#[test]
fn an_override_wins_over_the_other_way_to_name_sources() {
    let file = "[data]\nsources = [\"a\", \"b\"]\n";
    assert_eq!(load(file, &["data.path=c"]).expect("legal").data.sources, [source("c", 1.0)]);
    let file = "[data]\npath = \"a\"\n";
    assert_eq!(load(file, &["data.sources=[\"c\"]"]).expect("legal").data.sources, [source("c", 1.0)]);
    assert_eq!(
        load("[data]\npath = \"a\"\nsources = [\"b\"]\n", &[]).expect_err("both"),
        "run.toml:2:1: data.path is given beside data.sources; leave one of them out"
    );
}

#[test]
fn a_tokenizer_gives_the_vocabulary() {
    let bpe = load("", &["data.tokenizer=bpe:2048"]).expect("legal");
    assert_eq!((bpe.data.tokenizer.clone(), bpe.model.vocabulary), (TokenizerSpec::Bpe { vocabulary: 2048 }, 2048));
    assert_eq!(load(&bpe.to_toml(), &[]).expect("legal"), bpe);
    let given = load("", &["data.tokenizer=bpe:2048", "model.vocabulary=2080"]).expect("legal");
    assert_eq!(given.model.vocabulary, 2080);

    let file = vec!["data.tokenizer=some/tokenizer.json".to_string()];
    let (told, _) = RunConfig::load_with("", "", &file, &|_| Ok(5000)).expect("legal");
    assert_eq!(told.data.tokenizer, TokenizerSpec::File(PathBuf::from("some/tokenizer.json")));
    assert_eq!(told.model.vocabulary, 5000);
    assert_eq!(load(&told.to_toml(), &[]).expect("legal"), told);
    assert_eq!(
        load("", &["data.tokenizer=some/tokenizer.json"]).expect_err("unknown"),
        "--set data.tokenizer=some/tokenizer.json: data.tokenizer has an unknown number of tokens: its file \
         is not read here; give model.vocabulary"
    );
    let tokens = load("", &["data.path=a.tokens", "model.vocabulary=512"]).expect("legal");
    assert_eq!(tokens.data.tokenizer, TokenizerSpec::OfTokenFiles);
    assert_eq!(load(&tokens.to_toml(), &[]).expect("legal"), tokens);
}

#[test]
fn what_is_no_source_and_no_tokenizer_is_refused() {
    let tokenizers =
        "is not \"bytes\", \"bpe:\" and a number of tokens as in \"bpe:2048\", or a path such as \"tokenizer.json\"";
    let sources = "is not a list of sources such as [{ path = \"a.txt\", weight = 2.0 }, { path = \"b.jsonl\" }]";
    for (text, expected) in [
        ("data.tokenizer=bpe:many", format!("data.tokenizer = \"bpe:many\" {tokenizers}")),
        ("data.tokenizer=gpt2", format!("data.tokenizer = \"gpt2\" {tokenizers}")),
        ("data.sources=a", format!("data.sources = \"a\" {sources}")),
        ("data.sources=[{ weight = 1 }]", format!("data.sources = [{{ weight = 1 }}] {sources}")),
        ("data.sources=[{ path = 3 }]", format!("data.sources = [{{ path = 3 }}] {sources}")),
        ("data.visible=all", "data.visible = \"all\" is not \"past\" or \"document\"".into()),
        (
            "data.tokenizer=bpe:100",
            "data.tokenizer = \"bpe:100\" has fewer tokens than the 256 bytes; \"bpe:256\" or more would do".into(),
        ),
        (
            "data.held_out=1",
            "data.held_out = 1.0 leaves nothing to train on; 0 or more and less than 1 would do".into(),
        ),
    ] {
        assert_eq!(load("", &[text]).expect_err(text), format!("--set {text}: {expected}"));
    }
    assert_eq!(
        load("", &["data.sources=[{ path = \"a\", weight = 0 }]"]).expect_err("no weight"),
        "data.sources: weight = 0.0 of a is no share of the sequences; more than 0 would be"
    );
}
