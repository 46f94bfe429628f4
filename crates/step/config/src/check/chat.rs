//! Rules of `data.chat`.

use super::Rules;
use crate::data_spec::{ChatSpec, Positions, SourceSpec, TokenizerSpec, Visible};
use crate::problem::Problem;
use crate::run_file::RunConfig;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let Some(chat) = &config.data.chat else { return };
    if let Err((rule, remedy)) = judged(config, chat) {
        rules.report(Problem::of_key("data.chat", rule, remedy));
    }
}

/// A broken rule and its remedy.
fn judged(config: &RunConfig, chat: &ChatSpec) -> Result<(), (String, String)> {
    let data = &config.data;
    let broken = |rule: &str, remedy: &str| Err((rule.to_string(), remedy.to_string()));
    if chat.template.as_os_str().is_empty() {
        let rule = format!("must name a template where data.tokenizer = \"{}\" has no folder", data.tokenizer);
        return Err((rule, "use chat = { template = \"FOLDER_OF_A_MODEL\" }, or a file *.jinja".into()));
    }
    if data.sources.is_empty() {
        return broken("needs conversations", "give data.path, JSON lines with `messages`");
    }
    let texts = data.validation.iter().map(|text| &text.source);
    if let Some(source) = data.sources.iter().chain(texts).find(|source| SourceSpec::is_tokens(source)) {
        let rule = format!("needs conversations, and {} holds tokens", source.path.display());
        return Err((rule, "use JSON lines with `messages`".into()));
    }
    if data.tokenizer == TokenizerSpec::OfTokenFiles {
        return broken("needs a tokenizer of its own", "use data.tokenizer = \"MODEL/tokenizer.json\"");
    }
    if data.blanks.is_some() {
        return broken("conflicts with data.blanks", "leave one of them out");
    }
    if data.cache.is_some() {
        return broken("keeps no token files in data.cache", "leave data.cache out");
    }
    if (data.visible, data.positions) != (Visible::Past, Positions::Sequence) {
        return broken("has its own rules for attention and positions", "leave out data.visible and data.positions");
    }
    Ok(())
}
