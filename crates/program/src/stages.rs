//! Which layers each stage has.

use std::ops::Range;

use config::{Stage, Unit};

/// Contiguous layers per stage; the first stage has the embedding besides, the last one the head. These two may have no layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSplit {
    layers_per_stage: Vec<usize>,
}

/// Work of one unit per microbatch, in any common measure (floating-point operations, nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitWork {
    /// The embedding.
    pub embedding: u64,
    /// One layer.
    pub layer: u64,
    /// The head with the loss.
    pub head: u64,
}

/// Why layers do not make stages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    /// A stage would have nothing.
    #[error(
        "{num_stages} stages need at least {} layers between the embedding and the head, the model has {num_layers}; use 1 to {} stages",
        num_stages.saturating_sub(2), num_layers + 2
    )]
    TooManyStages {
        /// Stages asked for.
        num_stages: usize,
        /// Layers of the model.
        num_layers: usize,
    },
    /// The given list has another length.
    #[error("layers are given for {given} stages, the pipeline has {num_stages}; give one number per stage")]
    WrongLength {
        /// Numbers given.
        given: usize,
        /// Stages of the pipeline.
        num_stages: usize,
    },
    /// A stage is given no layer.
    #[error("stage {stage} of {given:?} has nothing; every stage but the first and the last needs at least one layer")]
    EmptyStage {
        /// The stage.
        stage: usize,
        /// The given list.
        given: Vec<usize>,
    },
    /// The given layers are more or fewer than the model's.
    #[error("the stages {given:?} have {sum} layers together, the model has {num_layers}; {}", difference(*sum, *num_layers))]
    WrongSum {
        /// The given list.
        given: Vec<usize>,
        /// Its sum.
        sum: usize,
        /// Layers of the model.
        num_layers: usize,
    },
}

fn difference(sum: usize, num_layers: usize) -> String {
    if sum > num_layers {
        format!("take {} from one stage", sum - num_layers)
    } else {
        format!("add {} to one stage", num_layers - sum)
    }
}

impl StageSplit {
    /// The split with these layers per stage.
    ///
    /// # Errors
    /// Another number of stages or layers than the run's, or a stage without any unit.
    pub fn given(layers_per_stage: &[usize], num_layers: usize, num_stages: usize) -> Result<StageSplit, StageError> {
        let given = layers_per_stage.to_vec();
        if given.len() != num_stages {
            return Err(StageError::WrongLength { given: given.len(), num_stages });
        }
        let is_inner = |stage: usize| stage > 0 && stage + 1 < num_stages;
        if let Some(stage) = (0..num_stages).find(|stage| is_inner(*stage) && given[*stage] == 0) {
            return Err(StageError::EmptyStage { stage, given });
        }
        let sum = given.iter().sum();
        if sum != num_layers {
            return Err(StageError::WrongSum { given, sum, num_layers });
        }
        Ok(StageSplit { layers_per_stage: given })
    }

    /// Number of stages.
    pub fn num_stages(&self) -> usize {
        self.layers_per_stage.len()
    }

    /// Number of layers.
    pub fn num_layers(&self) -> usize {
        self.layers_per_stage.iter().sum()
    }

    /// Layers per stage.
    pub fn layers_per_stage(&self) -> &[usize] {
        &self.layers_per_stage
    }

    /// The layers of a stage; none for a stage that does not exist.
    pub fn layers(&self, stage: Stage) -> Range<u32> {
        let index = stage.0 as usize;
        let start: usize = self.layers_per_stage.iter().take(index).sum();
        let len = self.layers_per_stage.get(index).copied().unwrap_or(0);
        start as u32..(start + len) as u32
    }

    /// The computing units of a stage in forward order.
    pub fn units(&self, stage: Stage) -> impl DoubleEndedIterator<Item = Unit> + use<> {
        let first = (stage.0 == 0).then_some(Unit::Embedding);
        let last = (stage.0 as usize + 1 == self.num_stages()).then_some(Unit::Head);
        first.into_iter().chain(self.layers(stage).map(Unit::Layer)).chain(last)
    }

    /// The stage of a computing unit; the table's is the embedding's.
    pub fn stage_of(&self, unit: Unit) -> Stage {
        let last = self.num_stages().saturating_sub(1);
        match unit {
            Unit::Table | Unit::Embedding => Stage(0),
            Unit::Head => Stage(last as u32),
            Unit::Layer(layer) => {
                let mut end = 0;
                let stage = self.layers_per_stage.iter().position(|layers| {
                    end += layers;
                    (layer as usize) < end
                });
                Stage(stage.unwrap_or(last) as u32)
            }
        }
    }

    /// Work of the most loaded stage.
    pub fn largest_work(&self, work: UnitWork) -> u64 {
        let stages = 0..self.num_stages();
        let loads = stages
            .map(|stage| fixed_work(stage, self.num_stages(), work) + work.layer * self.layers_per_stage[stage] as u64);
        loads.max().unwrap_or(0)
    }
}

/// Work of a stage besides its layers.
fn fixed_work(stage: usize, num_stages: usize, work: UnitWork) -> u64 {
    let first = if stage == 0 { work.embedding } else { 0 };
    let last = if stage + 1 == num_stages { work.head } else { 0 };
    first + last
}

/// The split whose most loaded stage has the least work, each stage but the first and the last having at least one layer.
///
/// Every such stage gets one layer; each further one goes where the load after it is least. That is optimal: when the layer
/// came that made the largest load T, one layer more would have made every stage's load at least T. All layers
/// were not placed yet, so in any other split too some stage has at least that one layer more, and a load of at least T.
/// Of equal choices the latest stage is taken, which has the fewest activations in flight.
///
/// # Errors
/// Fewer units than stages.
pub fn split_stages(num_layers: usize, num_stages: usize, work: UnitWork) -> Result<StageSplit, StageError> {
    if num_stages == 0 || num_stages > num_layers + 2 {
        return Err(StageError::TooManyStages { num_stages, num_layers });
    }
    let inner = num_stages.saturating_sub(2);
    let mut layers_per_stage: Vec<usize> =
        (0..num_stages).map(|stage| usize::from(stage > 0 && stage + 1 < num_stages)).collect();
    for _ in inner..num_layers {
        let load_after =
            |stage: usize, layers: usize| fixed_work(stage, num_stages, work) + work.layer.max(1) * (layers as u64 + 1);
        let lightest = (0..num_stages).rev().min_by_key(|&stage| load_after(stage, layers_per_stage[stage]));
        if let Some(stage) = lightest {
            layers_per_stage[stage] += 1;
        }
    }
    Ok(StageSplit { layers_per_stage })
}
