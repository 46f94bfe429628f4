//! An engine whose device does not have every choice of numerics.

use config::{Precision, Products};
use device::{ArenaSize, DeviceError, DeviceKind, Numerics, NumericsChoice};
use mesh::Rank;
use train::{Engine, EngineDescription, RankEngine, Setup};

use crate::failures::rig::{NEVER, Silent, TOKENS, eight_ranks, failure_of, threads};

/// Multiplies in chains only.
struct ChainsOnly<E>(E);

impl<E: Engine> Engine for ChainsOnly<E> {
    fn open(&self, rank: Rank, size: ArenaSize, numerics: Numerics) -> Result<RankEngine, DeviceError> {
        let products = self.describe().products;
        numerics.accepted_by(DeviceKind("the toy device"), |choice| match choice {
            NumericsChoice::Products(order) => products.contains(&order),
            NumericsChoice::Stored(_) | NumericsChoice::GradientSums(_) => true,
        })?;
        self.0.open(rank, size, numerics)
    }

    fn ranks(&self) -> Vec<Rank> {
        self.0.ranks()
    }

    fn describe(&self) -> EngineDescription {
        EngineDescription { products: vec![Products::Chained], ..self.0.describe() }
    }

    fn abort(&self, rank: Rank, description: &str) {
        self.0.abort(rank, description);
    }

    fn failure(&self) -> Option<(Rank, String)> {
        self.0.failure()
    }
}

#[test]
fn a_choice_that_the_device_does_not_have_ends_the_run_by_name() {
    let chained = eight_ranks();
    let ports = train::Ports::new(&TOKENS, &Silent);
    train::run(&chained, &ChainsOnly(threads(&chained, NEVER)), ports).expect("products in chains are accepted");

    let with_pairs = train_spec_with_pairs(&chained);
    let failure = failure_of(&with_pairs, &ChainsOnly(threads(&with_pairs, NEVER)));
    let expected =
        "train.products = \"pairs\" must be supported by the device; the toy device refuses it; use \"chained\"";
    assert_eq!((failure.step, failure.instruction.as_str(), failure.cause.as_str()), (0, "start", expected));
}

fn train_spec_with_pairs(setup: &Setup) -> Setup {
    let train = config::TrainSpec { precision: Precision::Fp32(Products::Pairs), ..setup.train.clone() };
    Setup::new(setup.model.clone(), setup.parallelism.clone(), train).expect("a legal run")
}
