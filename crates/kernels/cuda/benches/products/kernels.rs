//! The kernels, packed and loaded, and their launches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cuda::code::{OPTIONS, compile_afresh};
use cuda::kernels::SOURCES;
use device::{Orientation, Write};
use gpu::{
    Arguments, DevicePointer, FunctionHandle, Gpu, LaunchShape, ModuleHandle, StreamHandle, TensorElement, TensorMap,
    TensorPromotion, TensorSwizzle, TensorTiles,
};
use nvidia::Search;
use nvidia::nvrtc::{Code, Compiler, Source, Target};

use crate::Failed;
use crate::shapes::{Bias, Output, Shape};

const COMPARE: &str = include_str!("compare.cu");
const TARGET: &str = "90a";
const NAMES: [&str; 3] = ["mat_mul_blocks", TOGETHER, IN_TURNS];
/// Sources of kernels whose warpgroups share each tile, and take tiles in turns.
const TOGETHER: &str = "mat_mul_wgmma";
const IN_TURNS: &str = "mat_mul_wgmma_turns";

/// Compiles the kernels into a folder.
pub fn pack(folder: &Path) -> Result<(), Failed> {
    let cuda = std::env::var_os("PLEACH_CUDA").ok_or("PLEACH_CUDA is not set")?;
    let compiler = Compiler::open(&Search::only([PathBuf::from(cuda)]))?;
    let target = Target::Cubin(TARGET.into());
    std::fs::create_dir_all(folder)?;
    for source in SOURCES.iter().filter(|source| NAMES.contains(&source.name)) {
        let compiled = compile_afresh(&compiler, source, &target)?;
        std::fs::write(folder.join(source.name), compiled.code.bytes())?;
    }
    let compiled = compiler.compile(&Source::new("compare.cu", COMPARE), &target, OPTIONS)?;
    std::fs::write(folder.join("compare"), compiled.code.bytes())?;
    Ok(())
}

/// The packed code of a name.
pub fn packed(folder: &Path, name: &str) -> Result<Code, Failed> {
    Ok(Code::Cubin(std::fs::read(folder.join(name))?))
}

/// PTX of a name, by NVRTC.
pub fn portable(name: &str) -> Result<Code, Failed> {
    let cuda = std::env::var_os("PLEACH_CUDA").ok_or("PLEACH_CUDA is not set")?;
    let compiler = Compiler::open(&Search::only([PathBuf::from(cuda)]))?;
    let target = Target::Ptx(TARGET.into());
    match SOURCES.iter().find(|source| source.name == name) {
        Some(source) => Ok(compile_afresh(&compiler, source, &target)?.code),
        None => Ok(compiler.compile(&Source::new("compare.cu", COMPARE), &target, OPTIONS)?.code),
    }
}

/// A tile of a product by warpgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub name: &'static str,
    /// Of its kernels.
    source: &'static str,
    cols: usize,
}

/// Stages, memory through which outputs pass, barriers, and room to begin at a multiple of 1024.
const SHARED_BYTES: u32 = (192 + 32 + 1 + 1) << 10;

impl Tile {
    const fn new(name: &'static str, cols: usize) -> Tile {
        Tile { name, source: TOGETHER, cols }
    }

    pub const ALL: [Tile; 6] = [
        Tile::new("256", 256),
        Tile::new("192", 192),
        Tile::new("160", 160),
        Tile::new("128", 128),
        Tile::new("64", 64),
        Tile { source: IN_TURNS, ..Tile::new("128 in turns", 128) },
    ];

    /// Whether it has a kernel.
    pub fn is_for(&self, orientation: Orientation) -> bool {
        self.cols != 160 || orientation == Orientation::Tn
    }

    /// Whether it adds pieces through the output.
    pub fn has_stored_pieces(&self) -> bool {
        self.cols > 160 || self.source == IN_TURNS
    }
}

pub struct Kernels {
    gpu: Arc<dyn Gpu>,
    /// By orientation and tile.
    tiles: Vec<Vec<Option<FunctionHandle>>>,
    /// By orientation.
    blocks: Vec<FunctionHandle>,
    compare: FunctionHandle,
}

/// The places of a product.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub a: DevicePointer,
    pub b: DevicePointer,
    pub bias: DevicePointer,
    pub out: DevicePointer,
}

fn name(orientation: Orientation) -> &'static str {
    match orientation {
        Orientation::Nt => "nt",
        Orientation::Nn => "nn",
        Orientation::Tn => "tn",
    }
}

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];

fn matrix(start: DevicePointer, rows: usize, cols: usize) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (word, to) in [start.0, rows as u64, cols as u64, cols as u64].into_iter().zip(bytes.chunks_exact_mut(8)) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The kernels that take the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Warpgroups,
    Warps,
}

/// The arguments of the output: bias, matrix, type and whether sums are added; before the type, of warpgroups, steps
/// and the type of the factors.
fn with_output(arguments: Arguments, shape: &Shape, places: &Places, kind: Kind) -> Arguments {
    let [m, n, k] = shape.sizes;
    let bias = match shape.bias {
        Bias::Absent => [0; 32],
        Bias::Present => matrix(places.bias, 1, n),
    };
    let arguments = arguments.with(&bias).with(&matrix(places.out, m, n));
    let arguments = match kind {
        Kind::Warpgroups => arguments.with(&(k as u32).to_le_bytes()).with(&0u32.to_le_bytes()),
        Kind::Warps => arguments,
    };
    let output: u32 = match shape.output {
        Output::Single => 0,
        Output::Bf16 => 1,
    };
    arguments.with(&output.to_le_bytes()).with(&u32::from(shape.write == Write::Accumulate).to_le_bytes())
}

impl Kernels {
    pub fn load(gpu: &Arc<dyn Gpu>, code: impl Fn(&str) -> Result<Code, Failed>) -> Result<Kernels, Failed> {
        let module = |name: &str| -> Result<ModuleHandle, Failed> { Ok(gpu.load(code(name)?.image())?) };
        let (together, in_turns, blocks) = (module(TOGETHER)?, module(IN_TURNS)?, module("mat_mul_blocks")?);
        let tile = |orientation, tile: &Tile| -> Result<Option<FunctionHandle>, Failed> {
            if !tile.is_for(orientation) {
                return Ok(None);
            }
            let name = format!("{}_{}_{}", tile.source, name(orientation), tile.cols);
            let function = gpu.function(if tile.source == IN_TURNS { in_turns } else { together }, &name)?;
            gpu.allow_shared(function, SHARED_BYTES)?;
            let facts = gpu.function_facts(function)?;
            if facts.local_bytes > 0 {
                println!("{name} spills: {facts:?}");
            }
            Ok(Some(function))
        };
        let tiles = |orientation| Tile::ALL.iter().map(|of| tile(orientation, of)).collect::<Result<Vec<_>, _>>();
        let of_blocks = |orientation| gpu.function(blocks, &format!("mat_mul_blocks_{}_bf16_128", name(orientation)));
        Ok(Kernels {
            tiles: ORIENTATIONS.into_iter().map(tiles).collect::<Result<_, _>>()?,
            blocks: ORIENTATIONS.into_iter().map(of_blocks).collect::<Result<_, _>>()?,
            compare: gpu.function(module("compare")?, "compare")?,
            gpu: Arc::clone(gpu),
        })
    }

    /// By `mma.sync`.
    pub fn in_blocks(&self, stream: StreamHandle, shape: &Shape, places: &Places) -> Result<(), Failed> {
        let [m, n, _] = shape.sizes;
        let [a, b] = shape.factors();
        let copied = 0u32.to_le_bytes();
        let arguments = Arguments::new()
            .with(&matrix(places.a, a[0], a[1]))
            .with(&copied)
            .with(&matrix(places.b, b[0], b[1]))
            .with(&copied);
        let arguments = with_output(arguments, shape, places, Kind::Warps);
        let grid = [m.div_ceil(128) as u32, n.div_ceil(128) as u32, 1];
        let launch = LaunchShape { grid, block: [256, 1, 1], shared_bytes: 0 };
        Ok(self.gpu.launch(stream, self.blocks[shape.orientation as usize], launch, &arguments)?)
    }

    fn map(
        &self,
        start: DevicePointer,
        [rows, cols]: [usize; 2],
        lanes: usize,
        has_lanes_in_rows: bool,
    ) -> Result<TensorMap, Failed> {
        let outer = if has_lanes_in_rows { 64 } else { lanes as u32 };
        Ok(self.gpu.tensor_map(&TensorTiles {
            element: TensorElement::Bf16,
            address: start,
            dims: vec![cols as u64, rows as u64],
            strides_bytes: vec![cols as u64 * 2],
            box_dims: vec![64, outer],
            swizzle: TensorSwizzle::Bytes128,
            promotion: TensorPromotion::Bytes256,
        })?)
    }

    /// The launch of a product by warpgroups.
    pub fn launch(&self, tile: &Tile, shape: &Shape, places: &Places) -> Result<(LaunchShape, Arguments), Failed> {
        let [m, n, _] = shape.sizes;
        let [a, b] = shape.factors();
        let a = self.map(places.a, a, 128, shape.orientation == Orientation::Tn)?;
        let b = self.map(places.b, b, tile.cols, shape.orientation != Orientation::Nt)?;
        let tiles = m.div_ceil(128) * n.div_ceil(tile.cols);
        let grid = [tiles.min(self.gpu.facts().multiprocessors as usize) as u32, 1, 1];
        let launch = LaunchShape { grid, block: [384, 1, 1], shared_bytes: SHARED_BYTES };
        let arguments = Arguments::new().with(a.bytes()).with(b.bytes());
        Ok((launch, with_output(arguments, shape, places, Kind::Warpgroups)))
    }

    /// Launches it.
    pub fn by_warpgroups(
        &self,
        stream: StreamHandle,
        tile: usize,
        orientation: Orientation,
        (shape, arguments): &(LaunchShape, Arguments),
    ) -> Result<(), Failed> {
        let function = self.tiles[orientation as usize][tile].ok_or("no such kernel")?;
        Ok(self.gpu.launch(stream, function, *shape, arguments)?)
    }

    /// Compares words of two places.
    pub fn compare(
        &self,
        stream: StreamHandle,
        places: [DevicePointer; 2],
        words: usize,
        result: DevicePointer,
    ) -> Result<(), Failed> {
        self.gpu.fill(stream, result, 0, 8)?;
        self.gpu.fill(stream, result.offset(8), 0xff, 8)?;
        let arguments = Arguments::new()
            .with(&places[0].0.to_le_bytes())
            .with(&places[1].0.to_le_bytes())
            .with(&(words as u64).to_le_bytes())
            .with(&result.0.to_le_bytes());
        Ok(self.gpu.launch(stream, self.compare, LaunchShape::linear(1024, 256), &arguments)?)
    }
}
