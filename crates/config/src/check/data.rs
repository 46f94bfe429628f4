//! Rules of `[data]`; those of its blanks are in [`super::blanks`].

use super::Rules;
use crate::data_spec::{Positions, SourceSpec, TokenizerSpec};
use crate::model::{ModelSpec, Position, TopQuery};
use crate::problem::Problem;
use crate::run_file::RunConfig;

/// Every byte is a token of a byte-level encoding, so that it can write any text.
const BYTES: usize = 256;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let data = &config.data;
    for source in &data.sources {
        let is_weight = source.weight > 0.0 && source.weight.is_finite();
        if !is_weight {
            let (path, weight) = (source.path.display(), source.weight);
            let rule = format!("gives {path} the weight {weight:?}, which must be positive");
            rules.report(Problem::of_key("data.sources", rule, "use more than 0"));
        }
    }
    for source in data.sources.iter().chain(data.validation.iter().map(|text| &text.source)) {
        check_address(source, rules);
    }
    if data.positions == Positions::Document && !reads_positions(&config.model) {
        let rule = "has no effect where model.position = \"alibi\", which reads distances only";
        rules.report(Problem::of_value("data.positions", "\"document\"", rule, "leave it out"));
    }
    rules.below_one("data.held_out", data.held_out, "must leave text to train on");
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

/// A source at an address. An address with a secret is not repeated.
fn check_address(source: &SourceSpec, rules: &mut Rules) {
    let path = source.path.to_string_lossy();
    let Some((scheme, rest)) = path.split_once("://") else { return };
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        let rule = format!("has an address of {scheme}:// with a user or a password, which the run file would keep");
        let remedy = "leave them out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile";
        rules.report(Problem::of_key("data.sources", rule, remedy));
    } else if ["http", "https"].contains(&scheme) && rest.contains(['?', '#']) {
        let rule = format!("has an address of {scheme}:// with `?` or `#`, where signatures are");
        rules.report(Problem::of_key("data.sources", rule, "use the address without them"));
    } else if source.is_tokens() && ["s3", "http", "https"].contains(&scheme) {
        let rule = format!("has the tokens {path}, and token files must be on this machine, which maps them");
        rules.report(Problem::of_key("data.sources", rule, "download them, or name the text"));
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
