//! Parts of a layout that the trainer of a prediction does not offer.

use cluster::{OfferedAxis, Software};
use config::{Parallelism, ScheduleSpec, SequenceParallel, ZeroStage};
use plan::search::has_schedule;

/// The parts of `parallelism` that the trainer does not offer, as run files write them. Pleach has all of them.
pub fn not_offered(parallelism: &Parallelism, software: Option<&Software>) -> Vec<String> {
    let Some(Software { offers, .. }) = software else { return vec![] };
    let degrees = parallelism.degrees;
    let axes = [
        (OfferedAxis::Tensor, degrees.tp > 1, format!("tp {}", degrees.tp)),
        (OfferedAxis::Pipeline, degrees.pp > 1, format!("pp {}", degrees.pp)),
        (OfferedAxis::Context, degrees.cp > 1, format!("cp {}", degrees.cp)),
        (
            OfferedAxis::Sequence,
            parallelism.sequence_parallel == SequenceParallel::On,
            "sequence parallelism".to_string(),
        ),
    ];
    let mut lacking: Vec<String> =
        axes.into_iter().filter(|(axis, has, _)| *has && !offers.has_axis(*axis)).map(|(_, _, text)| text).collect();
    let zero = match parallelism.zero {
        ZeroStage::Off => 0,
        ZeroStage::One => 1,
        ZeroStage::Two { .. } => 2,
        ZeroStage::Three { .. } => 3,
    };
    if degrees.dp * degrees.cp > 1 && !offers.zero_stages.contains(&zero) {
        lacking.push(format!("zero {zero}"));
    }
    // No trainer is described with its way of dividing experts.
    if parallelism.ep > 1 {
        lacking.push(format!("ep {}", parallelism.ep));
    }
    if let (ScheduleSpec::Generated(kind), 2..) = (&parallelism.schedule, degrees.pp)
        && !has_schedule(software, *kind)
    {
        lacking.push(format!("schedule {}", kind.name()));
    }
    lacking
}

#[cfg(test)]
mod tests {
    use config::RunConfig;

    use super::*;

    #[test]
    fn parts_that_a_trainer_does_not_offer_are_named() {
        let lacking = |overrides: &[&str], name: &str| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            let config = RunConfig::load("", "", &overrides).expect("legal");
            let software = Software::from_toml(Software::named(name).expect("a trainer")).expect("its description");
            not_offered(&config.parallelism, Some(&software)).join(", ")
        };
        assert_eq!(lacking(&["parallelism.zero=0"], "megatron-2021"), "");
        assert_eq!(lacking(&["parallelism.zero=3"], "megatron-2021"), "zero 3");
        assert_eq!(lacking(&["parallelism.dp=1", "parallelism.zero=3"], "megatron-2021"), "", "nothing is sharded");
        assert_eq!(lacking(&["parallelism.schedule=zb-h1", "parallelism.zero=0"], "megatron-2021"), "schedule zb-h1");
    }
}
