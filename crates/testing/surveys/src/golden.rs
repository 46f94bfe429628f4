//! Losses of a few runs as text, so that a change of numerics is seen and not only meant.

use config::{Degrees, GradientSums, Recompute, ScheduleKind, Tied, ZeroStage};
use testkit::models::{Style, proof_text};

use crate::cases::{Case, Family, Form, Manner, ShardGroups};

/// Steps of a golden run.
const STEPS: u32 = 6;

/// One line per run and step: loss and global norm, with all digits that an `f32` has.
///
/// # Errors
/// A run that fails.
pub fn losses() -> Result<String, String> {
    let mut text = String::from(
        "Losses and gradient norms of the first steps of a few runs, the same on every machine.\n\
         Renewed by `cargo run --release -p surveys --bin equality -- --golden crates/testing/surveys/tests/golden/losses.txt`.\n",
    );
    for case in cases() {
        let mut layout = case.layout();
        layout.train.steps = STEPS;
        let outcome = layout.outcome(&proof_text()).map_err(|error| format!("{case}: {error}"))?;
        text.push_str(&format!("\n{case}\n"));
        for (step, (loss, norm)) in outcome.losses.iter().zip(&outcome.norms).enumerate() {
            text.push_str(&format!("step {}: loss {loss:.9}, norm {norm:.9}\n", step + 1));
        }
    }
    Ok(text)
}

fn cases() -> Vec<Case> {
    let gpt2 = Family { style: Style::Gpt2, num_kv_heads: 12, tied: Tied::Yes, microbatch_size: 2 };
    let llama = Family { style: Style::Llama, num_kv_heads: 4, tied: Tied::No, microbatch_size: 1 };
    let one = Form { zero: ZeroStage::One, shard_groups: ShardGroups::One };
    let case =
        |family, (dp, tp, pp), manner| Case { degrees: Degrees { dp, cp: 1, tp, pp }, manner, ..Case::oracle(family) };
    let usual = Manner { form: one, schedule: ScheduleKind::OneForwardOneBackward, recompute: Recompute::None };
    let recomputed = Manner { recompute: Recompute::FULL, ..Manner::PLAIN };
    vec![
        Case::oracle(gpt2),
        case(gpt2, (2, 2, 2), usual),
        case(gpt2, (1, 3, 5), recomputed),
        Case::oracle(llama),
        case(llama, (2, 2, 2), usual),
        Case { sums: GradientSums::Exact, ..case(llama, (2, 1, 2), usual) },
    ]
}
