//! The section `[data]` of a run file: sources, tokenizer, what tokens see, blanks, what is held out.
#![allow(clippy::unwrap_used)]

use config::{
    BlanksSpec, ChatDate, ChatSpec, GivenWeights, InstructionsSpec, Location, LongConversations, Marks, Problem,
    RewrittenAnswers, RunConfig, TokenizerSpec,
};

fn with(blanks: &str) -> Result<RunConfig, Vec<Problem>> {
    let sets = ["model.vocabulary=1028".to_string(), format!("data.blanks={blanks}")];
    RunConfig::load("", "", &sets)
}

#[test]
fn blanks_have_the_numbers_of_their_paper_and_survive_writing() {
    let tokens = "mask = 1024, gmask = 1025, sop = 1026, eop = 1027";
    let plain = BlanksSpec {
        mask: 1024,
        gmask: 1025,
        sop: 1026,
        eop: 1027,
        span_share: 0.3,
        span_mean: 3.0,
        span_tokens: 0.15,
        samples: 4,
        instructions: None,
    };
    let instructions = Some(InstructionsSpec { path: Some("a \"b\".jsonl".into()), share: 0.05 });
    let embedded = Some(InstructionsSpec { path: None, share: 0.25 });
    let of_program = BlanksSpec { instructions: embedded, ..plain.clone() };
    let of_both = BlanksSpec { samples: 2, span_share: 1.0, instructions, ..plain.clone() };
    let more = "samples = 2, span_share = 1, instructions = 'a \"b\".jsonl'";
    for (written, expected) in [
        (format!("{{ {tokens} }}"), plain),
        (format!("{{ {tokens}, instruction_share = 0.25 }}"), of_program),
        (format!("{{ {tokens}, {more} }}"), of_both),
    ] {
        let config = with(&written).unwrap();
        assert_eq!(config.data.blanks, Some(expected), "{written}");
        assert_eq!(RunConfig::load("", &config.to_toml(), &[]).unwrap(), config, "{written}");
    }
}

/// Training, and the way in which a model is written, are the run's own; the model is not.
#[test]
fn a_run_that_begins_with_weights_has_their_model() {
    let model =
        RunConfig::load("", "[model]\nposition = \"rotary\"\nnum_layers = 3\n[data]\ntokenizer = \"bytes\"", &[])
            .unwrap()
            .model;
    let tokenizer = TokenizerSpec::Bytes;
    let given = GivenWeights { name: "weights", model: &model, tokenizer: &tokenizer, marks: &Marks::default() };
    let load = |text: &str| RunConfig::load_for(&given, "run.toml", text, &[], &NoFiles);
    let (config, _) = load("[model]\ndropout = 0.1\nbiases = true\nrotary_base = 10000").unwrap();
    assert_eq!(
        config.model,
        config::ModelSpec { dropout: 0.1, attention_dropout: model.attention_dropout, ..model.clone() }
    );
    assert_eq!(config.data.tokenizer, TokenizerSpec::Bytes);
    let problems = load("[model]\nnum_layers = 4\nbiases = false").unwrap_err();
    let said: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(
        said,
        [
            "run.toml:2:1: model.num_layers = 4 is not the model of weights, whose model.num_layers is 3; leave it out",
            "run.toml:3:1: model.biases = false is not the model of weights, whose model.biases is true; leave it out",
        ]
    );
    assert!(problems.iter().all(|problem| matches!(problem.location, Some(Location::File { .. }))));
    // A folder without a tokenizer needs one for text, and none for token files.
    let tokenizer = TokenizerSpec::OfTokenFiles;
    let given = GivenWeights { name: "m/weights", model: &model, tokenizer: &tokenizer, marks: &Marks::default() };
    let load = |text: &str| RunConfig::load_for(&given, "run.toml", text, &[], &NoFiles);
    for text in ["", "[data]\npath = \"a.txt\"", "[data]\npath = \"a.jsonl\"\nchat = { long = \"cut\" }"] {
        let said: Vec<String> = load(text).unwrap_err().iter().map(Problem::to_string).collect();
        assert_eq!(said, ["m/weights has no tokenizer.json; copy it there, or set data.tokenizer"], "{text}");
    }
    assert!(load("[data]\npath = \"a.tokens\"").is_ok());
    assert!(load("[data]\npath = \"a.txt\"\ntokenizer = \"bytes\"").is_ok());
}

struct NoFiles;

impl config::Files for NoFiles {
    fn vocabulary(&self, _: &config::DataSpec) -> Result<usize, String> {
        Err("no file is read".into())
    }

    fn text(&self, _: &std::path::Path) -> Result<String, String> {
        Err("no file is read".into())
    }
}

#[test]
fn columns_validation_texts_and_the_cache_survive_writing_and_are_checked() {
    let text = "[data]\nsources = [{ path = \"a/*.parquet\", weight = 2.0, column = \"content\" }, \"b.txt\"]\n\
                validation = [{ name = \"books\", path = \"c.gz\" }, { name = \"wiki-2\", path = \"d\", column = \"x\" }]\n\
                tokenizer = \"bytes\"\ncache = \"tokens\"\n";
    let config = RunConfig::load("", text, &[]).unwrap();
    let columns: Vec<_> = config.data.sources.iter().map(|source| source.column.as_deref()).collect();
    assert_eq!(columns, [Some("content"), None]);
    let names: Vec<_> = config.data.validation.iter().map(|text| text.name.as_str()).collect();
    assert_eq!(names, ["books", "wiki-2"]);
    assert_eq!(RunConfig::load("", &config.to_toml(), &[]).unwrap(), config);
    let refused = |sets: &[&str]| -> String {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        RunConfig::load("", "", &sets).unwrap_err().iter().map(|problem| format!("{problem}\n")).collect()
    };
    for (sets, expected) in [
        (
            vec!["data.cache=tokens"],
            "data.cache must have a tokenizer that exists before the text is read; use data.tokenizer = \"bytes\"",
        ),
        (
            vec!["data.validation=[{ name = \"a b\", path = \"c\" }]"],
            "data.validation has the name \"a b\", which must be at most 64 letters, digits, `-`, `_` or `.`; use another",
        ),
        (
            vec!["data.validation=[{ name = \"a\", path = \"c\" }, { name = \"a\", path = \"d\" }]"],
            "data.validation has the name \"a\" twice; use a name for each text",
        ),
        (
            vec![
                "data.validation=[{ name = \"a\", path = \"c\" }]",
                "model.vocabulary=1028",
                "data.blanks={ mask = 1024, gmask = 1025, sop = 1026, eop = 1027 }",
            ],
            "data.validation has no effect with data.blanks; leave it out",
        ),
        (
            vec!["data.sources=[{ path = \"a.txt\", weight = 2.0 }]"],
            "data.sources gives a.txt the weight 2.0, which has no effect on the only source; leave weight out, or add a source",
        ),
        (
            vec!["data.sources=[{ path = \"a.tokens\", column = \"x\" }, \"b.txt\"]", "model.vocabulary=300"],
            "data.sources gives a.tokens the column \"x\", and files of tokens have no columns; leave column out",
        ),
        (vec!["data.validation=[{ path = \"c\" }]"], "such as [{ name = \"books\", path = \"books.txt\" }]"),
    ] {
        let said = refused(&sets);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_chat_template_is_next_to_the_tokenizer_and_survives_writing() {
    let plain = |template: &str| ChatSpec {
        template: template.into(),
        date: None,
        long: LongConversations::Refuse,
        rewritten: RewrittenAnswers::Split,
    };
    let dated = ChatSpec { date: ChatDate::parse("2026-01-31"), long: LongConversations::Cut, ..plain("b.jinja") };
    for (tokenizer, chat, expected) in [
        ("model/tokenizer.json", "{}", plain("model")),
        ("tokenizer.json", "{}", plain(".")),
        ("bytes", "{ template = \"a\" }", plain("a")),
        ("model/t.json", "{ template = \"b.jinja\", date = \"2026-01-31\", long = \"cut\" }", dated),
    ] {
        let keys = ["data.path=a.jsonl", "model.vocabulary=300"].map(str::to_string);
        let sets = [format!("data.tokenizer={tokenizer}"), format!("data.chat={chat}")];
        let config = RunConfig::load("", "", &[keys, sets].concat()).unwrap();
        assert_eq!(config.data.chat, Some(expected), "{tokenizer} {chat}");
        assert_eq!(RunConfig::load("", &config.to_toml(), &[]).unwrap(), config, "{tokenizer} {chat}");
    }
}

#[test]
fn conversations_and_other_text_do_not_mix() {
    let chat = "data.chat={ template = \"model\" }";
    for (sets, expected) in [
        (
            vec!["data.chat={}"],
            "data.chat must name a template where data.tokenizer = \"bpe:1024\" has no folder; use chat = {",
        ),
        (vec!["data.path=a.tokens", chat], "data.chat needs conversations, and a.tokens holds tokens; use JSON lines"),
        (
            vec!["data.path=a.jsonl", "data.tokenizer=of the token files", "model.vocabulary=300", chat],
            "data.chat needs a tokenizer of its own; use data.tokenizer = \"MODEL/tokenizer.json\"",
        ),
        (
            vec!["data.path=a", "data.tokenizer=bytes", "data.cache=tokens", chat],
            "data.chat keeps no token files in data.cache; leave data.cache out",
        ),
        (
            vec!["data.path=a", "data.chat={ template = \"m\", date = \"2026-02-30\" }"],
            "is not a chat template such as {",
        ),
        (
            vec!["data.path=a", "data.chat={ template = \"m\", loss = \"all\" }"],
            "data.chat has the unknown key `loss` in {",
        ),
    ] {
        let sets: Vec<String> = sets.into_iter().map(str::to_string).collect();
        let problems = RunConfig::load("", "", &sets).unwrap_err();
        let said = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(said.contains(expected), "{said}\nhas no {expected}");
    }
}
