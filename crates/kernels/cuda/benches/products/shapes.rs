//! The products that are compared and measured.

use std::fmt;

use device::{Orientation, Write};

/// The type of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    Single,
    Bf16,
}

/// A product of bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub name: &'static str,
    pub orientation: Orientation,
    /// Rows, columns, steps.
    pub sizes: [usize; 3],
    pub output: Output,
    pub write: Write,
    pub bias: Bias,
}

/// Whether the output has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    Absent,
    Present,
}

const fn shape(name: &'static str, orientation: Orientation, m: usize, n: usize, k: usize) -> Shape {
    let output = match orientation {
        Orientation::Nt | Orientation::Nn => Output::Bf16,
        Orientation::Tn => Output::Single,
    };
    Shape { name, orientation, sizes: [m, n, k], output, write: Write::Assign, bias: Bias::Absent }
}

const fn single(shape: Shape) -> Shape {
    Shape { output: Output::Single, ..shape }
}

const fn accumulated(shape: Shape) -> Shape {
    Shape { write: Write::Accumulate, ..shape }
}

const fn biased(shape: Shape) -> Shape {
    Shape { bias: Bias::Present, ..shape }
}

const fn added(shape: Shape) -> Shape {
    Shape { write: Write::Accumulate, bias: Bias::Present, ..shape }
}

use Orientation::{Nn, Nt, Tn};

/// Tiles that are not whole, and all that is added.
pub const EDGES: [Shape; 15] = [
    shape("edges", Nt, 1000, 1032, 200),
    shape("edges", Nn, 1000, 1032, 200),
    shape("edges", Tn, 1000, 1032, 200),
    added(shape("edges, added", Nt, 136, 264, 1096)),
    added(shape("edges, added", Nn, 136, 264, 1096)),
    added(shape("edges, added", Tn, 136, 264, 1096)),
    added(single(shape("edges, added", Nt, 257, 1004, 64))),
    added(single(shape("edges, added", Nn, 64, 48, 64))),
    biased(shape("edges, parts", Nt, 144, 320, 200)),
    single(biased(shape("edges, parts", Nn, 144, 320, 200))),
    accumulated(shape("edges, parts", Tn, 144, 320, 200)),
    shape("one stage", Tn, 128, 256, 64),
    shape("one block", Nn, 128, 256, 16),
    added(shape("pieces, added", Tn, 392, 520, 20_000)),
    shape("pieces", Tn, 392, 520, 20_000),
];

/// Products of a size, of layers of GPT-2 124M with 16 sequences of 1,024 tokens, of a Llama of 1.3 billion parameters
/// and of Llama 8B with 8,192 tokens. Gradients of weights are added to what is there, as after the first microbatch.
pub const SHAPES: [Shape; 41] = [
    shape("4096", Nt, 4096, 4096, 4096),
    shape("4096", Nn, 4096, 4096, 4096),
    shape("4096", Tn, 4096, 4096, 4096),
    biased(shape("gpt2 qkv", Nt, 16_384, 2304, 768)),
    shape("gpt2 qkv dx", Nn, 16_384, 768, 2304),
    shape("gpt2 qkv dw", Tn, 2304, 768, 16_384),
    accumulated(shape("gpt2 qkv dw", Tn, 2304, 768, 16_384)),
    biased(shape("gpt2 out", Nt, 16_384, 768, 768)),
    shape("gpt2 out dx", Nn, 16_384, 768, 768),
    shape("gpt2 out dw", Tn, 768, 768, 16_384),
    accumulated(shape("gpt2 out dw", Tn, 768, 768, 16_384)),
    shape("gpt2 up", Nt, 16_384, 3072, 768),
    biased(shape("gpt2 up", Nt, 16_384, 3072, 768)),
    shape("gpt2 up dx", Nn, 16_384, 768, 3072),
    accumulated(shape("gpt2 up dw", Tn, 3072, 768, 16_384)),
    biased(shape("gpt2 down", Nt, 16_384, 768, 3072)),
    shape("gpt2 down dx", Nn, 16_384, 3072, 768),
    shape("gpt2 down dw", Tn, 768, 3072, 16_384),
    accumulated(shape("gpt2 down dw", Tn, 768, 3072, 16_384)),
    single(shape("gpt2 logits", Nt, 2048, 50_304, 768)),
    shape("gpt2 logits dx", Nn, 2048, 768, 50_304),
    shape("gpt2 logits dw", Tn, 50_304, 768, 2048),
    accumulated(shape("gpt2 logits dw", Tn, 50_304, 768, 2048)),
    shape("llama 1b qkv", Nt, 8192, 6144, 2048),
    shape("llama 1b out", Nt, 8192, 2048, 2048),
    shape("llama 1b up", Nt, 8192, 11_008, 2048),
    shape("llama 1b up dx", Nn, 8192, 2048, 11_008),
    accumulated(shape("llama 1b up dw", Tn, 11_008, 2048, 8192)),
    shape("llama 1b down", Nt, 8192, 2048, 5504),
    shape("llama 1b down dx", Nn, 8192, 5504, 2048),
    accumulated(shape("llama 1b down dw", Tn, 2048, 5504, 8192)),
    single(shape("llama 1b logits", Nt, 2048, 32_000, 2048)),
    shape("llama 1b logits dx", Nn, 2048, 2048, 32_000),
    accumulated(shape("llama 1b logits dw", Tn, 32_000, 2048, 2048)),
    shape("llama 8b out", Nt, 8192, 4096, 4096),
    shape("llama 8b up", Nt, 8192, 28_672, 4096),
    shape("llama 8b down dx", Nn, 8192, 14_336, 4096),
    accumulated(shape("llama 8b down dw", Tn, 4096, 14_336, 8192)),
    single(shape("llama 8b logits", Nt, 2048, 128_256, 4096)),
    shape("llama 8b logits dx", Nn, 2048, 4096, 128_256),
    accumulated(shape("llama 8b logits dw", Tn, 128_256, 4096, 2048)),
];

impl Shape {
    /// Rows and columns of the factors as they are stored.
    pub fn factors(&self) -> [[usize; 2]; 2] {
        let [m, n, k] = self.sizes;
        match self.orientation {
            Nt => [[m, k], [n, k]],
            Nn => [[m, k], [k, n]],
            Tn => [[k, m], [k, n]],
        }
    }

    /// Operations, two per multiply-add.
    pub fn operations(&self) -> f64 {
        self.sizes.iter().map(|size| *size as f64).product::<f64>() * 2.0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, n, k] = self.sizes;
        let orientation = match self.orientation {
            Nt => "nt",
            Nn => "nn",
            Tn => "tn",
        };
        let output = match self.output {
            Output::Single => "f32",
            Output::Bf16 => "bf16",
        };
        let added = match (self.write, self.bias) {
            (Write::Assign, Bias::Absent) => "",
            (Write::Assign, Bias::Present) => ", bias",
            (Write::Accumulate, Bias::Absent) => ", accumulated",
            (Write::Accumulate, Bias::Present) => ", bias, accumulated",
        };
        write!(f, "{}: {orientation} {m} x {n} x {k} {output}{added}", self.name)
    }
}
