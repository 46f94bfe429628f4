//! Every declared parameter is bound exactly once, and binding says what is wrong when one is not.

use mesh::{Axis, AxisSizes};
use std::collections::BTreeMap;

use config::{ModelSpec, ParamSpec, Tied, Unit, UnitLayout};
use device::{Dtype, Tensor};
use model::{
    BindError, BlockNorms, ColumnParallel, DenseParams, EmbeddingParams, ExpertsParams, FeedForwardParams, HeadParams,
    LayerParams, NormParams, Projection, QkNormParams, RowParallel, SharedExpertParams, TopQueryProjection,
};

use crate::cases;

fn layout(model: &ModelSpec, unit: Unit, tp: usize) -> (UnitLayout, Tensor) {
    let layout = UnitLayout::new(config::params(model, unit), AxisSizes::only(Axis::Tp, tp), 1);
    let flat = Tensor::new(64, 1, layout.padded_len(), Dtype::F32);
    (layout, flat)
}

fn of_norm(norm: NormParams) -> Vec<Tensor> {
    [Some(norm.weight), norm.bias].into_iter().flatten().collect()
}

fn of_column(linear: ColumnParallel) -> Vec<Tensor> {
    [Some(linear.weight), linear.bias].into_iter().flatten().collect()
}

fn of_projection(projection: Projection) -> Vec<Tensor> {
    match projection {
        Projection::Fused(all) => of_column(all),
        Projection::TopQuery(TopQueryProjection { positions, query, key_value }) => {
            [vec![positions], of_column(query), of_column(key_value)].concat()
        }
    }
}

fn of_row(linear: RowParallel) -> Vec<Tensor> {
    [Some(linear.weight), linear.bias].into_iter().flatten().collect()
}

fn of_norms(norms: BlockNorms) -> Vec<Tensor> {
    [norms.before, norms.after].into_iter().flatten().flat_map(of_norm).collect()
}

fn of_layer(params: LayerParams) -> Vec<Tensor> {
    let feed_forward = match params.feed_forward {
        FeedForwardParams::Dense(dense) => of_dense(dense),
        FeedForwardParams::Experts(ExpertsParams { router, router_bias, shared, .. }) => {
            let shared = shared
                .map_or(vec![], |SharedExpertParams { dense, gate }| of_dense(dense).into_iter().chain(gate).collect());
            [vec![router], router_bias.into_iter().collect(), shared].concat()
        }
    };
    let heads = params.attention.qk_norm.map_or(vec![], |QkNormParams { query, key }| vec![query, key]);
    [
        of_norms(params.attention_norms),
        of_projection(params.attention.projection),
        heads,
        of_row(params.attention.output),
        of_norms(params.feed_forward_norms),
        feed_forward,
    ]
    .concat()
}

fn of_dense(dense: DenseParams) -> Vec<Tensor> {
    [of_column(dense.up), of_row(dense.down)].concat()
}

fn of_experts(params: LayerParams) -> Vec<Tensor> {
    match params.feed_forward {
        FeedForwardParams::Dense(_) => vec![],
        FeedForwardParams::Experts(ExpertsParams { up, up_bias, down, down_bias, .. }) => {
            [Some(up), Some(down), up_bias, down_bias].into_iter().flatten().collect()
        }
    }
}

/// The layout of a layer without experts.
fn no_experts() -> (UnitLayout, Tensor) {
    (UnitLayout::new(vec![], AxisSizes::ONE, 1), Tensor::new(0, 1, 0, Dtype::F32))
}

fn bind(layer: u32, (layout, flat): (&UnitLayout, Tensor)) -> Result<LayerParams, BindError> {
    let (none, nowhere) = no_experts();
    LayerParams::bind(layer, (layout, flat), (&none, nowhere))
}

/// The tensors are side by side and fill all segments of the layout.
fn assert_conserved(what: &str, layout: &UnitLayout, flat: Tensor, tensors: &[Tensor]) {
    let by_start: BTreeMap<usize, usize> =
        tensors.iter().map(|tensor| (tensor.bytes().start, tensor.bytes().end)).collect();
    assert_eq!(by_start.len(), tensors.len(), "{what}: two tensors start at one place");
    let end = by_start.iter().fold(flat.offset_bytes, |expected, (start, end)| {
        assert_eq!(*start, expected, "{what}: a gap or an overlap");
        *end
    });
    assert_eq!(end, flat.offset_bytes + layout.len * 4, "{what}");
}

#[test]
fn every_parameter_is_bound_once() {
    for (name, model) in cases::all() {
        for tp in [1, 2] {
            let what = |unit: Unit| format!("{name}, {unit}, {tp} ranks");
            for layer in (0..model.num_layers as u32).map(Unit::Layer) {
                let (layout, flat) = layout(&model, layer, tp);
                let Unit::Layer(number) = layer else { unreachable!() };
                let experts = Unit::Experts(number);
                let (experts_layout, experts_flat) = self::layout(&model, experts, tp);
                let bound = LayerParams::bind(number, (&layout, flat), (&experts_layout, experts_flat)).unwrap();
                assert_conserved(&what(layer), &layout, flat, &of_layer(bound));
                assert_conserved(&what(experts), &experts_layout, experts_flat, &of_experts(bound));
            }
            let (table, embedding, head) =
                (layout(&model, Unit::Table, tp), layout(&model, Unit::Embedding, tp), layout(&model, Unit::Head, tp));
            let bound = EmbeddingParams::bind((&table.0, table.1), (&embedding.0, embedding.1)).unwrap();
            assert_conserved(&what(Unit::Table), &table.0, table.1, &[bound.table]);
            let norm = bound.norm.iter().flat_map(|norm| [Some(norm.weight), norm.bias]);
            let of_embedding: Vec<Tensor> = norm.chain([bound.positions]).flatten().collect();
            assert_conserved(&what(Unit::Embedding), &embedding.0, embedding.1, &of_embedding);
            let tied_table = match model.tied() {
                Tied::Yes => Some((&table.0, table.1)),
                Tied::No => None,
            };
            let bound = HeadParams::bind((&head.0, head.1), tied_table).unwrap();
            let of_head = match model.tied() {
                Tied::Yes => vec![],
                Tied::No => of_column(bound.output),
            };
            let of_head = [of_norm(bound.norm), bound.top_query.map_or(vec![], of_layer), of_head].concat();
            assert_conserved(&what(Unit::Head), &head.0, head.1, &of_head);
            assert_eq!(bound.output.weight.rows, model.padded_vocabulary(tp) / tp);
        }
    }
}

#[test]
fn matrices_of_one_row_lie_row_under_row() {
    let narrow = ModelSpec { num_heads: 2, num_kv_heads: 2, head_dim: 1, ffn_hidden: 2, ..cases::llama() };
    let (layout, flat) = layout(&narrow, Unit::Layer(0), 2);
    let bound = bind(0, (&layout, flat)).unwrap();
    let shape = |weight: Tensor| (weight.rows, weight.cols);
    assert_eq!(shape(of_projection(bound.attention.projection)[0]), (3, narrow.hidden));
    assert_eq!(shape(of_layer(bound)[4]), (2, narrow.hidden));
}

/// Binds layer 0 of a model whose declared parameters were changed by `mutate`.
fn bind_mutated(model: &ModelSpec, mutate: impl FnOnce(&mut Vec<ParamSpec>)) -> BindError {
    let mut params = config::params(model, Unit::Layer(0));
    mutate(&mut params);
    params.sort_by_key(|param| !param.decay);
    let layout = UnitLayout::new(params, AxisSizes::ONE, 1);
    bind(0, (&layout, Tensor::new(0, 1, layout.padded_len(), Dtype::F32))).unwrap_err()
}

fn place_of(params: &[ParamSpec], name: &str) -> usize {
    params.iter().position(|param| param.name == name).unwrap()
}

#[test]
fn a_missing_parameter_is_named() {
    let error = bind_mutated(&cases::llama(), |params| {
        params.remove(place_of(params, "layers.0.ffn.down.weight"));
    });
    assert_eq!(
        error.to_string(),
        "layer 0 reads parameter layers.0.ffn.down.weight, which is not among its 8 declared ones"
    );
}

#[test]
fn a_parameter_that_nothing_reads_is_named() {
    let error = bind_mutated(&cases::llama(), |params| {
        let spare = ParamSpec { name: "layers.0.attention.spare.weight".into(), ..params[0].clone() };
        params.push(spare);
    });
    let expected = "parameter layers.0.attention.spare.weight is declared and bound 0 times, but must be bound once";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn matrices_of_one_product_must_be_neighbours() {
    let error = bind_mutated(&cases::gpt2(), |params| {
        let key = params.remove(place_of(params, "layers.0.attention.key.weight"));
        params.push(key);
    });
    // After query (16 x 12) and value are output and the feed-forward matrices: key is now the last decayed one.
    let offset = 2 * 16 * 12 + 12 * 16 + 2 * 20 * 12;
    let expected = format!(
        "parameter layers.0.attention.key.weight starts at element {offset}, but layers.0.attention.query.weight before it \
         ends at 192, or their widths differ"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_short_buffer_is_refused() {
    let (layout, _) = layout(&cases::gpt2(), Unit::Layer(0), 1);
    let error = bind(0, (&layout, Tensor::new(0, 1, 10, Dtype::F32))).unwrap_err();
    // Attention, feed-forward, norms, biases.
    assert_eq!(4 * 16 * 12 + 2 * 20 * 12 + 4 * 12 + (3 * 16 + 12 + 20 + 12), 1388);
    assert_eq!(error.to_string(), "the flat buffer of layer 0 has 10 elements, but its parameters end at element 1388");
}
