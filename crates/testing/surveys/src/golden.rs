//! Losses of a few runs as text, so that a change of numerics is seen and not only meant.

use config::{Degrees, GradientSums, Recompute, ScheduleKind, Tied, ZeroStage};
use testkit::models::{Style, proof_text};

use crate::drawers::family;
use crate::space::{Form, Point, Schedule};

/// Steps of a golden run.
const STEPS: u32 = 6;

/// One line per run and step: loss and global norm, with all digits that an `f32` has.
///
/// # Errors
/// A run that fails.
pub fn losses() -> Result<String, String> {
    let mut text = String::from(
        "Losses and gradient norms of the first steps of a few runs, the same on every machine.\n\
         Renewed by `cargo run --release -p surveys -- equality --golden crates/testing/surveys/tests/golden/losses.txt`.\n",
    );
    for point in points() {
        let mut layout = point.layout();
        layout.train.steps = STEPS;
        let outcome = layout.outcome(&proof_text()).map_err(|error| format!("{point}: {error}"))?;
        text.push_str(&format!("\n{point}\n"));
        for (step, (loss, norm)) in outcome.losses.iter().zip(&outcome.norms).enumerate() {
            text.push_str(&format!("step {}: loss {loss:.9}, norm {norm:.9}\n", step + 1));
        }
    }
    Ok(text)
}

fn points() -> Vec<Point> {
    let (gpt2, llama) = (family(Style::Gpt2, 12, Tied::Yes, 2), family(Style::Llama, 4, Tied::No, 1));
    let on = |family: Point, (dp, tp, pp)| Point { degrees: Degrees { dp, cp: 1, tp, pp }, ..family };
    let schedule = Schedule::Generated(ScheduleKind::OneForwardOneBackward);
    let usual = |family, degrees| Point { form: Form::one(ZeroStage::One), schedule, ..on(family, degrees) };
    vec![
        gpt2,
        usual(gpt2, (2, 2, 2)),
        Point { recompute: Recompute::FULL, ..on(gpt2, (1, 3, 5)) },
        llama,
        usual(llama, (2, 2, 2)),
        usual(llama, (2, 1, 2)).with_sums(GradientSums::Exact),
    ]
}
