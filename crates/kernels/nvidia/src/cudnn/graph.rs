//! Graphs of operations on tensors of four dims: sequences, heads, tokens, and channels or keys.

use std::sync::Arc;

use super::calls::Value;
use super::descriptor::Descriptor;
use super::error::AttentionError;
use super::functions::{
    Choice, F32, Functions, GRAPH, GRAPH_OPERATIONS, OF_DATA_TYPE, OF_POINTWISE, OF_REDUCTION, POINTWISE,
    POINTWISE_AXIS, POINTWISE_B, POINTWISE_DESCRIPTION, POINTWISE_MODE, POINTWISE_OPERATION, POINTWISE_PRECISION,
    POINTWISE_T, POINTWISE_X, POINTWISE_Y, PRODUCT, PRODUCT_A, PRODUCT_B, PRODUCT_C, PRODUCT_DESCRIPTION,
    PRODUCT_OPERATION, PRODUCT_SUMS, REDUCTION, REDUCTION_DESCRIPTION, REDUCTION_MODE, REDUCTION_OPERATION,
    REDUCTION_PRECISION, REDUCTION_X, REDUCTION_Y, RESHAPE_OPERATION, RESHAPE_X, RESHAPE_Y, RawDescriptor, TENSOR,
    TENSOR_ALIGNMENT, TENSOR_DIMS, TENSOR_ID, TENSOR_IS_OF_HOST, TENSOR_IS_VIRTUAL, TENSOR_STRIDES, TENSOR_TYPE,
};

/// Sizes and strides of a tensor, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) dims: [i64; 4],
    pub(super) strides: [i64; 4],
}

impl Form {
    /// Without gaps, in this order of dims.
    pub(super) fn dense(dims: [i64; 4]) -> Form {
        let [_, b, c, d] = dims;
        Form { dims, strides: [b * c * d, c * d, d, 1] }
    }

    /// The same elements with the last two dims exchanged.
    pub(super) fn transposed(self) -> Form {
        let swap = |[a, b, c, d]: [i64; 4]| [a, b, d, c];
        Form { dims: swap(self.dims), strides: swap(self.strides) }
    }
}

/// Where the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// In memory of the GPU.
    InMemory,
    /// In the kernel.
    Nowhere,
    /// A number, read by the host when it submits.
    OnHost,
}

/// The least number of tensors without memory; smaller ones name the tensors of a caller.
const FIRST_INNER: i64 = 100;

/// A tensor of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    raw: RawDescriptor,
    pub(super) form: Form,
}

/// The axis along which indices are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Queries,
    Keys,
}

/// Operations so far.
pub(super) struct Graph {
    functions: Arc<Functions>,
    operations: Vec<Descriptor>,
    /// Descriptors that operations name.
    kept: Vec<Descriptor>,
    next_inner: i64,
}

impl Graph {
    pub(super) fn new(functions: &Arc<Functions>) -> Graph {
        let (operations, kept) = (vec![], vec![]);
        Graph { functions: Arc::clone(functions), operations, kept, next_inner: FIRST_INNER }
    }

    /// The finished graph, the first descriptor, with all that it names.
    pub(super) fn finish(self) -> Result<Vec<Descriptor>, AttentionError> {
        let operations: Vec<RawDescriptor> = self.operations.iter().map(|operation| operation.raw).collect();
        let parts = [(GRAPH_OPERATIONS, Value::Descriptors(&operations))];
        let graph = Descriptor::of(&self.functions, GRAPH, &parts)?;
        Ok(std::iter::once(graph).chain(self.operations).chain(self.kept).collect())
    }

    fn keep(&mut self, descriptor: Descriptor) -> RawDescriptor {
        let raw = descriptor.raw;
        self.kept.push(descriptor);
        raw
    }

    fn tensor(
        &mut self,
        id: i64,
        form: Form,
        type_: Choice,
        alignment: i64,
        held: Held,
    ) -> Result<Node, AttentionError> {
        let parts = [
            (TENSOR_ID, Value::Numbers(&[id])),
            (TENSOR_TYPE, Value::Choice(OF_DATA_TYPE, type_)),
            (TENSOR_ALIGNMENT, Value::Numbers(&[alignment])),
            (TENSOR_DIMS, Value::Numbers(&form.dims)),
            (TENSOR_STRIDES, Value::Numbers(&form.strides)),
            (TENSOR_IS_VIRTUAL, Value::Flag(held == Held::Nowhere)),
            (TENSOR_IS_OF_HOST, Value::Flag(held == Held::OnHost)),
        ];
        let descriptor = Descriptor::of(&self.functions, TENSOR, &parts)?;
        Ok(Node { raw: self.keep(descriptor), form })
    }

    /// A tensor in memory, at multiples of `alignment` bytes.
    pub(super) fn memory(
        &mut self,
        id: i64,
        form: Form,
        type_: Choice,
        alignment: i64,
    ) -> Result<Node, AttentionError> {
        self.tensor(id, form, type_, alignment, Held::InMemory)
    }

    /// A number in single precision.
    pub(super) fn number(&mut self, id: i64) -> Result<Node, AttentionError> {
        self.tensor(id, Form::dense([1; 4]), F32, 4, Held::OnHost)
    }

    /// A tensor that no memory holds.
    pub(super) fn inner(&mut self, form: Form, type_: Choice) -> Result<Node, AttentionError> {
        self.next_inner += 1;
        self.tensor(self.next_inner, form, type_, 16, Held::Nowhere)
    }

    /// `y = mode(x, others)`, element by element, in `precision`.
    fn element_wise(
        &mut self,
        (mode, precision): (Choice, Choice),
        axis: Option<Axis>,
        [x, y]: [Node; 2],
        others: &[Node],
    ) -> Result<Node, AttentionError> {
        let axis = axis.map(|axis| match axis {
            Axis::Queries => [2],
            Axis::Keys => [3],
        });
        let mut parts = vec![
            (POINTWISE_MODE, Value::Choice(OF_POINTWISE, mode)),
            (POINTWISE_PRECISION, Value::Choice(OF_DATA_TYPE, precision)),
        ];
        parts.extend(axis.iter().map(|axis| (POINTWISE_AXIS, Value::Numbers(axis))));
        let description = Descriptor::of(&self.functions, POINTWISE, &parts)?;
        let description = [self.keep(description)];
        let raws: Vec<[RawDescriptor; 1]> = [x, y].iter().chain(others).map(|node| [node.raw]).collect();
        let names = [POINTWISE_X, POINTWISE_Y, POINTWISE_B, POINTWISE_T];
        let mut parts = vec![(POINTWISE_DESCRIPTION, Value::Descriptors(&description))];
        parts.extend(names.into_iter().zip(&raws).map(|(name, raw)| (name, Value::Descriptors(raw))));
        self.operations.push(Descriptor::of(&self.functions, POINTWISE_OPERATION, &parts)?);
        Ok(y)
    }

    /// Returns the same as [`Graph::inner`], of single precision: `mode(x, others)` with the form of x.
    pub(super) fn map(&mut self, mode: Choice, x: Node, others: &[Node]) -> Result<Node, AttentionError> {
        let y = self.inner(x.form, F32)?;
        self.map_into(mode, x, others, y)
    }

    /// `y = mode(x, others)` in single precision.
    pub(super) fn map_into(&mut self, mode: Choice, x: Node, others: &[Node], y: Node) -> Result<Node, AttentionError> {
        self.element_wise((mode, F32), None, [x, y], others)
    }

    /// `mode(x, others)` in another precision, which is that of the result.
    pub(super) fn map_in(
        &mut self,
        mode: Choice,
        precision: Choice,
        x: Node,
        others: &[Node],
    ) -> Result<Node, AttentionError> {
        let y = self.inner(x.form, precision)?;
        self.element_wise((mode, precision), None, [x, y], others)
    }

    /// The place of each element along an axis, as integers of `type_`.
    pub(super) fn places(&mut self, mode: Choice, type_: Choice, x: Node, axis: Axis) -> Result<Node, AttentionError> {
        let y = self.inner(x.form, type_)?;
        self.element_wise((mode, type_), Some(axis), [x, y], &[])
    }

    /// Reduces every dim of x in which y has one element.
    pub(super) fn reduce(&mut self, mode: Choice, x: Node, y: Node) -> Result<Node, AttentionError> {
        let parts = [
            (REDUCTION_MODE, Value::Choice(OF_REDUCTION, mode)),
            (REDUCTION_PRECISION, Value::Choice(OF_DATA_TYPE, F32)),
        ];
        let description = Descriptor::of(&self.functions, REDUCTION, &parts)?;
        let parts = [
            (REDUCTION_DESCRIPTION, Value::Descriptors(&[self.keep(description)])),
            (REDUCTION_X, Value::Descriptors(&[x.raw])),
            (REDUCTION_Y, Value::Descriptors(&[y.raw])),
        ];
        self.operations.push(Descriptor::of(&self.functions, REDUCTION_OPERATION, &parts)?);
        Ok(y)
    }

    /// `c = a b` over the last two dims, with sums in single precision. Fewer heads of b are shared.
    pub(super) fn multiply(&mut self, a: Node, b: Node, c: Node) -> Result<Node, AttentionError> {
        let parts = [(PRODUCT_SUMS, Value::Choice(OF_DATA_TYPE, F32))];
        let description = Descriptor::of(&self.functions, PRODUCT, &parts)?;
        let parts = [
            (PRODUCT_DESCRIPTION, Value::Descriptors(&[self.keep(description)])),
            (PRODUCT_A, Value::Descriptors(&[a.raw])),
            (PRODUCT_B, Value::Descriptors(&[b.raw])),
            (PRODUCT_C, Value::Descriptors(&[c.raw])),
        ];
        self.operations.push(Descriptor::of(&self.functions, PRODUCT_OPERATION, &parts)?);
        Ok(c)
    }

    /// x with its last two dims exchanged, in `type_`.
    pub(super) fn transpose(&mut self, x: Node, type_: Choice) -> Result<Node, AttentionError> {
        let y = self.inner(x.form.transposed(), type_)?;
        let parts = [(RESHAPE_X, Value::Descriptors(&[x.raw])), (RESHAPE_Y, Value::Descriptors(&[y.raw]))];
        self.operations.push(Descriptor::of(&self.functions, RESHAPE_OPERATION, &parts)?);
        Ok(y)
    }
}
