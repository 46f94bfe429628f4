//! Kernels of the head, for trainers that compute all logits at once.
#![allow(clippy::unwrap_used, reason = "a test that fails is one that panics")]

use cluster::{AttentionKernels, HeadKernels, Software};
use config::{ModelSpec, RunConfig, TopQuery};
use device::Write;
use model::MicrobatchShape;
use record::{RecordCase, UnitRecords};
use sim::{Kernel, PassWork, RecordedUnits};

use super::training_case::training_case;

fn forward(top_query: TopQuery) -> PassWork {
    let model = ModelSpec { top_query, context: 300, ..RunConfig::quick_start().model };
    // Two sequences of three chunks each.
    let case = RecordCase { write: Write::Assign, ..training_case(&model, MicrobatchShape::whole(2, 300)) };
    let named = Software::from_toml(Software::named("megatron-2021").unwrap()).unwrap();
    let software = Software { head: HeadKernels::Whole, attention: AttentionKernels::Fused, ..named };
    RecordedUnits::new(&UnitRecords::new(case).unwrap(), Some(&software)).units[config::UnitClass::Head].forward.clone()
}

fn products(pass: &PassWork) -> usize {
    pass.kernels.iter().filter(|kernel| matches!(kernel, Kernel::Product(_))).count()
}

/// Logits, the gradient of what they are made of, and that of the matrix are a product each, whatever the chunks; a
/// layer in the head has three of each of its five maps, and no operation is lost or counted twice.
#[test]
fn products_of_logits_become_one_and_others_stay() {
    let (plain, with_layer) = (forward(TopQuery::Off), forward(TopQuery::On));
    assert_eq!((products(&plain), products(&with_layer)), (3, 3 + 15));
    for pass in [plain, with_layer] {
        let flops = |kernel: &Kernel| match kernel {
            Kernel::Product(product) => product.flops(),
            Kernel::Attention { flops, .. } => *flops,
            Kernel::Memory { .. } => 0.0,
        };
        assert_eq!(pass.kernels.iter().map(flops).sum::<f64>(), pass.flops);
    }
}
