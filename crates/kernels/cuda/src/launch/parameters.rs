//! The parameters of a kernel as bytes, in the order of its declaration. `kernels/tensor.cuh` and `kernels/philox.cuh`
//! declare the structs.

use config::Products;
use device::{DeviceError, DropoutKey, Dtype, Tensor};
use gpu::{Arguments, Capability, DevicePointer};

use crate::code::CompiledSource;
use crate::kernels::Instructions;

/// A rank's memory on its GPU, and what launches choose their shapes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// The first byte of the arena.
    pub arena: DevicePointer,
    /// Its size.
    pub arena_bytes: usize,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Its compute capability.
    pub capability: Capability,
    /// The order in which products add their terms.
    pub products: Products,
    /// The kernels that were loaded.
    pub code: Code,
    /// The tile that products by warpgroups take where it has a kernel for them, in place of the one that is estimated
    /// to be the fastest.
    pub tile: Option<Tile>,
}

/// Which kernels were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// Those that every GPU runs.
    Common,
    /// In addition those of compute capability 9.0.
    Of90,
}

impl Code {
    /// The kernels of these sources.
    pub fn of(sources: &[CompiledSource]) -> Code {
        let has_of_90 = sources.iter().any(|compiled| compiled.source.instructions == Instructions::Of90);
        if has_of_90 { Code::Of90 } else { Code::Common }
    }
}

/// A tensor in the arena, as kernels get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    start: u64,
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    row_stride: usize,
}

impl Place {
    /// The same elements without gaps as one row.
    pub fn as_vector(self) -> Place {
        let len = self.rows * self.cols;
        Place { rows: 1, cols: len, row_stride: len, ..self }
    }

    /// Whether each row begins at a multiple of `bytes` in memory.
    pub fn has_rows_at_multiples(&self, bytes: usize, element_bytes: usize) -> bool {
        let is_multiple = |place: usize| place.is_multiple_of(bytes);
        is_multiple(self.start as usize) && (self.rows <= 1 || is_multiple(self.row_stride * element_bytes))
    }

    /// The address of the first element.
    pub fn address(&self) -> DevicePointer {
        DevicePointer(self.start)
    }

    /// Elements from one row to the next; a single row may have any distance.
    pub fn stride(&self) -> usize {
        self.row_stride.max(self.cols)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.rows * self.cols == 0
    }

    /// In place of a tensor that the operation does not have.
    pub const NONE: Place = Place { start: 0, rows: 0, cols: 0, row_stride: 0 };
}

impl Site {
    /// A matrix of `dtype`, rows at any distance.
    pub fn matrix(&self, tensor: Tensor, dtype: Dtype) -> Result<Place, DeviceError> {
        tensor.holds(dtype)?;
        self.place(tensor)
    }

    /// A dense tensor of `dtype`.
    pub fn dense(&self, tensor: Tensor, dtype: Dtype) -> Result<Place, DeviceError> {
        tensor.is_dense_of(dtype)?;
        self.place(tensor)
    }

    /// A dense tensor of `dtype`, or none.
    pub fn optional_dense(&self, tensor: Option<Tensor>, dtype: Dtype) -> Result<Place, DeviceError> {
        tensor.map_or(Ok(Place::NONE), |tensor| self.dense(tensor, dtype))
    }

    /// A matrix of `dtype`, or none.
    pub fn optional_matrix(&self, tensor: Option<Tensor>, dtype: Dtype) -> Result<Place, DeviceError> {
        tensor.map_or(Ok(Place::NONE), |tensor| self.matrix(tensor, dtype))
    }

    fn place(&self, tensor: Tensor) -> Result<Place, DeviceError> {
        tensor.inside(self.arena_bytes)?;
        let Tensor { offset_bytes, rows, cols, row_stride, dtype: _ } = tensor;
        Ok(Place { start: self.arena.offset(offset_bytes).0, rows, cols, row_stride })
    }
}

/// The parameters of one launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    arguments: Arguments,
    /// A bit for each that changes from step to step.
    changing: u64,
}

impl Parameters {
    /// None yet.
    pub fn new() -> Parameters {
        Parameters::default()
    }

    /// `Matrix<E>`
    pub fn place(self, place: Place) -> Parameters {
        let Place { start, rows, cols, row_stride } = place;
        let words = [start, rows as u64, cols as u64, row_stride as u64];
        self.with(&words.map(u64::to_le_bytes).concat())
    }

    /// `DropoutMask`
    pub fn dropout(self, key: DropoutKey) -> Parameters {
        let [key0, key1] = philox::key_of_seed(key.seed);
        let kept = 1.0 / (1.0 - key.probability);
        let words = [
            key0,
            key1,
            key.step,
            key.site,
            key.first_token as u32,
            key.first_channel,
            philox::probability_threshold(key.probability),
            kept.to_bits(),
        ];
        self.with(&words.map(u32::to_le_bytes).concat()).changing()
    }

    /// The parameter that was appended last changes from step to step. Graphs of launches that differ elsewhere are
    /// different graphs.
    pub fn changing(self) -> Parameters {
        let last = self.arguments.values().len().saturating_sub(1);
        Parameters { changing: self.changing | 1 << last, ..self }
    }

    /// A struct of numbers of 32 bits, given by their bits.
    pub fn words(self, words: &[u32]) -> Parameters {
        self.with(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    }

    /// Appends a `u32`.
    pub fn u32(self, value: u32) -> Parameters {
        self.with(&value.to_le_bytes())
    }

    /// Appends an `i32`.
    pub fn i32(self, value: i32) -> Parameters {
        self.with(&value.to_le_bytes())
    }

    /// Appends an `i64`.
    pub fn i64(self, value: i64) -> Parameters {
        self.with(&value.to_le_bytes())
    }

    /// `u32`, 1 where it holds.
    pub fn flag(self, holds: bool) -> Parameters {
        self.u32(u32::from(holds))
    }

    /// Appends a `u64`.
    pub fn u64(self, value: u64) -> Parameters {
        self.with(&value.to_le_bytes())
    }

    /// `float`
    pub fn f32(self, value: f32) -> Parameters {
        self.with(&value.to_le_bytes())
    }

    /// `double`
    pub fn f64(self, value: f64) -> Parameters {
        self.with(&value.to_le_bytes())
    }

    /// As a launch takes them, with a bit for each that changes from step to step.
    pub fn into_arguments(self) -> (Arguments, u64) {
        (self.arguments, self.changing)
    }

    fn with(self, bytes: &[u8]) -> Parameters {
        Parameters { arguments: self.arguments.with(bytes), ..self }
    }
}

/// The tile of a product and who multiplies it. By warpgroups it has 128 rows, and these columns; both warpgroups
/// multiply it, or one while the other one stores its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tile {
    Of256,
    Of192,
    Of160,
    Of128,
    Of64,
    InTurnsOf128,
    /// With the activation that follows, or its gradient, before a tile is stored: in turns, or by warps. Products
    /// alone have no such kernel.
    Fused,
    /// By warps, with 128 rows and columns, or 64 where there are few. GPUs without warpgroups have no other one for
    /// products alone.
    ByWarps,
}
