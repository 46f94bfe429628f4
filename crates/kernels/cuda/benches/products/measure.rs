//! Comparison of bits, and measurement in turns.

use std::sync::Arc;

use device::{Orientation, Write};
use gpu::{
    BiasForm, EventHandle, FactorForm, Gpu, MatrixElement, MatrixPlaces, MatrixProduct, ProductLibrary as _,
    ProductLimits, ResultForm, SumForm,
};
use nvidia::cublaslt::Handle;

use crate::Failed;
use crate::kernels::{Kernels, Places, Tile};
use crate::memory::{Memory, WORKSPACE_BYTES};
use crate::shapes::{Bias, Output, Shape};

/// Each is measured this many times.
const TURNS: usize = 5;
/// Seconds of launches in a turn, about.
const SECONDS: f64 = 0.006;

pub struct Bench {
    pub gpu: Arc<dyn Gpu>,
    pub kernels: Kernels,
    pub peer: Option<Handle>,
    pub memory: Memory,
}

/// Submits a product once.
type Submit<'a> = Box<dyn Fn() -> Result<(), Failed> + 'a>;

impl Bench {
    fn places(&self) -> Places {
        let Memory { a, b, bias, out, .. } = self.memory;
        Places { a, b, bias, out }
    }

    /// Compares the bits of every tile with those of `mma.sync`.
    pub fn compare(&self, shape: Shape) -> Result<(), Failed> {
        let Shape { orientation, sizes: [m, n, _], .. } = shape;
        let bytes = match shape.output {
            Output::Single => m * n * 4,
            Output::Bf16 => m * n * 2,
        };
        let stream = self.memory.stream;
        let named = |what: &str, error: Failed| -> Failed { format!("{shape}, {what}: {error}").into() };
        self.memory.begin(self.memory.expected, bytes)?;
        self.kernels.in_blocks(stream, &shape, &Places { out: self.memory.expected, ..self.places() })?;
        self.gpu.synchronize(stream).map_err(|error| named("mma.sync", error.into()))?;
        for (number, tile) in Tile::ALL.iter().enumerate() {
            // Pieces that are added through memory are added in single precision.
            let is_rounded = shape.output == Output::Bf16 && shape.sizes[2] > 8192;
            let is_rounded = is_rounded && orientation == Orientation::Tn && tile.has_stored_pieces();
            if is_rounded || !tile.is_for(orientation) {
                continue;
            }
            self.memory.begin(self.memory.out, bytes)?;
            let launch = self.kernels.launch(tile, &shape, &self.places())?;
            self.kernels.by_warpgroups(stream, number, orientation, &launch)?;
            self.gpu.synchronize(stream).map_err(|error| named(tile.name, error.into()))?;
            self.kernels.compare(stream, [self.memory.expected, self.memory.out], bytes / 4, self.memory.result)?;
            let [count, first] = self.memory.differences()?;
            if count > 0 {
                let word = first as usize * 4 / (bytes / m / n);
                let place = format!("row {}, column {}", word / n, word % n);
                println!("{shape}, {}: {count} words DIFFER, the first at {place}", tile.name);
            }
        }
        Ok(())
    }

    /// Compares bits, and prints the time of every tile and of cuBLASLt, a line each: with unbroken sums, and as runs
    /// with `products = "device"` call it.
    pub fn measure(&self, shape: Shape) -> Result<(), Failed> {
        self.compare(shape)?;
        let stream = self.memory.stream;
        let places = self.places();
        let mut all: Vec<(&str, Submit<'_>)> = vec![];
        if let Some(peer) = &self.peer {
            all.push(("cuBLASLt", self.peer_submit(peer, shape, SumForm::Unbroken)?));
            all.push(("cuBLASLt of a run", self.peer_submit(peer, shape, SumForm::Split)?));
        }
        let orientation = shape.orientation;
        for (number, tile) in Tile::ALL.iter().enumerate().filter(|(_, tile)| tile.is_for(orientation)) {
            let launch = self.kernels.launch(tile, &shape, &places)?;
            all.push((tile.name, Box::new(move || self.kernels.by_warpgroups(stream, number, orientation, &launch))));
        }
        let mut times = vec![vec![]; all.len()];
        let counts: Vec<usize> = all
            .iter()
            .map(|(_, submit)| {
                let once = self.seconds(submit, 1)?;
                Ok((SECONDS / once).clamp(1.0, 200.0) as usize)
            })
            .collect::<Result<_, Failed>>()?;
        for _ in 0..TURNS {
            for (((_, submit), times), count) in all.iter().zip(&mut times).zip(&counts) {
                times.push(self.seconds(submit, *count)? / *count as f64);
            }
        }
        for ((name, _), times) in all.iter().zip(&mut times) {
            times.sort_by(f64::total_cmp);
            let seconds = times[TURNS / 2];
            println!("{shape}, {name}: {:.1} us, {:.0} TFLOP/s", seconds * 1e6, shape.operations() / seconds / 1e12);
        }
        Ok(())
    }

    /// All that a shape adds is added.
    fn peer_submit<'a>(&'a self, peer: &'a Handle, shape: Shape, sums: SumForm) -> Result<Submit<'a>, Failed> {
        let [m, n, k] = shape.sizes.map(|size| size as u64);
        let result = match shape.output {
            Output::Single => MatrixElement::F32,
            Output::Bf16 => MatrixElement::Bf16,
        };
        let forms = match shape.orientation {
            Orientation::Nt => [FactorForm::Plain, FactorForm::Transposed],
            Orientation::Nn => [FactorForm::Plain, FactorForm::Plain],
            Orientation::Tn => [FactorForm::Transposed, FactorForm::Plain],
        };
        let dense = MatrixProduct::dense([m, n, k], [MatrixElement::Bf16, result], forms);
        let write = match shape.write {
            Write::Assign => ResultForm::Assigned,
            Write::Accumulate => ResultForm::Accumulated,
        };
        let bias = match shape.bias {
            Bias::Absent => BiasForm::Absent,
            Bias::Present => BiasForm::Present,
        };
        let product = MatrixProduct { write, bias, ..dense };
        let limits = ProductLimits { workspace_bytes: WORKSPACE_BYTES, sums, most: 1 };
        let algorithms = peer.algorithms(&product, limits)?;
        let algorithm = *algorithms.first().ok_or("cuBLASLt has no algorithm")?;
        let Memory { a, b, bias, out: d, .. } = self.memory;
        let places = MatrixPlaces { a, b, d, bias };
        let (workspace, stream) = (self.memory.workspace, self.memory.stream);
        Ok(Box::new(move || Ok(peer.multiply(stream, &product, &algorithm, places, workspace)?)))
    }

    /// Seconds of `count` products.
    fn seconds(&self, submit: &Submit<'_>, count: usize) -> Result<f64, Failed> {
        let stream = self.memory.stream;
        let [from, to]: [EventHandle; 2] = [self.gpu.create_event()?, self.gpu.create_event()?];
        submit()?;
        self.gpu.record(from, stream)?;
        for _ in 0..count {
            submit()?;
        }
        self.gpu.record(to, stream)?;
        self.gpu.synchronize(stream)?;
        let elapsed = f64::from(self.gpu.elapsed_ms(from, to)?) / 1e3;
        self.gpu.destroy_event(from)?;
        self.gpu.destroy_event(to)?;
        Ok(elapsed)
    }
}
