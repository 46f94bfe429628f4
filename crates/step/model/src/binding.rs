//! From a unit's flat buffer to the tensors of its layers, by the parameters' names.
//!
//! The same types stand for parameters and for gradient accumulators, whose flat buffers have the same layout.

use config::{LinearLayer, Segment, Unit, UnitLayout};
use device::Tensor;
use thiserror::Error;

use crate::adapter::{Adapter, AdapterAccumulators, Adapters, NO_ADAPTERS};
use crate::linear::{ColumnParallel, RowParallel};
use crate::norm::NormParams;
use crate::projection::{Projection, TopQueryProjection};

/// Why the declared parameters of a unit are not the ones that its layers read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BindError {
    /// A layer reads a parameter that was not declared.
    #[error("{unit} reads parameter {name}, which is not among its {declared} declared ones")]
    Missing {
        /// The unit.
        unit: String,
        /// The parameter.
        name: String,
        /// Parameters in the layout.
        declared: usize,
    },
    /// A declared parameter is read by no layer, so it would never receive a gradient.
    #[error("parameter {name} is declared and bound {times} times, but must be bound once")]
    NotOnce {
        /// The parameter.
        name: String,
        /// How often it was bound.
        times: usize,
    },
    /// Matrices that one multiplication reads do not follow each other in the flat buffer.
    #[error(
        "parameter {name} starts at element {offset}, but {previous} before it ends at {end}, or their widths differ"
    )]
    Apart {
        /// The later parameter.
        name: String,
        /// Its first element.
        offset: usize,
        /// The earlier parameter.
        previous: String,
        /// Its end.
        end: usize,
    },
    /// The flat buffer has not the layout's length.
    #[error("the flat buffer of {unit} has {len} elements, but its parameters end at element {needed}")]
    Length {
        /// The unit.
        unit: String,
        /// Elements of the buffer.
        len: usize,
        /// Elements that the layout needs.
        needed: usize,
    },
}

/// Finds parameters of one flat buffer and counts how often each is bound.
struct Binder<'a> {
    layout: &'a UnitLayout,
    flat: Tensor,
    unit: Unit,
    times_bound: Vec<usize>,
}

impl<'a> Binder<'a> {
    fn new(unit: Unit, layout: &'a UnitLayout, flat: Tensor) -> Result<Binder<'a>, BindError> {
        if flat.len() < layout.len {
            return Err(BindError::Length { unit: unit.to_string(), len: flat.len(), needed: layout.len });
        }
        Ok(Binder { layout, flat, unit, times_bound: vec![0; layout.segments.len()] })
    }

    /// The parameter `name`, if it is declared.
    fn optional(&mut self, name: &str) -> Option<Tensor> {
        let index = self.layout.segments.iter().position(|segment| segment.param.name == name)?;
        self.times_bound[index] += 1;
        let Segment { rows, cols, .. } = self.layout.segments[index];
        Some(self.flat.elements(self.layout.segments[index].range()).reshaped(rows, cols))
    }

    /// The parameter `name`.
    fn required(&mut self, name: &str) -> Result<Tensor, BindError> {
        self.optional(name).ok_or_else(|| BindError::Missing {
            unit: self.unit.to_string(),
            name: name.to_owned(),
            declared: self.layout.segments.len(),
        })
    }

    /// Several declared parameters as one tensor: matrices row under row, vectors one after the other.
    fn fused(&mut self, names: &[String]) -> Result<Tensor, BindError> {
        let mut fused = self.required(&names[0])?;
        // The declaration says it: a rank's part of a matrix may have one row, too.
        let is_vector = self.layout.segment(&names[0]).is_some_and(|segment| segment.param.shape.len() == 1);
        for pair in names.windows(2) {
            let next = self.required(&pair[1])?;
            let end_bytes = fused.bytes().end;
            if next.offset_bytes != end_bytes || !(is_vector || next.cols == fused.cols) {
                let element = |bytes: usize| (bytes - self.flat.offset_bytes) / self.flat.dtype.size_bytes();
                return Err(BindError::Apart {
                    name: pair[1].clone(),
                    offset: element(next.offset_bytes),
                    previous: pair[0].clone(),
                    end: element(end_bytes),
                });
            }
            let (rows, cols) =
                if is_vector { (1, fused.cols + next.cols) } else { (fused.rows + next.rows, fused.cols) };
            fused = Tensor::new(fused.offset_bytes, rows, cols, fused.dtype);
        }
        Ok(fused)
    }

    fn is_declared(&self, name: &str) -> bool {
        self.layout.segment(name).is_some()
    }

    fn norm(&mut self, name: &str) -> Result<NormParams, BindError> {
        let weight = self.required(&format!("{name}.weight"))?;
        Ok(NormParams { weight, bias: self.optional(&format!("{name}.bias")) })
    }

    /// The norms of `block`, of which each has one at least.
    fn block_norms(&mut self, block: &str) -> Result<BlockNorms, BindError> {
        let [before, after] = ["norm", "output_norm"].map(|place| format!("{block}_{place}"));
        let after = match self.is_declared(&format!("{after}.weight")) {
            true => Some(self.norm(&after)?),
            false => None,
        };
        let before = match after.is_some() && !self.is_declared(&format!("{before}.weight")) {
            true => None,
            false => Some(self.norm(&before)?),
        };
        Ok(BlockNorms { before, after })
    }

    fn column_parallel(&mut self, prefix: &str, parts: &[&str]) -> Result<ColumnParallel, BindError> {
        let names = |kind: &str| parts.iter().map(|part| format!("{prefix}.{part}.{kind}")).collect::<Vec<_>>();
        let weight = self.fused(&names("weight"))?;
        let biases = names("bias");
        let bias = if self.is_declared(&biases[0]) { Some(self.fused(&biases)?) } else { None };
        Ok(ColumnParallel { weight, bias, adapters: NO_ADAPTERS })
    }

    fn row_parallel(&mut self, name: &str) -> Result<RowParallel, BindError> {
        let weight = self.required(&format!("{name}.weight"))?;
        Ok(RowParallel { weight, bias: self.optional(&format!("{name}.bias")), adapters: NO_ADAPTERS })
    }

    /// The layer whose parameters' names begin with `prefix`, but for the maps into queries, keys and values; its
    /// experts are those of another buffer.
    fn layer(
        &mut self,
        prefix: &str,
        projection: Projection,
        experts: Option<ExpertStacks>,
    ) -> Result<LayerParams, BindError> {
        let attention = format!("{prefix}.attention");
        let qk_norm = match self.optional(&format!("{attention}.query_norm.weight")) {
            None => None,
            Some(query) => Some(QkNormParams { query, key: self.required(&format!("{attention}.key_norm.weight"))? }),
        };
        let feed_forward_name = format!("{prefix}.ffn");
        let feed_forward = match experts {
            None => FeedForwardParams::Dense(self.dense(&feed_forward_name)?),
            Some(experts) => FeedForwardParams::Experts(self.around_experts(prefix, experts)?),
        };
        Ok(LayerParams {
            attention_norms: self.block_norms(&attention)?,
            attention: AttentionParams {
                projection,
                output: self.row_parallel(&format!("{attention}.output"))?,
                qk_norm,
            },
            feed_forward_norms: self.block_norms(&feed_forward_name)?,
            feed_forward,
        })
    }

    fn dense(&mut self, name: &str) -> Result<DenseParams, BindError> {
        let is_gated = self.is_declared(&format!("{name}.gate.weight"));
        let up_parts: &[&str] = if is_gated { &["gate", "up"] } else { &["up"] };
        let up = self.column_parallel(name, up_parts)?;
        Ok(DenseParams { up, down: self.row_parallel(&format!("{name}.down"))? })
    }

    fn around_experts(&mut self, prefix: &str, experts: ExpertStacks) -> Result<ExpertsParams, BindError> {
        let ExpertStacks { up, down, up_bias, down_bias } = experts;
        let router = self.required(&format!("{prefix}.router.weight"))?;
        let router_bias = self.optional(&format!("{prefix}.router.bias"));
        let shared = format!("{prefix}.shared");
        let shared = match self.is_declared(&format!("{shared}.down.weight")) {
            true => {
                let dense = self.dense(&shared)?;
                Some(SharedExpertParams { dense, gate: self.optional(&format!("{prefix}.shared_gate.weight")) })
            }
            false => None,
        };
        Ok(ExpertsParams { router, router_bias, up, up_bias, down, down_bias, shared })
    }

    /// Fails unless every declared parameter was bound exactly once.
    fn finish(self) -> Result<(), BindError> {
        let counted = self.layout.segments.iter().zip(self.times_bound);
        match counted.into_iter().find(|(_, times)| *times != 1) {
            None => Ok(()),
            Some((segment, times)) => Err(BindError::NotOnce { name: segment.param.name.clone(), times }),
        }
    }
}

/// Parameters of an attention block, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionParams {
    /// Into queries, keys and values.
    pub projection: Projection,
    /// `[D, H * d / tp]`.
    pub output: RowParallel,
    /// Norms of queries and keys, if the model has them.
    pub qk_norm: Option<QkNormParams>,
}

/// The norms of a block, as far as a model has them, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockNorms {
    /// Of the stream that the block reads.
    pub before: Option<NormParams>,
    /// Of the block's output.
    pub after: Option<NormParams>,
}

/// Weights of the RMS norms of queries and keys: `[1, d]`, which all heads share, or `[1, H d]` and `[1, K d]`, with
/// the columns of all ranks' heads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QkNormParams {
    /// Of queries.
    pub query: Tensor,
    pub key: Tensor,
}

/// Parameters of a feed-forward block, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a layer has one, bound once for each pass")]
pub enum FeedForwardParams {
    /// All tokens go through the same matrices.
    Dense(DenseParams),
    /// Each token goes through those of some experts.
    Experts(ExpertsParams),
}

/// Parameters of a block of experts, or their gradient accumulators. `G = E / (tp ep)` experts are on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsParams {
    /// `[E, D]`, equal on all ranks.
    pub router: Tensor,
    /// `[1, E]`, equal on all ranks.
    pub router_bias: Option<Tensor>,
    /// `[G F, D]`, expert under expert; with gates, of each expert gate above up: `[G 2F, D]`.
    pub up: Tensor,
    /// `[E / tp, F]`, or gate | up `[E / tp, 2F]`: ranks along ep have the same.
    pub up_bias: Option<Tensor>,
    /// `[G D, F]`.
    pub down: Tensor,
    /// `[E / tp, D]`.
    pub down_bias: Option<Tensor>,
    /// The expert of all tokens.
    pub shared: Option<SharedExpertParams>,
}

/// Parameters of the expert of all tokens, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedExpertParams {
    pub dense: DenseParams,
    /// `[1, D]`, equal on all ranks.
    pub gate: Option<Tensor>,
}

/// The tensors of a unit of experts, see [`ExpertsParams`].
#[derive(Clone, Copy)]
struct ExpertStacks {
    up: Tensor,
    down: Tensor,
    up_bias: Option<Tensor>,
    down_bias: Option<Tensor>,
}

impl ExpertStacks {
    /// `None` for a layer without experts, whose unit of experts has no parameters.
    fn bind(layer: u32, layout: &UnitLayout, flat: Tensor) -> Result<Option<ExpertStacks>, BindError> {
        if layout.is_empty() {
            return Ok(None);
        }
        let mut binder = Binder::new(Unit::Experts(layer), layout, flat)?;
        let name = |part: &str, kind: &str| format!("layers.{layer}.experts.{part}.{kind}");
        let (first, up) = match binder.optional(&name("gate_up", "weight")) {
            Some(up) => ("gate_up", up),
            None => ("up", binder.required(&name("up", "weight"))?),
        };
        let down = binder.required(&name("down", "weight"))?;
        let groups = layout.segment(&name("down", "weight")).map_or(1, |segment| segment.dims[0]);
        let [up_bias, down_bias] = [(first, up), ("down", down)].map(|(part, matrices)| {
            let bias = binder.optional(&name(part, "bias"))?;
            let width = matrices.rows / groups;
            Some(bias.reshaped(bias.len() / width, width))
        });
        binder.finish()?;
        Ok(Some(ExpertStacks { up, down, up_bias, down_bias }))
    }
}

/// Parameters of a dense feed-forward block, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DenseParams {
    /// `[F / tp, D]`, or gate above up `[2F / tp, D]`.
    pub up: ColumnParallel,
    /// `[D, F / tp]`.
    pub down: RowParallel,
}

/// Parameters of one layer, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerParams {
    /// Before and after the attention block.
    pub attention_norms: BlockNorms,
    /// The attention block.
    pub attention: AttentionParams,
    /// Before and after the feed-forward block.
    pub feed_forward_norms: BlockNorms,
    /// The feed-forward block.
    pub feed_forward: FeedForwardParams,
}

impl LayerParams {
    /// The tensors of layer `layer` in its flat buffer, and of its experts in theirs; a layer without experts has
    /// none there.
    ///
    /// # Errors
    /// A parameter is declared and not read, read and not declared, or not next to the one that it is read with.
    pub fn bind(
        layer: u32,
        (layout, flat): (&UnitLayout, Tensor),
        experts: (&UnitLayout, Tensor),
    ) -> Result<LayerParams, BindError> {
        let experts = ExpertStacks::bind(layer, experts.0, experts.1)?;
        let mut binder = Binder::new(Unit::Layer(layer), layout, flat)?;
        let prefix = format!("layers.{layer}");
        let projection = binder.column_parallel(&format!("{prefix}.attention"), &["query", "key", "value"])?;
        let params = binder.layer(&prefix, Projection::Fused(projection), experts)?;
        binder.finish()?;
        Ok(params)
    }

    /// The same with the adapters of layer `layer` in their flat buffer, and in that of their gradients where these are
    /// made; `layer_layout` is that of the layer itself.
    ///
    /// # Errors
    /// The errors of [`LayerParams::bind`].
    pub fn with_adapters(
        mut self,
        layer: u32,
        layer_layout: &UnitLayout,
        buffers: &AdapterBuffers<'_>,
    ) -> Result<LayerParams, BindError> {
        let AdapterBuffers { layout, parameters, gradients } = *buffers;
        let mut parameters = Binder::new(Unit::Adapters(layer), layout, parameters)?;
        let mut gradients = gradients.map(|flat| Binder::new(Unit::Adapters(layer), layout, flat)).transpose()?;
        for target in LinearLayer::ALL {
            let names = ["lora_a", "lora_b"].map(|part| format!("layers.{layer}.{}.{part}", target.path()));
            let Some(a) = parameters.optional(&names[0]) else { continue };
            let b = parameters.required(&names[1])?;
            let accumulators = match &mut gradients {
                None => None,
                Some(gradients) => {
                    Some(AdapterAccumulators { a: gradients.required(&names[0])?, b: gradients.required(&names[1])? })
                }
            };
            let rows = |before: LinearLayer| {
                layer_layout.segment(&format!("layers.{layer}.{}.weight", before.path())).map_or(0, |own| own.rows)
            };
            let (adapters, place, before): (_, usize, &[LinearLayer]) = match target {
                LinearLayer::Query => (self.projection_adapters(), 0, &[]),
                LinearLayer::Key => (self.projection_adapters(), 1, &[LinearLayer::Query]),
                LinearLayer::Value => (self.projection_adapters(), 2, &[LinearLayer::Query, LinearLayer::Key]),
                LinearLayer::Output => (&mut self.attention.output.adapters, 0, &[]),
                LinearLayer::Gate => (&mut self.dense(layer)?.up.adapters, 0, &[]),
                LinearLayer::Up => (&mut self.dense(layer)?.up.adapters, 1, &[LinearLayer::Gate]),
                LinearLayer::Down => (&mut self.dense(layer)?.down.adapters, 0, &[]),
            };
            let first_output = before.iter().map(|before| rows(*before)).sum();
            adapters[place] = Some(Adapter { a, b, accumulators, first_output });
        }
        parameters.finish()?;
        gradients.map_or(Ok(()), Binder::finish)?;
        Ok(self)
    }

    /// The dense feed-forward block: a block of experts has no adapters.
    fn dense(&mut self, layer: u32) -> Result<&mut DenseParams, BindError> {
        match &mut self.feed_forward {
            FeedForwardParams::Dense(dense) => Ok(dense),
            FeedForwardParams::Experts(_) => Err(BindError::Missing {
                unit: Unit::Adapters(layer).to_string(),
                name: format!("layers.{layer}.ffn"),
                declared: 0,
            }),
        }
    }

    /// The adapters of the linear layer into queries, keys and values.
    fn projection_adapters(&mut self) -> &mut Adapters {
        match &mut self.attention.projection {
            Projection::Fused(all) => &mut all.adapters,
            Projection::TopQuery(maps) => &mut maps.key_value.adapters,
        }
    }
}

/// The flat buffers of a layer's adapters.
#[derive(Clone, Copy, Debug)]
pub struct AdapterBuffers<'a> {
    /// The layout of both.
    pub layout: &'a UnitLayout,
    pub parameters: Tensor,
    /// Accumulators of their gradients, where these are made.
    pub gradients: Option<Tensor>,
}
/// Parameters that the embedding reads, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingParams {
    /// Token table, rows of this rank: `[V / tp, D]`.
    pub table: Tensor,
    /// Learned positions `[offset + context, D]`, if the model has them.
    pub positions: Option<Tensor>,
    /// At the embedding's end, if the model has one there.
    pub norm: Option<NormParams>,
}

impl EmbeddingParams {
    /// The tensors of the table unit and of the embedding unit, each in its own flat buffer.
    ///
    /// # Errors
    /// The errors of [`LayerParams::bind`].
    pub fn bind(table: (&UnitLayout, Tensor), embedding: (&UnitLayout, Tensor)) -> Result<EmbeddingParams, BindError> {
        let table = bind_table(table.0, table.1)?;
        let mut binder = Binder::new(Unit::Embedding, embedding.0, embedding.1)?;
        let positions = binder.optional("embedding.position.weight");
        let norm = match binder.is_declared("embedding.norm.weight") {
            true => Some(binder.norm("embedding.norm")?),
            false => None,
        };
        binder.finish()?;
        Ok(EmbeddingParams { table, positions, norm })
    }
}

/// Parameters that the head reads, or their gradient accumulators.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadParams {
    /// The final norm.
    pub norm: NormParams,
    /// The layer after it, if the model has one there.
    pub top_query: Option<LayerParams>,
    /// Output matrix, rows of this rank: `[V / tp, D]`; the token table where the model ties them. No bias.
    pub output: ColumnParallel,
}

impl HeadParams {
    /// The tensors of the head unit; a tied head reads `table`, or accumulates its own share of the table's gradient
    /// there.
    ///
    /// # Errors
    /// The errors of [`LayerParams::bind`].
    pub fn bind(
        head: (&UnitLayout, Tensor),
        tied_table: Option<(&UnitLayout, Tensor)>,
    ) -> Result<HeadParams, BindError> {
        let mut binder = Binder::new(Unit::Head, head.0, head.1)?;
        let norm = binder.norm("head.norm")?;
        let top_query = match binder.optional("top_query.position.weight") {
            None => None,
            Some(positions) => {
                let query = binder.column_parallel("top_query.attention", &["query"])?;
                let key_value = binder.column_parallel("top_query.attention", &["key", "value"])?;
                let projection = Projection::TopQuery(TopQueryProjection { positions, query, key_value });
                Some(binder.layer("top_query", projection, None)?)
            }
        };
        let output = match tied_table {
            None => binder.required("head.output.weight")?,
            Some((layout, flat)) => bind_table(layout, flat)?,
        };
        binder.finish()?;
        Ok(HeadParams { norm, top_query, output: ColumnParallel { weight: output, bias: None, adapters: NO_ADAPTERS } })
    }
}

fn bind_table(layout: &UnitLayout, flat: Tensor) -> Result<Tensor, BindError> {
    let mut binder = Binder::new(Unit::Table, layout, flat)?;
    let table = binder.required("embedding.token.weight")?;
    binder.finish()?;
    Ok(table)
}
