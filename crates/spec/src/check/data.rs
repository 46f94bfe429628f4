//! Rules of `[data]`.

use super::Rules;
use crate::data_spec::TokenizerSpec;
use crate::problem::Problem;
use crate::run_file::RunConfig;

/// Every byte is a token of a byte-level encoding, so that it can write any text.
const BYTES: usize = 256;

pub(super) fn check(config: &RunConfig, rules: &mut Rules) {
    let data = &config.data;
    for source in &data.sources {
        let is_weight = source.weight > 0.0 && source.weight.is_finite();
        let rule = format!("of {} is no share of the sequences", source.path.display());
        rules.number("data.sources: weight", source.weight, is_weight, &rule, "more than 0 would be");
    }
    rules.below_one("data.held_out", data.held_out, "leaves nothing to train on");
    if let TokenizerSpec::Bpe { vocabulary } = data.tokenizer
        && vocabulary < BYTES
    {
        let rule = format!("has fewer tokens than the {BYTES} bytes");
        let value = format!("\"bpe:{vocabulary}\"");
        rules.report(Problem::of_value("data.tokenizer", value, rule, format!("\"bpe:{BYTES}\" or more would do")));
    }
}
