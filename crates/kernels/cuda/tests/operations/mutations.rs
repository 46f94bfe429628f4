//! Faults in kernels are found: every mutant of every kernel gives a difference or a fault on the GPU in software, but
//! for those that change nothing, which are listed with the reason.

use cuda::code::{CompiledSource, OPTIONS};
use cuda::kernels::{SOURCES, Source};
use nvidia::nvrtc::{Code, Compiler, Source as CompilerSource, Target};
use softgpu::{Check, Checks};

use crate::operations::bench::{Bench, Cases, Loaded, Order, code_for, compiler};
use crate::operations::case::Words;
use crate::operations::kept_ends::KeptEnds;
use crate::operations::mutants::{Fault, Mutant, mutants};
use crate::operations::{
    activation, dropout, element_wise, embedding, mat_mul, mat_mul_blocks, norm, rotary, soft_cap, sums,
};

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
        "product_blocks.cuh: const bool is_inside = row < matrix.rows && col < matrix.cols;: <= for < at column 47",
        "nothing is left there",
    ),
    ("if (stage < count) {: <= for < at column 9", "the stage after the last one is empty"),
    ("for (u32 stage = 0; stage < STAGES - 1; stage++) {: <= for < at column 25", "a stage is loaded twice"),
];
const COLUMN_SUM: &[Implied] = &[
    ("return left < blockDim.y ? (u32)left : blockDim.y;: <= for < at column 11", BOTH_ARE_EQUAL),
    ("for (u64 first = 0; first < count; first += blockDim.y) {: <= for < at column 25", NO_GROUPS),
];
const NORM: &[Implied] = &[
    ("return left < blockDim.y ? (u32)left : blockDim.y;: <= for < at column 11", BOTH_ARE_EQUAL),
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
pub const BOTH_ARE_EQUAL: &str = "both values are equal there";

/// Mutants of a source that are in the sample: of its order between threads, and of its bounds and indices.
const SAMPLED: usize = 1;
/// Decides which.
const SEED: u64 = 1;
/// The most instructions of warps in a launch of a mutant: no case needs as many, and who loops forever is stopped
/// there.
const MOST_INSTRUCTIONS: u64 = 20_000_000;

/// Which mutants a run tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    Sample,
    /// All of the order between threads, copies and products of warpgroups.
    OfOrder,
    All,
}

impl Selection {
    /// `PLEACH_CASES=all` tries all, and `PLEACH_CASES=order` all of the order.
    fn from_environment() -> Selection {
        match std::env::var("PLEACH_CASES").as_deref() {
            Ok("all") => Selection::All,
            Ok("order") => Selection::OfOrder,
            Ok(other) => panic!("PLEACH_CASES is {other:?}; set it to \"all\" or \"order\", or not at all"),
            Err(_) => Selection::Sample,
        }
    }

    /// These of all.
    fn of(self, all: &[Mutant]) -> Vec<&Mutant> {
        let (mut of_order, mut others): (Vec<&Mutant>, Vec<&Mutant>) =
            all.iter().partition(|mutant| mutant.fault == Fault::Order);
        match self {
            Selection::All => return all.iter().collect(),
            Selection::OfOrder => return of_order,
            Selection::Sample => {}
        }
        // By names, so that one more mutant leaves most others in the sample.
        let key = |mutant: &&Mutant| {
            let seed = mutant.name.bytes().fold(SEED, |word, byte| word.wrapping_mul(31).wrapping_add(byte.into()));
            Words::new(seed).next()
        };
        for mutants in [&mut of_order, &mut others] {
            mutants.sort_by_cached_key(key);
            mutants.truncate(SAMPLED);
        }
        of_order.into_iter().chain(others).collect()
    }
}

/// How a mutant ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It does not compile, differs from the CPU, or a check of the GPU in software stops it.
    Found,
    Missed,
    /// Its PTX is that of the kernels as they are.
    Unchanged,
}

/// Some kernels of a source, or all.
struct Kernels {
    source: Source,
    loaded: Loaded,
    original: Code,
}

/// Compiles mutants of one source and compares them with the CPU: first a few of the kernels, which are compiled
/// sooner, and then all of them, for faults that do not show there.
struct Hunt<'a> {
    compiler: Compiler,
    kernels: Vec<Kernels>,
    /// Other sources that the cases use.
    others: Vec<CompiledSource>,
    /// Each with the order, and the number of multiprocessors, that it runs with. All have the same target.
    cases: &'a [(Order, Cases)],
    target: &'static str,
}

/// The text of a source without the kernels that are not in its list.
fn text_of(source: &Source, whole: &str) -> String {
    let name_of = |line: &str| {
        let (head, rest) = line.split_once('(')?;
        let is_macro = !head.is_empty() && head.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        is_macro.then(|| rest.split(',').next().unwrap_or_default().to_string())
    };
    let all = SOURCES.iter().find(|other| other.name == source.name).map_or(&[][..], |source| source.entries);
    let is_left_out = |name: String| all.contains(&name.as_str()) && !source.entries.contains(&name.as_str());
    let is_kept = |line: &&str| !name_of(line).is_some_and(is_left_out);
    whole.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}

/// A source with the kernels of one type and of the smallest tiles.
fn few(source: Source) -> Source {
    let others = ["_f32", "_f16", "_128", "_192", "_256"];
    let is_kept = |entry: &&str| !others.iter().any(|part| entry.contains(part));
    let kept: Vec<&str> = source.entries.iter().copied().filter(is_kept).collect();
    Source { entries: kept.leak(), ..source }
}

impl Hunt<'_> {
    fn compile(&self, source: &Source, whole: &str) -> Option<Code> {
        let target: Target = self.target.parse().expect("a target");
        let text = CompilerSource::new(format!("{}.cu", source.name), text_of(source, whole));
        self.compiler.compile(&text, &target, OPTIONS).ok().map(|compiled| compiled.code)
    }

    fn end(&self, mutant: &Mutant) -> End {
        let mut end = End::Unchanged;
        for kernels in &self.kernels {
            let Some(code) = self.compile(&kernels.source, &mutant.text) else { return End::Found };
            if code.ptx() == kernels.original.ptx() {
                continue;
            }
            if self.is_found(kernels, &code, mutant.fault) {
                return End::Found;
            }
            end = End::Missed;
        }
        end
    }

    fn is_found(&self, kernels: &Kernels, code: &Code, fault: Fault) -> bool {
        // Most faults change bits, which shows sooner without checks. A missing barrier changes none on a GPU in
        // software.
        let without = Checks { shared: Check::Off, local: Check::Off, global: Check::Off, ..Checks::default() };
        let checks: &[Checks] = match fault {
            Fault::Order => &[Checks::default()],
            Fault::Bound | Fault::Index => &[without, Checks::default()],
        };
        checks.iter().any(|checks| self.difference(kernels, code, checks).is_some())
    }

    /// The first difference of all cases, with this code of the kernels.
    fn difference(&self, kernels: &Kernels, code: &Code, checks: &Checks) -> Option<String> {
        let changed = CompiledSource { source: kernels.source, code: code.clone() };
        let code: Vec<CompiledSource> = self.others.iter().cloned().chain([changed]).collect();
        self.cases.iter().find_map(|(order, cases)| {
            let order = Order { max_instructions: MOST_INSTRUCTIONS, ..*order };
            let bench = Bench::in_order(order, &code, checks.clone()).hunting(kernels.loaded);
            cases(&bench);
            bench.first_difference()
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

/// Asserts the same as [`assert_found`], with products in this order, and with cases that use other sources, too.
pub fn assert_found_in(order: Order, name: &str, others: &[&str], cases: &[Cases], implied: &[Implied]) {
    let cases: Vec<(Order, Cases)> = cases.iter().map(|cases| (order, *cases)).collect();
    assert_found_by(name, others, &cases, implied);
}

/// Asserts the same as [`assert_found_in`], with an order for each case.
pub fn assert_found_by(name: &str, others: &[&str], cases: &[(Order, Cases)], implied: &[Implied]) {
    let compiler = compiler();
    let target = cases[0].0.target;
    let code = |names: &[&str]| code_for(target, names);
    let selection = Selection::from_environment();
    let source = *SOURCES.iter().find(|source| source.name == name).expect("a source");
    let mut hunt = Hunt { compiler, kernels: vec![], others: code(others), cases, target };
    let some = few(source);
    if !some.entries.is_empty() && some.entries.len() < source.entries.len() {
        let original = hunt.compile(&some, &source.whole()).expect("kernels that compile");
        hunt.kernels.push(Kernels { source: some, loaded: Loaded::Some, original });
    }
    hunt.kernels.push(Kernels { source, loaded: Loaded::All, original: code(&[name]).remove(0).code });
    if selection != Selection::Sample {
        for kernels in &hunt.kernels {
            let unchanged = hunt.difference(kernels, &kernels.original, &Checks::default());
            assert_eq!(unchanged, None, "{name} as it is: each mutant of it would count as found");
        }
    }
    let all = mutants(&source.whole());
    assert!(!all.is_empty(), "{name} has no mutants");
    let absent = implied.iter().filter(|(end, _)| !all.iter().any(|mutant| is_named(mutant, end)));
    let mut wrong: Vec<String> = absent.map(|(end, _)| format!("{end}: is listed, but not there")).collect();
    let (mut tried, mut unchanged) = (0, 0);
    let mut kept = (selection != Selection::Sample).then(|| KeptEnds::open(name));
    for mutant in selection.of(&all) {
        let reason = implied.iter().find(|(end, _)| is_named(mutant, end)).map(|(_, reason)| reason);
        tried += 1;
        let end = kept.as_ref().and_then(|kept| kept.of(&mutant.name)).unwrap_or_else(|| {
            let end = hunt.end(mutant);
            kept.iter_mut().for_each(|kept| kept.keep(&mutant.name, end));
            end
        });
        let line = match (end, reason) {
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
fn a_sample_has_mutants_of_both_kinds() {
    let source = SOURCES.iter().find(|source| source.name == "attention").expect("a source");
    let all = mutants(&source.whole());
    let count = |mutants: &[&Mutant]| {
        let of_order = mutants.iter().filter(|mutant| mutant.fault == Fault::Order).count();
        (of_order, mutants.len() - of_order)
    };
    let (whole, sampled) = (count(&Selection::All.of(&all)), count(&Selection::Sample.of(&all)));
    assert!(whole.0 > SAMPLED && whole.1 > SAMPLED && whole.0 + whole.1 == all.len());
    assert_eq!(sampled, (SAMPLED, SAMPLED));
    assert_eq!(count(&Selection::OfOrder.of(&all)), (whole.0, 0));
}

#[test]
fn a_few_kernels_are_those_of_one_type_and_of_small_tiles() {
    let source = *SOURCES.iter().find(|source| source.name == "attention").expect("a source");
    let some = few(source);
    assert_eq!(some.entries, ["attention_64_bf16"]);
    let lines = |text: &str| text.lines().filter(|line| line.starts_with("ATTENTION(")).count();
    assert_eq!([lines(&text_of(&source, &source.whole())), lines(&text_of(&some, &source.whole()))], [6, 1]);
}

#[needs::cuda]
#[test]
fn faults_in_products_are_found() {
    assert_found("mat_mul", &[mat_mul::edges, mat_mul::minus_zero, mat_mul::ends], MAT_MUL);
}

#[needs::cuda]
#[test]
fn faults_in_products_in_blocks_are_found() {
    let cases: [Cases; 3] = [mat_mul_blocks::edges, mat_mul_blocks::pieces, mat_mul_blocks::ends];
    assert_found_in(Order::BLOCKS16, "mat_mul_blocks", &[], &cases, MAT_MUL_BLOCKS);
}

#[needs::cuda]
#[test]
fn faults_in_sums_over_rows_are_found() {
    assert_found("column_sum", &[sums::column_sums], COLUMN_SUM);
}

#[needs::cuda]
#[test]
fn faults_in_norms_are_found() {
    assert_found("norm", &[norm::norms, norm::input_gradients, norm::weight_gradients], NORM);
}

#[needs::cuda]
#[test]
fn faults_in_rotary_positions_are_found() {
    assert_found("rotary", &[rotary::tables, rotary::turns], ROTARY);
}

#[needs::cuda]
#[test]
fn faults_in_activations_are_found() {
    assert_found("activation", &[activation::activations], &[]);
}

#[needs::cuda]
#[test]
fn faults_in_dropout_are_found() {
    assert_found("dropout", &[dropout::additions, dropout::gradients], DROPOUT);
}

#[needs::cuda]
#[test]
fn faults_in_embeddings_are_found() {
    assert_found("embedding", &[embedding::embeddings], EMBEDDING);
}

#[needs::cuda]
#[test]
fn faults_in_soft_caps_are_found() {
    assert_found("soft_cap", &[soft_cap::soft_caps], &[]);
}

#[needs::cuda]
#[test]
fn faults_in_sums_fills_and_copies_are_found() {
    assert_found("element_wise", &[element_wise::sums_and_copies], &[]);
}
