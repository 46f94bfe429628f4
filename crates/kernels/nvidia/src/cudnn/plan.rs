//! Plans: a pass of attention by an engine of the library, for one GPU.

use std::sync::Arc;

use gpu::{AttentionPlaces, CausalAttention, DevicePointer, MatrixElement, StreamHandle};

use super::calls::Value;
use super::descriptor::Descriptor;
use super::error::{AttentionError, PlanFacts};
use super::functions::{
    CONFIG_ENGINE, Choice, ENGINE, ENGINE_CONFIG, ENGINE_NOTES, ENGINE_NUMBER, FALLBACK, Functions, HEURISTIC,
    HEURISTIC_GPU, HEURISTIC_GRAPH, HEURISTIC_MODE, HEURISTIC_RESULTS, MODE_A, OF_HEURISTIC, OF_NOTE, OTHER_BITS,
    PACK_ADDRESSES, PACK_IDS, PACK_WORKSPACE, PLAN, PLAN_CONFIG, PLAN_GPU, PLAN_WORKSPACE, RawHandle, VARIANT_PACK,
};
use super::passes::{self, DELTAS, GRADIENTS, HIDDEN, INPUTS, LOG_SUM_EXP, ONE, SCALE};

/// Proposals that are asked for; the first one that can be made is taken.
const CANDIDATES: usize = 8;

/// Notes of an engine that are read.
const NOTES: usize = 32;

/// Where parts of the workspace begin.
const WORKSPACE_ALIGNMENT: usize = 256;

/// A pass, ready to be computed.
pub(super) struct Plan {
    functions: Arc<Functions>,
    plan: Descriptor,
    facts: PlanFacts,
    /// Bytes of the library's own workspace, after which the sums of a backward pass begin.
    own_bytes: usize,
    /// The library may read what plans name.
    _named: Vec<Descriptor>,
}

impl Plan {
    /// The first plan that the library proposes for a GPU and can make; `None` where it does not have the attention.
    pub(super) fn first(
        functions: &Arc<Functions>,
        gpu: &Descriptor,
        attention: &CausalAttention,
    ) -> Result<Option<Plan>, AttentionError> {
        // In fp32 the library multiplies in TF32.
        if attention.element == MatrixElement::F32 {
            return Ok(None);
        }
        let Some(graph) = supported(passes::graph(functions, attention))? else { return Ok(None) };
        let mut named = graph;
        for mode in [MODE_A, FALLBACK] {
            let Some(configs) = supported(proposals(functions, gpu, &named[0], mode))? else { continue };
            for config in configs {
                let Some(made) = supported(Plan::made(functions, gpu, attention, config))? else { continue };
                if let Some((plan, own)) = made {
                    named.extend(own);
                    return Ok(Some(Plan { _named: named, ..plan }));
                }
            }
        }
        Ok(None)
    }

    /// The plan of a configuration, with what it names; `None` for an engine whose bits change from call to call.
    fn made(
        functions: &Arc<Functions>,
        gpu: &Descriptor,
        attention: &CausalAttention,
        config: Descriptor,
    ) -> Result<Option<(Plan, Vec<Descriptor>)>, AttentionError> {
        let engine = Descriptor::empty(functions, ENGINE)?;
        functions.descriptors(config.raw, CONFIG_ENGINE, &[engine.raw])?;
        if functions.choices(engine.raw, (ENGINE_NOTES, OF_NOTE), NOTES)?.contains(&OTHER_BITS) {
            return Ok(None);
        }
        let parts = [(PLAN_CONFIG, Value::Descriptors(&[config.raw])), (PLAN_GPU, Value::Descriptors(&[gpu.raw]))];
        let plan = Descriptor::of(functions, PLAN, &parts)?;
        let bytes = |number: i64| usize::try_from(number).unwrap_or(usize::MAX - WORKSPACE_ALIGNMENT);
        let own_bytes = bytes(functions.number(plan.raw, PLAN_WORKSPACE)?).next_multiple_of(WORKSPACE_ALIGNMENT);
        let workspace_bytes = own_bytes.saturating_add(passes::delta_bytes(attention));
        let facts = PlanFacts { engine: functions.number(engine.raw, ENGINE_NUMBER)?, workspace_bytes };
        let plan = Plan { functions: Arc::clone(functions), plan, facts, own_bytes, _named: vec![] };
        Ok(Some((plan, vec![config, engine])))
    }

    pub(super) fn facts(&self) -> PlanFacts {
        self.facts
    }

    /// Computes as work of `stream`.
    pub(super) fn submit(
        &self,
        handle: RawHandle,
        stream: StreamHandle,
        scale: f32,
        places: &AttentionPlaces,
        workspace: DevicePointer,
    ) -> Result<(), AttentionError> {
        let numbers = [(SCALE, scale), (HIDDEN, f32::NEG_INFINITY), (ONE, 1.0)];
        let tensors = INPUTS.into_iter().zip(places.inputs).chain([(LOG_SUM_EXP, places.log_sum_exp)]);
        let mut named: Vec<(i64, u64)> = tensors.map(|(id, place)| (id, place.0)).collect();
        named.extend(numbers.iter().map(|(id, number)| (*id, (&raw const *number) as u64)));
        if self.facts.workspace_bytes > self.own_bytes {
            named.extend(GRADIENTS.into_iter().zip(places.gradients).map(|(id, place)| (id, place.0)));
            named.push((DELTAS, workspace.offset(self.own_bytes).0));
        } else {
            // A forward pass has no factor of a dropout.
            named.retain(|(id, _)| *id != ONE);
        }
        let (ids, addresses): (Vec<i64>, Vec<u64>) = named.into_iter().unzip();
        let parts = [
            (PACK_IDS, Value::Numbers(&ids)),
            (PACK_ADDRESSES, Value::Addresses(&addresses)),
            (PACK_WORKSPACE, Value::Addresses(&[workspace.0])),
        ];
        let pack = Descriptor::of(&self.functions, VARIANT_PACK, &parts)?;
        self.functions.execute(handle, stream, self.plan.raw, pack.raw)
    }
}

/// Configurations of engines, the best by the library's estimate first.
fn proposals(
    functions: &Arc<Functions>,
    gpu: &Descriptor,
    graph: &Descriptor,
    mode: Choice,
) -> Result<Vec<Descriptor>, AttentionError> {
    let parts = [
        (HEURISTIC_GRAPH, Value::Descriptors(&[graph.raw])),
        (HEURISTIC_MODE, Value::Choice(OF_HEURISTIC, mode)),
        (HEURISTIC_GPU, Value::Descriptors(&[gpu.raw])),
    ];
    let heuristic = Descriptor::of(functions, HEURISTIC, &parts)?;
    let configs = (0..CANDIDATES).map(|_| Descriptor::empty(functions, ENGINE_CONFIG));
    let mut configs = configs.collect::<Result<Vec<Descriptor>, AttentionError>>()?;
    let raws: Vec<_> = configs.iter().map(|config| config.raw).collect();
    let there = functions.descriptors(heuristic.raw, HEURISTIC_RESULTS, &raws)?;
    configs.truncate(there);
    Ok(configs)
}

/// The value that the library made, if it has it.
fn supported<T>(made: Result<T, AttentionError>) -> Result<Option<T>, AttentionError> {
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if error.is_of_unsupported() => Ok(None),
        Err(error) => Err(error),
    }
}
