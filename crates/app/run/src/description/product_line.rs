//! The lines about the order of products, if the run file selects one.

use config::{Precision, Products};
use train::EngineDescription;
use train::processor::InstructionSet;

/// The orders, as the line names them.
const PAIRS: &str = "in the order of AMX";
const BLOCKS: &str = "in blocks, as tensor cores add them";

/// The line of products by a library.
const DEVICE: &str = "numbers products by the GPU's library (cuBLASLt), attention by cuDNN where it is there: the same layout, GPU \
                      and libraries have the same bits, others are within bounds\n";

/// How products are computed on `engine`; nothing where a run has the usual order.
pub fn line(precision: Precision, engine: &EngineDescription) -> String {
    let (order, slower) = match (precision.products(), precision) {
        (Products::Chained, _) => return faster(precision, engine),
        (Products::Pairs, Precision::Fp32(_)) => (PAIRS, "5 to 7 times"),
        (Products::Pairs, Precision::Bf16(_) | Precision::Fp16(..)) => (PAIRS, "1 to 1.2 times"),
        (Products::Blocks16 | Products::Blocks8, _) => (BLOCKS, "5 to 10 times"),
        (Products::Device, _) => return DEVICE.into(),
    };
    let has_instruction = match (precision.products(), engine.instruction_sets.first()) {
        (Products::Pairs, Some(InstructionSet::Amx)) => true,
        (Products::Chained | Products::Blocks16 | Products::Blocks8 | Products::Device, _)
        | (Products::Pairs, Some(InstructionSet::Avx512 | InstructionSet::Avx2 | InstructionSet::Scalar) | None) => {
            false
        }
    };
    let without = match precision.products() {
        Products::Pairs => "without AMX",
        Products::Chained | Products::Blocks16 | Products::Blocks8 | Products::Device => "on CPUs",
    };
    if has_instruction {
        return format!("numbers products {order}, by its tiles\n");
    }
    format!("numbers products {order}; {without} they take {slower} as long as with train.products = \"chained\"\n")
}

/// The order in which a processor with AMX computes faster; nothing on others.
fn faster(precision: Precision, engine: &EngineDescription) -> String {
    let has_tiles = engine.instruction_sets.first() == Some(&InstructionSet::Amx);
    // Measured for a model of 12M parameters; see docs/performance.md.
    let gain = match precision {
        Precision::Fp32(_) => "a step then takes about 0.8 of its time",
        Precision::Bf16(_) | Precision::Fp16(..) => "a step then takes about half of its time",
    };
    match has_tiles {
        false => String::new(),
        true => format!(
            "numbers this processor has AMX: train.products = \"pairs\" uses it; {gain}, and sums of products have another order, \
             so losses differ within rounding\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use config::DeviceChoice;
    use train::describe_engine;

    use super::*;

    #[test]
    fn an_order_that_is_slow_here_is_reported_with_the_other_one() {
        let on = |instruction_sets| EngineDescription { instruction_sets, ..describe_engine(DeviceChoice::Cpu, 1) };
        let (amx, none) = (on(vec![InstructionSet::Amx, InstructionSet::Avx512]), on(vec![InstructionSet::Avx2]));
        assert_eq!(line(Precision::Fp32(Products::Chained), &none), "");
        assert_eq!(
            line(Precision::Fp32(Products::Chained), &amx),
            "numbers this processor has AMX: train.products = \"pairs\" uses it; a step then takes about 0.8 of its time, and sums of products \
             have another order, so losses differ within rounding\n"
        );
        assert_eq!(
            line(Precision::Bf16(Products::Pairs), &amx),
            "numbers products in the order of AMX, by its tiles\n"
        );
        let in_blocks = "numbers products in blocks, as tensor cores add them; on CPUs they take 5 to 10 times as long as with train.products = \"chained\"\n";
        assert_eq!(line(Precision::Bf16(Products::Blocks16), &amx), in_blocks);
        let of_device = "numbers products by the GPU's library (cuBLASLt), attention by cuDNN where it is there: the same layout, GPU and \
                         libraries have the same bits, others are within bounds\n";
        assert_eq!(line(Precision::Bf16(Products::Device), &describe_engine(DeviceChoice::Cuda, 1)), of_device);
        assert_eq!(
            line(Precision::Fp32(Products::Pairs), &none),
            "numbers products in the order of AMX; without AMX they take 5 to 7 times as long as with train.products = \"chained\"\n"
        );
    }
}
