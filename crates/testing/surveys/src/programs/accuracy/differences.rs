//! Changes by single keys: recomputation and sequence parallelism in a layer, sequence parallelism in steps.

use surveys::accuracy::AccuracyError;
use surveys::accuracy::differences::{Gain, LAYERS, LayerTime, PAIRS, layer_times, sequence_parallel_gains};

use super::paragraph::paragraph;

/// Both tables.
pub(crate) fn section() -> Result<String, AccuracyError> {
    Ok(layers(&layer_times()?) + &gains(&sequence_parallel_gains()?))
}

/// Recomputation and sequence parallelism in one layer.
fn layers(times: &[LayerTime]) -> String {
    let about = format!(
        "Forward and backward of one layer of the 22B model, as shares of the layer without either (`{}`, profile `{}` \
         as it is; same cluster):",
        LAYERS.file, LAYERS.profile
    );
    let mut text = String::from("\n## One layer\n") + &paragraph(&about);
    text += "\n| layer | measured | predicted |\n|---|---|---|\n";
    for LayerTime { name, measured, predicted } in times {
        text += &format!("| {name} | {:.1} % | {:.1} % |\n", 100.0 * measured, 100.0 * predicted);
    }
    text
}

/// Differences of at most this many points are called small.
const POINTS: f64 = 3.0;

/// Pairs of steps with and without sequence parallelism.
fn gains(gains: &[Gain]) -> String {
    let near = gains.iter().filter(|gain| 100.0 * (gain.predicted - gain.measured).abs() <= POINTS).count();
    let about = format!(
        "By how much a step is longer without sequence parallelism than with it, other keys equal (`{}`, profile `{}` \
         as it is, trainer `{}`). Without it every tensor-parallel rank computes norms and residual sums of all tokens. \
         Nothing is fitted. {near} of {} pairs are predicted within {POINTS} points.",
        PAIRS.file,
        PAIRS.profile,
        PAIRS.software,
        gains.len()
    );
    let mut text = String::from("\n## Sequence parallelism\n") + &paragraph(&about);
    text += "\n| model | layout | measured | predicted |\n|---|---|---|---|\n";
    for Gain { model, layout, measured, predicted, .. } in gains {
        text += &format!("| {model} | {layout} | {:+.1} % | {:+.1} % |\n", 100.0 * measured, 100.0 * predicted);
    }
    text
}
