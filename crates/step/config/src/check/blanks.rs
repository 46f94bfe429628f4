//! Rules of `data.blanks`.

use super::Rules;
use crate::data_spec::{BlanksSpec, Positions, Visible};
use crate::problem::Problem;
use crate::run_file::RunConfig;

/// Fewest tokens of a sample: a blank and text around it.
const MIN_SAMPLE_LENGTH: usize = 16;
/// Largest share of a sample in spans: a token between two spans separates them.
const MAX_SPAN_TOKENS: f32 = 0.3;
/// Largest mean length of spans.
const MAX_SPAN_MEAN: f32 = 64.0;

/// A broken rule and its remedy.
type Refusal = (String, String);

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let Some(blanks) = &config.data.blanks else { return };
    let judged = tokens(config, blanks).and_then(|()| numbers(blanks)).and_then(|()| samples(config, blanks));
    if let Err((rule, remedy)) = judged {
        rules.report(Problem::of_key("data.blanks", rule, remedy));
    }
}

/// The four tokens are different tokens of the model, and the tokenizer has none of them.
fn tokens(config: &RunConfig, blanks: &BlanksSpec) -> Result<(), Refusal> {
    let tokens = [("mask", blanks.mask), ("gmask", blanks.gmask), ("sop", blanks.sop), ("eop", blanks.eop)];
    let vocabulary = config.model.vocabulary;
    for (index, (name, token)) in tokens.into_iter().enumerate() {
        if token >= vocabulary {
            let rule = format!("has {name} = {token}, which is outside model.vocabulary = {vocabulary}");
            return Err((rule, format!("use a token below {vocabulary}, or a larger vocabulary")));
        }
        if let Some((other, _)) = tokens[..index].iter().find(|(_, other)| *other == token) {
            return Err((format!("has {other} = {name} = {token}"), "use four different tokens".into()));
        }
        if let Some(text) = config.data.tokenizer.vocabulary().filter(|text| token < *text) {
            let rule = format!("has {name} = {token}, which is one of the {text} tokens of data.tokenizer");
            return Err((rule, format!("use {text} or more, with as large a model.vocabulary")));
        }
    }
    Ok(())
}

fn numbers(blanks: &BlanksSpec) -> Result<(), Refusal> {
    let shares = [
        ("span_share", Some(blanks.span_share)),
        ("instruction_share", blanks.instructions.as_ref().map(|own| own.share)),
    ];
    for (name, share) in shares {
        if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
            return Err((format!("has {name} = {share:?}, which must be a share"), "use 0 to 1".into()));
        }
    }
    let BlanksSpec { span_mean, span_tokens, .. } = *blanks;
    let limits = [("span_mean", span_mean, MAX_SPAN_MEAN), ("span_tokens", span_tokens, MAX_SPAN_TOKENS)];
    for (name, number, most) in limits {
        if !(number > 0.0 && number <= most) {
            let rule = format!("has {name} = {number:?}, which leaves no text between spans");
            return Err((rule, format!("use more than 0 and at most {most:?}")));
        }
    }
    Ok(())
}

/// Samples divide a sequence, and define the tokens that a token attends to.
fn samples(config: &RunConfig, blanks: &BlanksSpec) -> Result<(), Refusal> {
    let (length, samples) = (config.train.sequence_length, blanks.samples);
    let fits = |samples: usize| length.is_multiple_of(samples) && length / samples >= MIN_SAMPLE_LENGTH;
    if samples == 0 || !fits(samples) {
        let would: Vec<usize> = mesh::divisors(length).into_iter().filter(|samples| fits(*samples)).collect();
        let rule = format!("has samples = {samples}, which must divide train.sequence_length = {length}");
        let remedy = match would.is_empty() {
            true => format!("use a sequence of {MIN_SAMPLE_LENGTH} tokens or more"),
            false => format!("use {}", mesh::alternatives(&would)),
        };
        return Err((rule, remedy));
    }
    if (config.data.visible, config.data.positions) != (Visible::Past, Positions::Sequence) {
        let rule = "has its own rules for attention and positions";
        return Err((rule.into(), "leave out data.visible and data.positions".into()));
    }
    Ok(())
}
