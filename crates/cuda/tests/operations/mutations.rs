//! Faults in kernels are found: every mutant of every kernel gives a difference or a fault on the GPU in software, but
//! for those that change nothing, which are listed with the reason.

use cuda::code::{CompiledSource, OPTIONS};
use cuda::kernels::{SOURCES, Source};
use nvidia::nvrtc::{Code, Compiler, Source as CompilerSource, Target};
use softgpu::{Check, Checks};

use crate::bench::{Bench, Cases, Order, code_for, compiler};
use crate::case::Words;
use crate::mutants::{Fault, Mutant, mutants};
use crate::{activation, dropout, element_wise, embedding, mat_mul, mat_mul_blocks, norm, rotary, sums};

/// The end of a mutant's name, of all places or of one, and why the mutant computes the same.
pub type Implied = (&'static str, &'static str);

/// Mutants that compute the same, by source.
const MAT_MUL: &[Implied] = &[
    ("lanes = lanes_left < SIDE ? (u32)lanes_left : SIDE;: <= for < at column 18", BOTH_ARE_EQUAL),
    ("const u32 steps = steps_left < STEPS ? (u32)steps_left : STEPS;: <= for < at column 28", BOTH_ARE_EQUAL),
    ("const u64 end = block + K_BLOCK < steps ? block + K_BLOCK : steps;: <= for < at column 31", BOTH_ARE_EQUAL),
];
const MAT_MUL_BLOCKS: &[Implied] = &[
    ("const u32 count = left < CHUNK ? (u32)left : CHUNK;: <= for < at column 22", BOTH_ARE_EQUAL),
    (
        "const bool is_inside = row < matrix.rows && col < matrix.cols;: <= for < at column 47, place 1 of 2",
        "nothing is left there",
    ),
    (
        "for (u32 first = 0; first < SIDE; first += ROWS) {: <= for < at column 25, place 1 of 2",
        "no warp has rows after those of the tile",
    ),
    ("if (stage < count) {: <= for < at column 9", "the stage after the last one is empty"),
    ("for (u32 stage = 0; stage < STAGES - 1; stage++) {: <= for < at column 25", "a stage is loaded twice"),
];
const COLUMN_SUM: &[Implied] = &[
    ("return left < blockDim.y ? (u32)left : blockDim.y;: <= for < at column 11", BOTH_ARE_EQUAL),
    ("const u64 end = row + GROUP_ROWS < x.rows ? row + GROUP_ROWS : x.rows;: <= for < at column 32", BOTH_ARE_EQUAL),
    ("for (u64 first = 0; first < count; first += blockDim.y) {: <= for < at column 25", NO_GROUPS),
];
const NORM: &[Implied] = &[
    ("return left < blockDim.y ? (u32)left : blockDim.y;: <= for < at column 11", BOTH_ARE_EQUAL),
    ("const u64 end = row + GROUP_ROWS < x.rows ? row + GROUP_ROWS : x.rows;: <= for < at column 32", BOTH_ARE_EQUAL),
    ("const u64 end = first + CHUNK < len ? first + CHUNK : len;: <= for < at column 29", BOTH_ARE_EQUAL),
    ("for (u64 first = 0; first < count; first += blockDim.y) {: <= for < at column 25", NO_GROUPS),
    (
        "for (u64 first = 0; first < len; first += CHUNK) {: <= for < at column 25",
        "a chunk without elements adds 0 to a sum that is never -0",
    ),
    (
        "for (u64 first = team_lane(); first < width; first += COUNT * TEAM) {: <= for < at column 35",
        "one more round in which there is nothing to do",
    ),
    (
        "for (u64 first = global_team() - team_of_warp; first < count; first += teams) {: <= for < at column 52",
        "the row after the last is the last once more, and not stored",
    ),
];
const ROTARY: &[Implied] = &[("share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;: <= for < at column 22", BOTH_ARE_EQUAL)];
const DROPOUT: &[Implied] = &[(
    "elements.cuh: for (u64 col = global_thread(); col < cols; col += grid_threads()) {: <= for < at column 35",
    "a block of channels after the last has none",
)];
const EMBEDDING: &[Implied] = &[(
    "for (u64 first = 0; first < count; first += WINDOW) {: <= for < at column 25",
    "a window without tokens finds none",
)];

/// After the last group.
const NO_GROUPS: &str = "a turn without groups adds nothing";
/// Of two values that are equal either may be taken.
const BOTH_ARE_EQUAL: &str = "both values are equal there";

/// One mutant of this number is in the sample, and at least one of a source; all missing barriers are.
const SAMPLED: usize = 12;
/// Decides which.
const SEED: u64 = 1;

/// Which mutants a run tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    Sample,
    All,
}

impl Selection {
    /// `PLEACH_MUTANTS=all` tries all.
    fn from_environment() -> Selection {
        match std::env::var("PLEACH_MUTANTS").as_deref() {
            Ok("all") => Selection::All,
            Ok(other) => panic!("PLEACH_MUTANTS is {other:?}; set it to \"all\", or not at all"),
            Err(_) => Selection::Sample,
        }
    }

    /// These of all.
    fn of(self, all: &[Mutant]) -> Vec<&Mutant> {
        if self == Selection::All {
            return all.iter().collect();
        }
        let (barriers, mut others): (Vec<&Mutant>, Vec<&Mutant>) =
            all.iter().partition(|mutant| mutant.fault == Fault::Order);
        // By names, so that one more mutant leaves nearly all others in the sample.
        others.sort_by_cached_key(|mutant| {
            let seed = mutant.name.bytes().fold(SEED, |word, byte| word.wrapping_mul(31).wrapping_add(byte.into()));
            Words::new(seed).next()
        });
        others.truncate(others.len().div_ceil(SAMPLED));
        barriers.into_iter().chain(others).collect()
    }
}

/// How a mutant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It does not compile, differs from the CPU, or a check of the GPU in software stops it.
    Found,
    Missed,
    /// Its PTX is that of the kernels as they are.
    Unchanged,
}

/// Compiles mutants of one source and compares them with the CPU.
struct Hunt<'a> {
    compiler: Compiler,
    source: Source,
    original: Code,
    /// Other sources that the cases use.
    others: Vec<CompiledSource>,
    cases: &'a [Cases],
    order: Order,
}

impl Hunt<'_> {
    fn compile(compiler: &Compiler, order: Order, name: &str, text: &str) -> Option<Code> {
        let target: Target = order.target.parse().expect("a target");
        let text = CompilerSource::new(format!("{name}.cu"), text);
        compiler.compile(&text, &target, OPTIONS).ok().map(|compiled| compiled.code)
    }

    fn end(&self, mutant: &Mutant) -> End {
        let Some(code) = Hunt::compile(&self.compiler, self.order, self.source.name, &mutant.text) else {
            return End::Found;
        };
        if code.ptx() == self.original.ptx() {
            return End::Unchanged;
        }
        // Most faults change bits, which shows sooner without checks. A missing barrier changes none on a GPU in
        // software.
        let without = Checks { shared: Check::Off, local: Check::Off, global: Check::Off, ..Checks::default() };
        let found = match mutant.fault {
            Fault::Order => self.difference(code, Checks::default()).is_some(),
            Fault::Bound | Fault::Index => {
                self.difference(code.clone(), without).is_some() || self.difference(code, Checks::default()).is_some()
            }
        };
        if found { End::Found } else { End::Missed }
    }

    /// The first difference of all cases, with this code of the source.
    fn difference(&self, code: Code, checks: Checks) -> Option<String> {
        let changed = CompiledSource { source: self.source, code };
        let code: Vec<CompiledSource> = self.others.iter().cloned().chain([changed]).collect();
        self.cases.iter().find_map(|cases| {
            let bench = Bench::in_order(self.order, &code, checks.clone());
            cases(&bench);
            let difference = bench.first_difference();
            // No fault of the kernels, and a difference with each mutant.
            let is_loaded = |difference: &String| !difference.contains("is in no source that was loaded");
            assert!(difference.as_ref().is_none_or(is_loaded), "{}: {difference:?}", self.source.name);
            difference
        })
    }
}

/// Whether an entry of a list means this mutant.
fn is_named(mutant: &Mutant, end: &str) -> bool {
    let in_any_place = mutant.name.rsplit_once(", place ").map(|(name, _)| name);
    mutant.name.ends_with(end) || in_any_place.is_some_and(|name| name.ends_with(end))
}

/// Panics with the mutants of a source that all cases miss, and with reasons for mutants that are found or not there.
pub fn assert_found(name: &str, cases: &[Cases], implied: &[Implied]) {
    assert_found_in(Order::CHAINED, name, &[], cases, implied);
}

/// As [`assert_found`], with products in this order, and with cases that use other sources, too.
pub fn assert_found_in(order: Order, name: &str, others: &[&str], cases: &[Cases], implied: &[Implied]) {
    let Some(compiler) = compiler() else { return };
    let code = |names: &[&str]| code_for(order.target, names).expect("NVRTC");
    let selection = Selection::from_environment();
    let source = *SOURCES.iter().find(|source| source.name == name).expect("a source");
    let original = code(&[name]).remove(0).code;
    let hunt = Hunt { compiler, source, original, others: code(others), cases, order };
    if selection == Selection::All {
        let unchanged = hunt.difference(hunt.original.clone(), Checks::default());
        assert_eq!(unchanged, None, "{name} as it is: each mutant of it would count as found");
    }
    let all = mutants(&source.whole());
    assert!(!all.is_empty(), "{name} has no mutants");
    let absent = implied.iter().filter(|(end, _)| !all.iter().any(|mutant| is_named(mutant, end)));
    let mut wrong: Vec<String> = absent.map(|(end, _)| format!("{end}: is listed, but not there")).collect();
    let (mut tried, mut unchanged) = (0, 0);
    for mutant in selection.of(&all) {
        let reason = implied.iter().find(|(end, _)| is_named(mutant, end)).map(|(_, reason)| reason);
        tried += 1;
        let line = match (hunt.end(mutant), reason) {
            (End::Found, None) | (End::Missed, Some(_)) => continue,
            (End::Unchanged, _) => {
                unchanged += 1;
                continue;
            }
            (End::Missed, None) => format!("{}: is missed", mutant.name),
            (End::Found, Some(reason)) => format!("{}: is listed ({reason}), but found", mutant.name),
        };
        println!("{line}");
        wrong.push(line);
    }
    println!("{name}: {tried} of {} mutants, {unchanged} of them with the PTX of the kernels as they are", all.len());
    assert!(wrong.is_empty(), "{} of {tried} mutants of {name}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_sample_has_all_barriers_and_some_of_the_others() {
    let source = SOURCES.iter().find(|source| source.name == "attention").expect("a source");
    let all = mutants(&source.whole());
    let count = |mutants: &[&Mutant]| {
        let barriers = mutants.iter().filter(|mutant| mutant.fault == Fault::Order).count();
        (barriers, mutants.len() - barriers)
    };
    let ((barriers, others), sampled) = (count(&Selection::All.of(&all)), count(&Selection::Sample.of(&all)));
    assert!(barriers > 0 && barriers + others == all.len());
    assert_eq!(sampled, (barriers, others.div_ceil(SAMPLED)));
}

#[test]
fn faults_in_products_are_found() {
    assert_found("mat_mul", &[mat_mul::edges, mat_mul::minus_zero, mat_mul::ends], MAT_MUL);
}

#[test]
fn faults_in_products_in_blocks_are_found() {
    let cases: [Cases; 3] = [mat_mul_blocks::edges, mat_mul_blocks::pieces, mat_mul_blocks::ends];
    assert_found_in(Order::BLOCKS16, "mat_mul_blocks", &[], &cases, MAT_MUL_BLOCKS);
}

#[test]
fn faults_in_sums_over_rows_are_found() {
    assert_found("column_sum", &[sums::column_sums], COLUMN_SUM);
}

#[test]
fn faults_in_norms_are_found() {
    assert_found("norm", &[norm::norms, norm::input_gradients, norm::weight_gradients], NORM);
}

#[test]
fn faults_in_rotary_positions_are_found() {
    assert_found("rotary", &[rotary::tables, rotary::turns], ROTARY);
}

#[test]
fn faults_in_activations_are_found() {
    assert_found("activation", &[activation::activations], &[]);
}

#[test]
fn faults_in_dropout_are_found() {
    assert_found("dropout", &[dropout::additions, dropout::gradients], DROPOUT);
}

#[test]
fn faults_in_embeddings_are_found() {
    assert_found("embedding", &[embedding::embeddings], EMBEDDING);
}

#[test]
fn faults_in_sums_fills_and_copies_are_found() {
    assert_found("element_wise", &[element_wise::sums_and_copies], &[]);
}
