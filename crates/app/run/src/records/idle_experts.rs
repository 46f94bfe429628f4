//! Experts that no token chooses any more.

use std::collections::BTreeMap;

use train::RouterReport;

/// Steps in a row without a token after which an expert is reported.
pub const IDLE_STEPS: u32 = 100;

/// Counts the steps since each expert had a token. A resumed run counts again.
#[derive(Debug, Default)]
pub struct IdleExperts {
    /// By layer, for each expert.
    idle_steps: BTreeMap<u32, Vec<u32>>,
}

impl IdleExperts {
    /// Takes the choices of a step. Returns a sentence about the experts that have now been without a token for
    /// [`IDLE_STEPS`] steps in a row; each is reported again only after it has had one.
    pub fn take(&mut self, report: &RouterReport) -> Option<String> {
        let mut layers = vec![];
        for (layer, choices) in &report.choices {
            let idle_steps = self.idle_steps.entry(*layer).or_insert_with(|| vec![0; choices.len()]);
            let mut experts: Vec<String> = vec![];
            for (expert, (idle_steps, count)) in idle_steps.iter_mut().zip(choices).enumerate() {
                *idle_steps = if *count == 0 { idle_steps.saturating_add(1) } else { 0 };
                if *idle_steps == IDLE_STEPS {
                    experts.push(expert.to_string());
                }
            }
            if let Some((last, first)) = experts.split_last() {
                let listed = match first {
                    [] => format!("expert {last}"),
                    first => format!("experts {} and {last}", first.join(", ")),
                };
                layers.push(format!("{listed} of layer {layer}"));
            }
        }
        let (step, listed) = (report.step, layers.join("; "));
        (!layers.is_empty()).then(|| {
            format!(
                "after step {step} no token has chosen {listed} in {IDLE_STEPS} steps; a balance loss or \
                 model.router_bias = true spreads tokens"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use train::RouterFigures;

    use super::*;

    fn report(step: u32, choices: &[(u32, Vec<i64>)]) -> RouterReport {
        RouterReport { step, figures: RouterFigures::default(), choices: choices.to_vec() }
    }

    #[test]
    fn experts_without_tokens_are_reported_once_with_their_layers() {
        let mut idle = IdleExperts::default();
        let mut told = vec![];
        for step in 1..=250 {
            // Expert 2 of layer 1 has a token in step 3, and expert 0 of layer 4 in step 120.
            let layer_1 = vec![5, 0, i64::from(step == 3), 1];
            told.extend(idle.take(&report(step, &[(1, layer_1), (4, vec![i64::from(step == 120), 9])])));
        }
        let text = |step: u32, listed: &str| {
            format!(
                "after step {step} no token has chosen {listed} in 100 steps; a balance loss or model.router_bias = \
                 true spreads tokens"
            )
        };
        let expected = [
            text(100, "expert 1 of layer 1; expert 0 of layer 4"),
            text(103, "expert 2 of layer 1"),
            text(220, "expert 0 of layer 4"),
        ];
        assert_eq!(told, expected);
        let mut idle = IdleExperts::default();
        let several = (1..=100).filter_map(|step| idle.take(&report(step, &[(0, vec![0, 0, 1, 0])]))).next();
        assert!(several.is_some_and(|text| text.contains("chosen experts 0, 1 and 3 of layer 0 in 100 steps")));
    }
}
