//! GEMM against its definition in f64, against itself on other instruction sets and in other cuts, and against a peer.

use cpu::gemm::{K_BLOCK, Operand, Orientation, PackingBuffers, Product, Write, gemm};
use cpu::instruction_set::InstructionSet;
use cpu::meter::Meter;
use cpu::view::{MatMut, MatRef};

const ORIENTATIONS: [Orientation; 3] = [Orientation::Nt, Orientation::Nn, Orientation::Tn];

/// Values in -1..1 from a linear congruential generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.next() as f64 / (1u64 << 30) as f64 - 1.0) as f32).collect()
    }
}

/// One product with its operands in memory.
struct Case {
    orientation: Orientation,
    m: usize,
    n: usize,
    k: usize,
    /// Elements between the rows of each matrix.
    gap: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    bias: Option<Vec<f32>>,
    write: Write,
}

impl Case {
    fn new(orientation: Orientation, sizes: (usize, usize, usize), gap: usize, random: &mut Random) -> Self {
        let (m, n, k) = sizes;
        let len = |rows: usize, cols: usize| rows * (cols + gap);
        let (a_rows, a_cols) = if orientation == Orientation::Tn { (k, m) } else { (m, k) };
        let (b_rows, b_cols) = if orientation == Orientation::Nt { (n, k) } else { (k, n) };
        Self {
            orientation,
            m,
            n,
            k,
            gap,
            a: random.values(len(a_rows, a_cols)),
            b: random.values(len(b_rows, b_cols)),
            c: random.values(len(m, n)),
            bias: (random.below(2) == 0).then(|| random.values(n)),
            write: if random.below(2) == 0 { Write::Assign } else { Write::Accumulate },
        }
    }

    fn a_at(&self, row: usize, step: usize) -> f32 {
        match self.orientation {
            Orientation::Nt | Orientation::Nn => self.a[row * (self.k + self.gap) + step],
            Orientation::Tn => self.a[step * (self.m + self.gap) + row],
        }
    }

    fn b_at(&self, step: usize, column: usize) -> f32 {
        match self.orientation {
            Orientation::Nt => self.b[column * (self.k + self.gap) + step],
            Orientation::Nn | Orientation::Tn => self.b[step * (self.n + self.gap) + column],
        }
    }

    fn product(&self) -> Product<'_> {
        let (m, n, k) = (self.m, self.n, self.k);
        let (a_rows, a_cols) = if self.orientation == Orientation::Tn { (k, m) } else { (m, k) };
        let (b_rows, b_cols) = if self.orientation == Orientation::Nt { (n, k) } else { (k, n) };
        Product {
            orientation: self.orientation,
            a: MatRef::new(&self.a, a_rows, a_cols, a_cols + self.gap).into(),
            b: MatRef::new(&self.b, b_rows, b_cols, b_cols + self.gap).into(),
        }
    }

    /// The whole buffer of C after the product.
    fn run(&self, instruction_set: InstructionSet, packing: &mut PackingBuffers) -> Vec<f32> {
        let meter = Meter::new();
        let mut c = self.c.clone();
        let view = MatMut::new(&mut c, self.m, self.n, self.n + self.gap);
        gemm(self.product(), view, self.write, self.bias.as_deref(), packing, instruction_set, &meter);
        assert_eq!(meter.multiply_adds(), (self.m * self.n * self.k) as u64);
        c
    }

    /// Compares with the definition in f64, within the worst case written in the kernel's documentation.
    fn assert_close(&self, c: &[f32]) {
        let roundings = self.k.min(K_BLOCK) + self.k.div_ceil(K_BLOCK) + 1;
        let unit = roundings as f64 * f64::from(f32::EPSILON) / 2.0;
        let relative = unit / (1.0 - unit);
        for row in 0..self.m {
            for column in 0..self.n {
                let at = row * (self.n + self.gap) + column;
                let old = match self.write {
                    Write::Assign => 0.0,
                    Write::Accumulate => f64::from(self.c[at]),
                };
                let bias = self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[column]));
                let (mut exact, mut size) = (old + bias, old.abs() + bias.abs());
                for step in 0..self.k {
                    let product = f64::from(self.a_at(row, step)) * f64::from(self.b_at(step, column));
                    exact += product;
                    size += product.abs();
                }
                let error = (f64::from(c[at]) - exact).abs();
                assert!(error <= relative * size, "{}: ({row}, {column}) is off by {error}", self.name());
            }
        }
    }

    fn name(&self) -> String {
        format!("{:?} m {} n {} k {} gap {} {:?}", self.orientation, self.m, self.n, self.k, self.gap, self.write)
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Sizes around the tiles' edges and the blocks' edges, and some drawn at random.
fn shapes(random: &mut Random) -> Vec<(usize, usize, usize)> {
    let mut shapes = vec![(1, 1, 1), (1, 1, 0), (3, 5, 0), (14, 32, 16), (15, 33, 17), (13, 31, 15)];
    shapes.extend([(8, 12, 12), (48, 200, 200), (57, 65, 257), (56, 64, 256), (29, 48, 255)]);
    shapes.extend([(225, 70, 300), (60, 1030, 20), (16, 1025, 515), (230, 1, 33), (1, 90, 600)]);
    for _ in 0..60 {
        shapes.push((1 + random.below(70), 1 + random.below(110), random.below(90)));
    }
    shapes
}

#[test]
fn close_to_the_definition_and_equal_on_all_instruction_sets() {
    let random = &mut Random(1);
    let packing = &mut PackingBuffers::new();
    for shape in shapes(random) {
        for orientation in ORIENTATIONS {
            let gap = random.below(3) * random.below(20);
            let case = Case::new(orientation, shape, gap, random);
            let scalar = case.run(InstructionSet::Scalar, packing);
            case.assert_close(&scalar);
            for instruction_set in InstructionSet::available() {
                let c = case.run(instruction_set, packing);
                assert!(bits(&c) == bits(&scalar), "{instruction_set:?} differs: {}", case.name());
            }
        }
    }
}

#[test]
fn elements_between_rows_are_not_touched() {
    let random = &mut Random(2);
    let packing = &mut PackingBuffers::new();
    for orientation in ORIENTATIONS {
        let case = Case::new(orientation, (30, 45, 50), 7, random);
        for instruction_set in InstructionSet::available() {
            let c = case.run(instruction_set, packing);
            for row in 0..case.m {
                let gap = row * 52 + 45..row * 52 + 52;
                assert_eq!(c[gap.clone()], case.c[gap]);
            }
        }
    }
}

/// Rows, and columns, computed in separate calls have the same bits as in one call.
#[test]
fn any_cut_of_the_output_gives_the_same_bits() {
    let random = &mut Random(3);
    let packing = &mut PackingBuffers::new();
    let meter = Meter::new();
    for (orientation, sizes) in [
        (Orientation::Nt, (300, 90, 300)),
        (Orientation::Nn, (70, 1100, 40)),
        (Orientation::Tn, (40, 70, 600)),
        (Orientation::Nn, (130, 66, 513)),
    ] {
        let case = Case::new(orientation, sizes, 5, random);
        for instruction_set in InstructionSet::available() {
            let whole = case.run(instruction_set, packing);
            for _ in 0..4 {
                let mut c = case.c.clone();
                let (row, column) = (1 + random.below(case.m - 1), 1 + random.below(case.n - 1));
                for (row, rows) in [(0, row), (row, case.m - row)] {
                    for (column, columns) in [(0, column), (column, case.n - column)] {
                        let mut view = MatMut::new(&mut c, case.m, case.n, case.n + case.gap);
                        let view = view.block(row, rows, column, columns);
                        let bias = case.bias.as_ref().map(|bias| &bias[column..column + columns]);
                        let product = case.product().block(row, rows, column, columns);
                        gemm(product, view, case.write, bias, packing, instruction_set, &meter);
                    }
                }
                assert!(bits(&c) == bits(&whole), "{instruction_set:?}: {}", case.name());
            }
        }
    }
}

/// The definition in scalar code, so that the order of the sums is held and not only their size.
#[test]
fn each_element_is_the_documented_chain() {
    let random = &mut Random(4);
    let packing = &mut PackingBuffers::new();
    for orientation in ORIENTATIONS {
        let case = Case::new(orientation, (33, 40, 2 * K_BLOCK + 19), 1, random);
        let c = case.run(InstructionSet::detect(), packing);
        for row in 0..case.m {
            for column in 0..case.n {
                let at = row * (case.n + case.gap) + column;
                let mut value = match case.write {
                    Write::Assign => None,
                    Write::Accumulate => Some(case.c[at]),
                };
                for block in (0..case.k).step_by(K_BLOCK) {
                    let mut sum = 0.0f32;
                    for step in block..case.k.min(block + K_BLOCK) {
                        sum = case.a_at(row, step).mul_add(case.b_at(step, column), sum);
                    }
                    value = Some(value.map_or(sum, |value| value + sum));
                }
                let bias = case.bias.as_ref().map(|bias| bias[column]);
                let expected = bias.map_or(value.unwrap(), |bias| value.unwrap() + bias);
                assert_eq!(c[at].to_bits(), expected.to_bits(), "{}", case.name());
            }
        }
    }
}

/// A peer's product differs from ours by at most the worst case of either: its sums have at most K roundings.
#[test]
fn close_to_a_peer() {
    let random = &mut Random(5);
    let packing = &mut PackingBuffers::new();
    for (m, n, k) in [(100, 130, 300), (64, 64, 64), (7, 300, 129)] {
        for orientation in ORIENTATIONS {
            let mut case = Case::new(orientation, (m, n, k), 3, random);
            (case.write, case.bias) = (Write::Assign, None);
            let ours = case.run(InstructionSet::detect(), packing);
            let peer = run_peer(&case);
            for row in 0..m {
                for column in 0..n {
                    let size: f32 = (0..k).map(|step| (case.a_at(row, step) * case.b_at(step, column)).abs()).sum();
                    let bound = 1.01 * 2.0 * (k + 3) as f32 * f32::EPSILON / 2.0 * size;
                    let at = row * (n + case.gap) + column;
                    let difference = (ours[at] - peer[at]).abs();
                    assert!(difference <= bound, "{}: {difference} > {bound}", case.name());
                }
            }
        }
    }
}

fn run_peer(case: &Case) -> Vec<f32> {
    let mut c = case.c.clone();
    let Product { orientation, a, b } = case.product();
    let stride = |operand: Operand<'_>| (operand.cols() + case.gap) as isize;
    let (a_stride, b_stride) = (stride(a), stride(b));
    let (a_column, a_row) = if orientation == Orientation::Tn { (a_stride, 1) } else { (1, a_stride) };
    let (b_column, b_row) = if orientation == Orientation::Nt { (b_stride, 1) } else { (1, b_stride) };
    let (c_column, c_row) = (1, (case.n + case.gap) as isize);
    let (a, b) = (case.a.as_ptr(), case.b.as_ptr());
    let (product, alone) = (gemm_f32::gemm::f32::get_gemm_fn(), gemm_common::Parallelism::None);
    // The peer's outputs are columns: it computes the transposed product of transposed operands.
    // SAFETY: the strides are those of the case's matrices, which are alive.
    unsafe {
        product(
            case.n,
            case.m,
            case.k,
            c.as_mut_ptr(),
            c_row,
            c_column,
            false,
            b,
            b_row,
            b_column,
            a,
            a_row,
            a_column,
            0.0,
            1.0,
            false,
            false,
            false,
            alone,
        );
    }
    c
}
