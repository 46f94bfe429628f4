//! Which layers each stage has.

use std::ops::Range;

use config::{PerClass, Stage, Unit};

/// Contiguous layers per stage; the first stage has the embedding besides, the last one the head. These two may have no
/// layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSplit {
    layers_per_stage: Vec<usize>,
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
            Unit::Layer(layer) | Unit::Adapters(layer) | Unit::Experts(layer) => {
                let mut end = 0;
                let stage = self.layers_per_stage.iter().position(|layers| {
                    end += layers;
                    (layer as usize) < end
                });
                Stage(stage.unwrap_or(last) as u32)
            }
        }
    }

    /// Work of the most loaded stage, from that of each unit.
    pub fn largest_work(&self, work: &PerClass<u64>) -> u64 {
        let stages = (0..self.num_stages() as u32).map(Stage);
        stages.map(|stage| self.units(stage).map(|unit| work.of(unit)).sum()).max().unwrap_or(0)
    }
}

/// Work of a stage besides its layers.
fn fixed_work(stage: usize, num_stages: usize, work: &PerClass<u64>) -> u64 {
    let first = if stage == 0 { *work.of(Unit::Embedding) } else { 0 };
    let last = if stage + 1 == num_stages { *work.of(Unit::Head) } else { 0 };
    first + last
}

/// The split whose most loaded stage has the least `work`, each stage but the first and the last having at least one
/// layer. The work of units is per microbatch, in any common measure (floating-point operations, nanoseconds).
///
/// # Errors
/// Fewer units than stages.
pub fn split_stages(num_layers: usize, num_stages: usize, work: &PerClass<u64>) -> Result<StageSplit, StageError> {
    if num_stages == 0 || num_stages > num_layers + 2 {
        return Err(StageError::TooManyStages { num_stages, num_layers });
    }
    let layers_per_stage = match work.of_layers() {
        [layer] => equal_layers(num_layers, num_stages, (*layer).max(1), work),
        _ => different_layers(num_layers, num_stages, work),
    };
    Ok(StageSplit { layers_per_stage })
}

/// Every inner stage gets one layer; each further one goes where the load after it is least. That is optimal: when the
/// layer came that made the largest load T, one layer more would have made every stage's load at least T. All layers
/// were not placed yet, so in any other split too some stage has at least that one layer more, and a load of at least
/// T. Of equal choices the latest stage is taken, which has the fewest activations in flight.
fn equal_layers(num_layers: usize, num_stages: usize, layer: u64, work: &PerClass<u64>) -> Vec<usize> {
    let inner = num_stages.saturating_sub(2);
    let mut layers_per_stage: Vec<usize> = (0..num_stages).map(|stage| least_layers(stage, num_stages)).collect();
    for _ in inner..num_layers {
        let load_after =
            |stage: usize, layers: usize| fixed_work(stage, num_stages, work) + layer * (layers as u64 + 1);
        let lightest = (0..num_stages).rev().min_by_key(|&stage| load_after(stage, layers_per_stage[stage]));
        if let Some(stage) = lightest {
            layers_per_stage[stage] += 1;
        }
    }
    layers_per_stage
}

/// The first stages of a split.
#[derive(Clone)]
struct FirstStages {
    largest_work: u64,
    /// Sum of the squares of the work of each stage.
    squares: u128,
    layers_per_stage: Vec<usize>,
}

/// Stage by stage, the best first stages for each number of layers in them. Of splits with the same most loaded stage
/// the one with the least sum of squares is taken, whose other stages are balanced as well; of equal ones, the one with
/// fewer layers before the last stage, for early stages have the most activations in flight.
fn different_layers(num_layers: usize, num_stages: usize, work: &PerClass<u64>) -> Vec<usize> {
    // Work of the first 0, 1, ... layers.
    let mut first_layers = vec![0];
    for layer in 0..num_layers {
        first_layers.push(first_layers[layer] + *work.of(Unit::Layer(layer as u32)));
    }
    let none = FirstStages { largest_work: 0, squares: 0, layers_per_stage: vec![] };
    let mut best = vec![None; num_layers + 1];
    best[0] = Some(none);
    for stage in 0..num_stages {
        let fixed = fixed_work(stage, num_stages, work);
        let inner_after = num_stages.saturating_sub(2 + stage);
        let mut next: Vec<Option<FirstStages>> = vec![None; num_layers + 1];
        for (start, before) in best.iter().enumerate() {
            let Some(before) = before else { continue };
            for end in start + least_layers(stage, num_stages)..=num_layers - inner_after {
                let load = fixed + first_layers[end] - first_layers[start];
                let largest_work = before.largest_work.max(load);
                let squares = before.squares + u128::from(load) * u128::from(load);
                let known = next[end].as_ref().map(|known| (known.largest_work, known.squares));
                if known.is_none_or(|known| (largest_work, squares) < known) {
                    let layers_per_stage = [&before.layers_per_stage[..], &[end - start]].concat();
                    next[end] = Some(FirstStages { largest_work, squares, layers_per_stage });
                }
            }
        }
        best = next;
    }
    best.pop().flatten().map(|split| split.layers_per_stage).unwrap_or_default()
}

/// Layers that a stage has at least.
fn least_layers(stage: usize, num_stages: usize) -> usize {
    usize::from(stage > 0 && stage + 1 < num_stages)
}
