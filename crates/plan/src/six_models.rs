//! Six published runs, as they were laid out and as the search would lay them out.

use std::collections::BTreeMap;

use cluster::{Cluster, ProfileError, Software, named};
use spec::{Problem, RunConfig};
use train::SetupError;

use crate::prediction::PreparedStep;
use crate::search::{Answer, Found, Question, search};

/// A published run.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Its name.
    pub name: &'static str,
    text: &'static str,
    /// The profile of its cluster.
    pub profile: &'static str,
    /// Its trainer.
    pub software: &'static str,
    /// Seconds per step, as published or derived from what was.
    pub step_s: f64,
}

macro_rules! published {
    ($name:literal, $profile:literal, $software:literal, $step_s:literal) => {
        Published {
            name: $name,
            text: include_str!(concat!("../models/", $name, ".toml")),
            profile: $profile,
            software: $software,
            step_s: $step_s,
        }
    };
}

/// All six; the files in `crates/plan/models` say where each is from.
pub const PUBLISHED: [Published; 6] = [
    published!("codegeex-13b", "ascend-910", "megatron-2021", 10.0),
    published!("gpt-neox-20b", "a100-40g-dgx", "deepspeed-2022", 43.84),
    published!("glm-130b", "a100-40g-dgx", "largescale-2022", 88.5),
    published!("opt-175b", "a100-80g-dgx", "megatron-2022", 20.0),
    published!("bloom-176b", "a100-80g-jean-zay", "deepspeed-bf16-2022", 104.5),
    published!("mt-nlg-530b", "a100-80g-dgx", "deepspeed-bf16-2022", 60.1),
];

/// What came out for one run.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The run.
    pub published: Published,
    /// As it was laid out.
    pub laid_out: Found,
    /// What the search found on as many accelerators.
    pub answer: Answer,
}

/// Why a comparison cannot be made: a fault of the files in this repository.
#[derive(Debug, thiserror::Error)]
pub enum ComparisonError {
    /// Of a run file.
    #[error("{}", .0.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
    Run(Vec<Problem>),
    /// Of a profile or a trainer.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Of a run.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

impl Published {
    /// Simulates the published layout and searches for better ones.
    ///
    /// # Errors
    /// See [`ComparisonError`].
    pub fn compare(&self) -> Result<Compared, ComparisonError> {
        let config = RunConfig::load(self.name, self.text, &[]).map_err(ComparisonError::Run)?;
        let cluster = Cluster::from_toml(named(self.profile).unwrap_or_default())?;
        let software = Software::from_toml(Software::named(self.software).unwrap_or_default())?;
        let step = PreparedStep::new(&config.model, &config.parallelism, &config.train, Some(&software))?;
        let prediction = step.on(&cluster)?;
        let memory_bytes = step.memory().iter().map(|parts| parts.iter().map(|(_, bytes)| bytes).sum()).max();
        let laid_out = Found {
            parallelism: config.parallelism.clone(),
            step_ns: prediction.step_ns(),
            spent: prediction.spent,
            memory_bytes: memory_bytes.unwrap_or(0),
        };
        let question = Question {
            config: &config,
            cluster: &cluster,
            software: Some(&software),
            accelerators: config.parallelism.world_size(),
            fixed: &BTreeMap::new(),
            memory_bytes: cluster.accelerator.memory_gb * 1e9,
            top: 1,
        };
        let answer = search(&question)?;
        Ok(Compared { published: *self, laid_out, answer })
    }
}
