//! Speed of a layer of experts next to a dense layer of the same active size: `cargo bench -p cpu --bench experts`.
//!
//! Prints milliseconds and GFLOP/s (two per multiply-add) of each step, the best of several runs, both layers in turns,
//! where the rows of experts are equal, and where the first expert has 1.5 and 3 times the mean. `-- THREADS` computes
//! with as many threads. `-- steps EXPERTS PER_TOKEN WIDTH SHARE THREADS NUMBERS` does one step of both layers for each
//! line of standard input, as one side of `bench/compare/experts.py`; NUMBERS is `fp32`, `pairs` (fp32 in the order of
//! AMX) or `bf16`.

use std::sync::Arc;
use std::time::Instant;

use config::{Activation, Products, RouterScores, RouterWeights, Routing};
use cpu::CpuDevice;
use device::{Arena, Device, Dtype, ExpertOp, ExpertRows, Frame, Op, Orientation, Stream, Tensor, Write};

const TOKENS: usize = 2048;
const HIDDEN: usize = 512;
const ARENA_BYTES: usize = 1 << 30;
const ACTIVATION: Activation = Activation::SwiGlu;
const RUNS: usize = 5;

/// Experts, those of a token, and the width of one.
const LAYERS: [[usize; 3]; 2] = [[8, 2, 1792], [64, 8, 256]];

/// A layer of experts: their number, those of a token, the width of one, and the rows of the first over the mean.
#[derive(Clone, Copy)]
struct Layer {
    experts: usize,
    per_token: usize,
    width: usize,
    share: f64,
}

/// The type of activations and weights, and the order of sums in products.
#[derive(Clone, Copy)]
struct Numbers {
    stored: Dtype,
    products: Products,
}

impl Numbers {
    const FP32: Numbers = Numbers { stored: Dtype::F32, products: Products::Chained };

    fn of_name(name: &str) -> Option<Numbers> {
        match name {
            "fp32" => Some(Numbers::FP32),
            "pairs" => Some(Numbers { stored: Dtype::F32, products: Products::Pairs }),
            "bf16" => Some(Numbers { stored: Dtype::Bf16, products: Products::Pairs }),
            _ => None,
        }
    }
}

struct Bench {
    device: CpuDevice,
    frame: Frame,
    stored: Dtype,
}

impl Bench {
    fn new(threads: usize, numbers: Numbers) -> Bench {
        let arena = Arc::new(Arena::new(ARENA_BYTES).expect("memory"));
        let device = CpuDevice::new(arena).expect("a device").with_products(numbers.products);
        let device = device.with_threads(threads, &[]).expect("threads");
        Bench { device, frame: Frame::new(0, ARENA_BYTES), stored: numbers.stored }
    }

    /// Values of single precision: logits, weights of choices, and gradients of parameters.
    fn singles(&self, rows: usize, cols: usize) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, Dtype::F32);
        let values: Vec<f32> = (0..tensor.len()).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect();
        self.device.write(tensor, bytemuck::cast_slice(&values)).expect("in the arena");
        tensor
    }

    /// Activations and weights of the model.
    fn reals(&self, rows: usize, cols: usize) -> Tensor {
        let tensor = self.frame.tensor(rows, cols, self.stored);
        self.frame.scoped(|| {
            let x = self.singles(rows, cols);
            self.submit(&Op::Copy { from: x, to: tensor });
        });
        tensor
    }

    fn ints(&self, rows: usize, values: &[i32]) -> Tensor {
        let tensor = self.frame.tensor(rows, values.len() / rows, Dtype::I32);
        self.device.write(tensor, bytemuck::cast_slice(values)).expect("in the arena");
        tensor
    }

    fn submit(&self, op: &Op) {
        self.device.submit(Stream::Compute, op).expect("fitting operands");
    }

    /// Milliseconds of `op`.
    fn time_ms(&self, op: &Op) -> f64 {
        let start = Instant::now();
        self.submit(op);
        start.elapsed().as_secs_f64() * 1e3
    }
}

/// Choices in which the first expert has `share` times the mean, and the others equally many.
fn choices(experts: usize, per_token: usize, share: f64) -> Vec<i32> {
    let to_first = (share * (TOKENS * per_token) as f64 / experts as f64) as usize;
    let mut next = 0;
    let mut choice = vec![];
    for token in 0..TOKENS {
        let mut chosen = vec![];
        if token * to_first / TOKENS != (token + 1) * to_first / TOKENS {
            chosen.push(0);
        }
        while chosen.len() < per_token {
            chosen.push(1 + next % (experts as i32 - 1));
            next += 1;
        }
        chosen.sort_unstable();
        choice.extend(chosen);
    }
    choice
}

/// Steps of the forward and backward passes, each with a name.
fn experts(on: &Bench, Layer { experts, per_token, width, share }: Layer) -> Vec<(&'static str, Op)> {
    let room = TOKENS * per_token;
    let routing =
        Routing { scores: RouterScores::Softmax, weights: RouterWeights::Normalised, scale: 1.0, groups: None };
    let (logits, dlogits) = (on.singles(TOKENS, experts), on.singles(TOKENS, experts));
    let chosen = on.ints(TOKENS, &vec![0; room]);
    let [weights, dweights] = [(); 2].map(|()| on.singles(TOKENS, per_token));
    let choice = on.ints(TOKENS, &choices(experts, per_token, share));
    let rows = ExpertRows {
        places: on.ints(TOKENS, &vec![0; room]),
        slots: on.ints(1, &vec![0; room]),
        offsets: on.ints(1, &vec![0; experts + 1]),
        expected: room,
    };
    let [x, dy, sum, dx] = [(); 4].map(|()| on.reals(TOKENS, HIDDEN));
    let [gathered, out, dx_rows] = [(); 3].map(|()| on.reals(room, HIDDEN));
    let [hidden, dhidden] = [(); 2].map(|()| on.reals(room, 2 * width));
    let [y, dy_rows] = [(); 2].map(|()| on.reals(room, width));
    let (up, dup) = (on.reals(experts * 2 * width, HIDDEN), on.singles(experts * 2 * width, HIDDEN));
    let (down, ddown) = (on.reals(experts * HIDDEN, width), on.singles(experts * HIDDEN, width));
    let (router, drouter) = (on.reals(experts, HIDDEN), on.singles(experts, HIDDEN));
    let map = |orientation, a, b, out, write| Op::MatMul { orientation, a, b, bias: None, out, write };
    let product = |orientation, a, b, out| {
        let (tokens, write) = (None, Write::Assign);
        ExpertOp::MatMul { orientation, a, b, out, rows, tokens, write }
    };
    let activation = ACTIVATION;
    let combine = |y, weights, out| ExpertOp::CombineRows { y, weights, rows, out, write: Write::Assign };
    let backward =
        ExpertOp::ActivationBackward { activation, x: hidden, dy: dy_rows, weights, dx: dhidden, y, dweights, rows };
    let steps = [
        ("route", ExpertOp::Route { logits, correction: None, routing, choice: chosen, weights }),
        ("group", ExpertOp::GroupRows { choice, first_expert: 0, rows }),
        ("gather", ExpertOp::GatherRows { from: x, rows, to: gathered }),
        ("up", product(Orientation::Nt, gathered, up, hidden)),
        ("activation", ExpertOp::Activation { activation, x: hidden, y, rows }),
        ("down", product(Orientation::Nt, y, down, out)),
        ("combine", combine(out, Some(weights), sum)),
        ("gather", ExpertOp::GatherRows { from: dy, rows, to: out }),
        ("d down", product(Orientation::Nn, out, down, dy_rows)),
        ("d activation", backward),
        ("route backward", ExpertOp::RouteBackward { logits, routing, choice, dweights, dlogits }),
        ("d up", product(Orientation::Nn, dhidden, up, dx_rows)),
        ("combine", combine(dx_rows, None, dx)),
        ("dW up", product(Orientation::Tn, dhidden, gathered, dup)),
        ("dW down", product(Orientation::Tn, out, y, ddown)),
    ];
    let products_of_router = [
        ("router", map(Orientation::Nt, x, router, logits, Write::Assign)),
        ("d router", map(Orientation::Nn, dlogits, router, dx, Write::Accumulate)),
        ("dW router", map(Orientation::Tn, dlogits, x, drouter, Write::Assign)),
    ];
    steps.into_iter().map(|(name, op)| (name, op.into())).chain(products_of_router).collect()
}

/// The steps of a dense layer of `width`.
fn dense(on: &Bench, width: usize) -> Vec<(&'static str, Op)> {
    let [x, dy, out, dx] = [(); 4].map(|()| on.reals(TOKENS, HIDDEN));
    let [hidden, dhidden] = [(); 2].map(|()| on.reals(TOKENS, 2 * width));
    let [y, dy_rows] = [(); 2].map(|()| on.reals(TOKENS, width));
    let (up, dup) = (on.reals(2 * width, HIDDEN), on.singles(2 * width, HIDDEN));
    let (down, ddown) = (on.reals(HIDDEN, width), on.singles(HIDDEN, width));
    let product = |orientation, a, b, out| Op::MatMul { orientation, a, b, bias: None, out, write: Write::Assign };
    let activation = ACTIVATION;
    vec![
        ("up", product(Orientation::Nt, x, up, hidden)),
        ("activation", Op::Activation { activation, x: hidden, y }),
        ("down", product(Orientation::Nt, y, down, out)),
        ("d down", product(Orientation::Nn, dy, down, dy_rows)),
        ("d activation", Op::ActivationBackward { activation, x: hidden, dy: dy_rows, dx: dhidden, y }),
        ("d up", product(Orientation::Nn, dhidden, up, dx)),
        ("dW up", product(Orientation::Tn, dhidden, x, dup)),
        ("dW down", product(Orientation::Tn, dy, y, ddown)),
    ]
}

/// Prints the best of each step, the sums, and the speed of products.
fn print(title: &str, steps: &[(&'static str, Op)], best_ms: &[f64]) -> [f64; 2] {
    println!("{title}");
    let (mut products_ms, mut products, mut total_ms) = (0.0, 0.0, 0.0);
    for ((name, op), ms) in steps.iter().zip(best_ms) {
        let gflop = 2e-9 * op.cost().multiply_adds as f64;
        total_ms += ms;
        if gflop > 0.0 {
            products_ms += ms;
            products += gflop;
            println!("  {name:14} {ms:8.2} ms {:7.1} GFLOP/s", 1e3 * gflop / ms);
        } else {
            println!("  {name:14} {ms:8.2} ms");
        }
    }
    let [products_speed, total_speed] = [products_ms, total_ms].map(|ms| 1e3 * products / ms);
    println!(
        "  products {products_ms:.1} ms, {products_speed:.1} GFLOP/s; layer {total_ms:.1} ms, {total_speed:.1} GFLOP/s"
    );
    [products_speed, total_speed]
}

/// The steps of a layer of experts, and of the dense layer of the same active size.
fn both(on: &Bench, layer: Layer) -> [Vec<(&'static str, Op)>; 2] {
    [experts(on, layer), dense(on, layer.per_token * layer.width)]
}

/// For each line of standard input a forward and a backward pass of both layers, and their seconds as JSON.
fn step_by_step(layer: Layer, threads: usize, numbers: Numbers) {
    let on = Bench::new(threads, numbers);
    let [experts, dense] = both(&on, layer);
    println!("{{\"ready\": \"pleach\"}}");
    for _ in std::io::stdin().lines() {
        let [experts, dense] =
            [&experts, &dense].map(|ops| ops.iter().map(|(_, op)| on.time_ms(op)).sum::<f64>() / 1e3);
        println!("{{\"seconds\": {experts}, \"dense\": {dense}}}");
    }
}

/// Prints both layers, the best of several runs in turns.
fn compare(layer: Layer, threads: usize) {
    let on = Bench::new(threads, Numbers::FP32);
    let both = both(&on, layer);
    let mut best = both.each_ref().map(|steps| vec![f64::INFINITY; steps.len()]);
    for _ in 0..RUNS {
        for (steps, best) in both.iter().zip(&mut best) {
            for ((_, op), best) in steps.iter().zip(best) {
                *best = best.min(on.time_ms(op));
            }
        }
    }
    let Layer { experts, per_token, width, share } = layer;
    let title = format!(
        "{experts} experts of {width}, {per_token} a token, first expert {share} x the mean, {threads} threads"
    );
    let of_experts = print(&title, &both[0], &best[0]);
    let of_dense = print(&format!("dense of {}", per_token * width), &both[1], &best[1]);
    println!(
        "  experts / dense: products {:.2}, layer {:.2}\n",
        of_experts[0] / of_dense[0],
        of_experts[1] / of_dense[1]
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    match &arguments.iter().map(String::as_str).collect::<Vec<&str>>()[..] {
        ["steps", experts, per_token, width, share, threads, numbers] => {
            let [experts, per_token, width, threads] = [experts, per_token, width, threads].map(|text| number(text));
            let layer = Layer { experts, per_token, width, share: share.parse().expect("a ratio") };
            step_by_step(layer, threads, Numbers::of_name(numbers).expect("fp32, pairs or bf16"));
        }
        rest => {
            let threads = rest.first().map_or(1, |text| number(text));
            for [experts, per_token, width] in LAYERS {
                for share in [1.0, 1.5, 3.0] {
                    compare(Layer { experts, per_token, width, share }, threads);
                }
            }
        }
    }
}
