//! The bytes of a rank of a published layout, against sums made by hand from the papers' sizes, without the list of
//! parameters.
//!
//! A rank's parameters are stored unit by unit in buffers that are whole blocks of 4,096 elements on each replica that
//! may hold a share, so a stage of `n` units has less than `4096 n dp` elements more than the model. In 16 bits they
//! have two bytes each, their sums of gradients four, and AdamW's master weights and moments twelve, sharded over the
//! replicas of a sharding group.

use crate::harness::{pleach, prints, stderr};
use serde_json::Value;

const BLOCK: u64 = 4096;
const GIB: u64 = 1 << 30;

/// Sizes of a model and its layout.
struct Published {
    name: &'static str,
    unique: u64,
    hidden: u64,
    /// Width of the feed-forward block, and its maps from the stream.
    ffn: (u64, u64),
    vocabulary: u64,
    /// Replicas; those that shard parameters; those that shard the optimizer.
    replicas: [u64; 3],
    tp: u64,
    memory: u64,
    layers: &'static [u64],
    /// Parameters of the first and the last stage outside of layers and token table: positions, norms.
    ends: [u64; 2],
}

impl Published {
    /// Of one rank: four attention maps, two or three of the feed-forward block, biases of all, two layer norms.
    fn layer(&self) -> u64 {
        let (h, (ffn, inputs)) = (self.hidden, self.ffn);
        (4 * h * h + (inputs + 1) * h * ffn) / self.tp + (3 * h + inputs * ffn) / self.tp + 2 * h + 4 * h
    }

    /// Of one rank of `stage`, with the number of its units.
    fn stage(&self, stage: usize) -> (u64, u64) {
        let (first, last) = (stage == 0, stage + 1 == self.layers.len());
        let table = if first || last { self.vocabulary * self.hidden / self.tp } else { 0 };
        let ends = [first, last].into_iter().zip(self.ends).filter(|(is_end, _)| *is_end).map(|(_, end)| end);
        (self.layers[stage] * self.layer() + table + ends.sum::<u64>(), self.layers[stage] + 3)
    }
}

/// The layer of CodeGeeX's top query is its fortieth; its queries have a table of positions, too.
const PUBLISHED: [Published; 6] = [
    Published {
        name: "codegeex-13b",
        unique: 12_873_943_040,
        hidden: 5120,
        ffn: (20480, 1),
        vocabulary: 52224,
        replicas: [192, 1, 16],
        tp: 8,
        memory: 32 * GIB,
        layers: &[40],
        ends: [2048 * 5120, 2048 * 5120 + 2 * 5120],
    },
    Published {
        name: "gpt-neox-20b",
        unique: 20_554_567_680,
        hidden: 6144,
        ffn: (24576, 1),
        vocabulary: 50432,
        replicas: [12, 1, 12],
        tp: 2,
        memory: 42_505_000_000,
        layers: &[11; 4],
        ends: [0, 2 * 6144],
    },
    Published {
        name: "glm-130b",
        unique: 128_697_794_560,
        hidden: 12288,
        ffn: (32768, 2),
        vocabulary: 150_528,
        replicas: [24, 1, 24],
        tp: 4,
        memory: 42_505_000_000,
        layers: &[8, 9, 9, 9, 9, 9, 9, 8],
        ends: [0, 2 * 12288],
    },
    Published {
        name: "opt-175b",
        unique: 174_604_468_224,
        hidden: 12288,
        ffn: (49152, 1),
        vocabulary: 50272,
        replicas: [124, 124, 124],
        tp: 8,
        memory: 85_197_000_000,
        layers: &[96],
        ends: [2050 * 12288, 2 * 12288],
    },
    Published {
        name: "bloom-176b",
        unique: 176_247_271_424,
        hidden: 14336,
        ffn: (57344, 1),
        vocabulary: 250_880,
        replicas: [8, 1, 8],
        tp: 4,
        memory: 85_197_000_000,
        layers: &[5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5],
        ends: [2 * 14336, 2 * 14336],
    },
    Published {
        name: "mt-nlg-530b",
        unique: 529_600_819_200,
        hidden: 20480,
        ffn: (81920, 1),
        vocabulary: 51200,
        replicas: [8, 1, 1],
        tp: 8,
        memory: 85_197_000_000,
        layers: &[3; 35],
        ends: [2048 * 20480, 2 * 20480],
    },
];

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count"))
}

#[test]
fn a_rank_holds_what_sums_made_by_hand_say() {
    for published in &PUBLISHED {
        let Published { name, unique, replicas: [dp, parameters_among, optimizer_among], tp, memory, layers, .. } =
            *published;
        let said = prints(&["check", &format!("preset:{name}"), "--json"]);
        let said: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!(number(&said["parameters"]), unique, "{name}");
        assert_eq!(number(&said["ranks"]), dp * tp * layers.len() as u64, "{name}");
        assert_eq!((number(&said["memory"]["limit_bytes"]), &said["memory"]["limit_of"]), (memory, &"rank".into()));
        let stages = said["stages"].as_array().expect("stages");
        assert_eq!(stages.len(), layers.len(), "{name}");
        for (stage, said) in stages.iter().enumerate() {
            let (elements, units) = published.stage(stage);
            let bytes = |category: &str| number(&said["bytes"][category]);
            let held = bytes("parameters") * parameters_among;
            let padded = 2 * (elements + units * dp * BLOCK);
            assert!((2 * elements..padded).contains(&held), "{name}, stage {stage}: {held}, by hand {}", 2 * elements);
            assert_eq!(bytes("optimizer"), 6 * held / optimizer_among, "{name}, stage {stage}");
            // Where gradients are sharded, each unit's are reduced as soon as they are there.
            if name != "codegeex-13b" && name != "opt-175b" {
                assert_eq!(bytes("gradients"), 2 * held, "{name}, stage {stage}");
            }
            let all: u64 = said["bytes"].as_object().expect("categories").values().map(number).sum();
            assert_eq!(all, number(&said["rank_bytes"]), "{name}, stage {stage}");
            assert!(all <= memory, "{name}, stage {stage}");
        }
    }
}

/// The verdict is about the memory that is given: the bytes of the largest rank do, one less does not.
#[test]
fn a_rank_with_a_byte_too_little_is_refused() {
    for Published { name, .. } in &PUBLISHED {
        let preset = format!("preset:{name}");
        let said: Value = serde_json::from_str(&prints(&["check", &preset, "--json"])).expect("JSON");
        let stages = said["stages"].as_array().expect("stages");
        let largest = stages.iter().map(|stage| number(&stage["rank_bytes"])).max().expect("a stage");
        let with = |bytes: u64| pleach(&["check", &preset, "--set", &format!("run.rank_memory_bytes={bytes}")]);
        assert_eq!(with(largest).status.code(), Some(0), "{name}");
        let output = with(largest - 1);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(
            stderr(&output).contains(&format!("run.rank_memory_bytes = {} is less than the", largest - 1)),
            "{name}"
        );
    }
}
