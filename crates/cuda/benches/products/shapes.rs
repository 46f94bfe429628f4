//! The products that are compared and measured.

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

const fn added(shape: Shape) -> Shape {
    Shape { write: Write::Accumulate, bias: Bias::Present, ..shape }
}

use Orientation::{Nn, Nt, Tn};

/// Tiles that are not whole, and all that is added.
pub const EDGES: [Shape; 12] = [
    shape("edges", Nt, 1000, 1032, 200),
    shape("edges", Nn, 1000, 1032, 200),
    shape("edges", Tn, 1000, 1032, 200),
    added(shape("edges, added", Nt, 136, 264, 1096)),
    added(shape("edges, added", Nn, 136, 264, 1096)),
    added(shape("edges, added", Tn, 136, 264, 1096)),
    added(single(shape("edges, added", Nt, 257, 1004, 64))),
    added(single(shape("edges, added", Nn, 64, 48, 64))),
    shape("one stage", Tn, 128, 256, 64),
    shape("one block", Nn, 128, 256, 16),
    added(shape("pieces, added", Tn, 392, 520, 20_000)),
    shape("pieces", Tn, 392, 520, 20_000),
];

/// Products of a size, of layers of GPT-2 124M with 16 sequences of 1,024 tokens, and of Llama 8B with 8,192 tokens.
pub const SHAPES: [Shape; 30] = [
    shape("4096", Nt, 4096, 4096, 4096),
    shape("4096", Nn, 4096, 4096, 4096),
    shape("4096", Tn, 4096, 4096, 4096),
    shape("8192", Nt, 8192, 8192, 8192),
    shape("8192", Nn, 8192, 8192, 8192),
    shape("8192", Tn, 8192, 8192, 8192),
    shape("gpt2 qkv", Nt, 16_384, 2304, 768),
    shape("gpt2 qkv dx", Nn, 16_384, 768, 2304),
    shape("gpt2 qkv dw", Tn, 2304, 768, 16_384),
    shape("gpt2 out", Nt, 16_384, 768, 768),
    shape("gpt2 out dx", Nn, 16_384, 768, 768),
    shape("gpt2 out dw", Tn, 768, 768, 16_384),
    shape("gpt2 up", Nt, 16_384, 3072, 768),
    shape("gpt2 up dx", Nn, 16_384, 768, 3072),
    shape("gpt2 up dw", Tn, 3072, 768, 16_384),
    shape("gpt2 down", Nt, 16_384, 768, 3072),
    shape("gpt2 down dx", Nn, 16_384, 3072, 768),
    shape("gpt2 down dw", Tn, 768, 3072, 16_384),
    single(shape("gpt2 logits", Nt, 16_384, 50_304, 768)),
    shape("gpt2 logits dx", Nn, 16_384, 768, 50_304),
    shape("gpt2 logits dw", Tn, 50_304, 768, 16_384),
    shape("llama qkv", Nt, 8192, 6144, 4096),
    shape("llama out", Nt, 8192, 4096, 4096),
    shape("llama up", Nt, 8192, 28_672, 4096),
    shape("llama up dx", Nn, 8192, 4096, 28_672),
    shape("llama up dw", Tn, 28_672, 4096, 8192),
    shape("llama down", Nt, 8192, 4096, 14_336),
    shape("llama down dx", Nn, 8192, 14_336, 4096),
    shape("llama down dw", Tn, 4096, 14_336, 8192),
    shape("llama out dw", Tn, 4096, 4096, 8192),
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
