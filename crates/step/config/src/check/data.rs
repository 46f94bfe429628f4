//! Rules of `[data]`; those of its blanks are in [`super::blanks`].

use super::Rules;
use crate::data_spec::{Positions, TokenizerSpec};
use crate::model::{ModelSpec, Position, TopQuery};
use crate::problem::Problem;
use crate::run_file::RunConfig;
use crate::secret::has_credentials;

/// Every byte is a token of a byte-level encoding, so that it can write any text.
const BYTES: usize = 256;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let data = &config.data;
    if let [source] = data.sources.as_slice()
        && source.weight > 0.0
        && source.weight != 1.0
    {
        let (path, weight) = (source.path.display(), source.weight);
        let rule = format!("gives {path} the weight {weight:?}, which has no effect on the only source");
        rules.report(Problem::of_key("data.sources", rule, "leave weight out, or add a source"));
    }
    let of_validation = data.validation.iter().map(|text| ("data.validation", &text.source));
    for (key, source) in data.sources.iter().map(|source| ("data.sources", source)).chain(of_validation) {
        if has_credentials(&source.path.to_string_lossy()) {
            // One source is written as a path.
            let key = if key == "data.sources" && data.sources.len() == 1 { "data.path" } else { key };
            let rule =
                "must not have a user or a password in an address, nor a signature, which the run file would keep";
            let remedy = "leave them out; for s3:// set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile";
            rules.report(Problem::of_key(key, rule, remedy));
        }
        if let (Some(column), true) = (&source.column, source.is_tokens()) {
            let path = source.path.display();
            let rule = format!("gives {path} the column {column:?}, and files of tokens have no columns");
            rules.report(Problem::of_key(key, rule, "leave column out"));
        }
    }
    for source in &data.sources {
        let is_weight = source.weight > 0.0 && source.weight.is_finite();
        if !is_weight {
            let (path, weight) = (source.path.display(), source.weight);
            let rule = format!("gives {path} the weight {weight:?}, which must be positive");
            rules.report(Problem::of_key("data.sources", rule, "use more than 0"));
        }
    }
    if data.positions == Positions::Document && !reads_positions(&config.model) {
        let rule = "has no effect where model.position = \"alibi\", which reads distances only";
        rules.report(Problem::of_value("data.positions", "\"document\"", rule, "leave it out"));
    }
    check_validation(config, rules);
    if let (Some(_), TokenizerSpec::Bpe { vocabulary }) = (&data.cache, &data.tokenizer) {
        let rule = "must have a tokenizer that exists before the text is read".to_string();
        let remedy = format!(
            "use data.tokenizer = \"bytes\", a tokenizer.json, or `pleach data tokenize --tokenizer bpe:{vocabulary}` in place of it"
        );
        rules.report(Problem::of_key("data.cache", rule, remedy));
    }
    if let TokenizerSpec::Bpe { vocabulary } = data.tokenizer
        && vocabulary < BYTES
    {
        let rule = format!("must have a token for each of the {BYTES} byte values");
        let value = format!("\"bpe:{vocabulary}\"");
        rules.report(Problem::of_value("data.tokenizer", value, rule, format!("use \"bpe:{BYTES}\" or more")));
    }
}

/// Names go into files and onto pages, each for one text.
fn check_validation(config: &RunConfig, rules: &mut Rules) {
    let mut names: Vec<&str> = vec![];
    for text in &config.data.validation {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let name = text.name.as_str();
        if name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
            let rule =
                format!("has the name {name:?}, which must be at most {LONGEST_NAME} letters, digits, `-`, `_` or `.`");
            rules.report(Problem::of_key("data.validation", rule, "use another name"));
        }
        if names.contains(&name) {
            let rule = format!("has the name {name:?} twice");
            rules.report(Problem::of_key("data.validation", rule, "use a name for each text"));
        }
        names.push(name);
    }
    if config.data.blanks.is_some() && !names.is_empty() {
        rules.report(Problem::of_key("data.validation", "has no effect with data.blanks", "leave it out"));
    }
}

/// Letters of a name of `data.validation`.
const LONGEST_NAME: usize = 64;

fn reads_positions(model: &ModelSpec) -> bool {
    match model.position {
        Position::Learned { .. } | Position::Rotary { .. } => true,
        Position::Alibi => model.top_query == TopQuery::On,
    }
}
