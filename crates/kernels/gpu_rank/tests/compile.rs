//! Every kernel, those of collectives too, compiles for every GPU that is named, within its registers and without
//! spills, and keeps to the dialect. Needs NVRTC in the folder of PLEACH_CUDA.
//!
//! CUBINs of a source are those for one GPU of [`ARCHITECTURES`], which its text draws, and PTX is that of
//! 9.0; with `PLEACH_CASES=all` both are for all.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use cuda::code::{OPTIONS, compile};
use cuda::kernels::{SOURCES, Source as Kernels};
use gpu_rank::COLLECTIVES;
use nvidia::Search;
use nvidia::nvrtc::{Cache, Compiler, Source, Target};

/// GPUs: A100, H100 and H200, B200, RTX 50.
const ARCHITECTURES: [&str; 4] = ["80", "90a", "100a", "120a"];

/// The most registers of a thread, where it is not [`USUAL_REGISTERS`]: the products have a tile of sums in them.
/// Kernels for the types of real numbers have one entry, without the ending of their names.
const REGISTERS: &[(&str, u32)] = &[
    ("mat_mul_nt_128", 255),
    ("mat_mul_nn_128", 255),
    ("mat_mul_tn_128", 255),
    // Two blocks of 256 threads are on an SM at once with 128 registers.
    ("mat_mul_nt_64", 128),
    ("mat_mul_nn_64", 128),
    ("mat_mul_tn_64", 128),
    ("mat_mul_blocks_nt_bf16_128", 128),
    ("mat_mul_blocks_nn_bf16_128", 128),
    ("mat_mul_blocks_nt_f16_128", 128),
    ("mat_mul_blocks_nn_f16_128", 128),
    // With the sums of two pieces.
    ("mat_mul_blocks_tn_bf16_128", 168),
    ("mat_mul_blocks_tn_f16_128", 168),
    ("mat_mul_blocks_nt_bf16_64", 96),
    ("mat_mul_blocks_nn_bf16_64", 96),
    ("mat_mul_blocks_tn_bf16_64", 128),
    ("mat_mul_blocks_nt_f16_64", 96),
    ("mat_mul_blocks_nn_f16_64", 96),
    ("mat_mul_blocks_tn_f16_64", 128),
    // The products of experts find their groups in addition.
    ("expert_mat_mul_nt_128", 255),
    ("expert_mat_mul_nn_128", 255),
    ("expert_mat_mul_tn_128", 255),
    ("expert_mat_mul_nt_64", 128),
    ("expert_mat_mul_nn_64", 128),
    ("expert_mat_mul_tn_64", 128),
    ("expert_mat_mul_blocks_nt_bf16_128", 128),
    ("expert_mat_mul_blocks_nn_bf16_128", 128),
    ("expert_mat_mul_blocks_nt_f16_128", 128),
    ("expert_mat_mul_blocks_nn_f16_128", 128),
    ("expert_mat_mul_blocks_tn_bf16_128", 184),
    ("expert_mat_mul_blocks_tn_f16_128", 184),
    ("expert_mat_mul_blocks_nt_bf16_64", 96),
    ("expert_mat_mul_blocks_nn_bf16_64", 96),
    ("expert_mat_mul_blocks_tn_bf16_64", 128),
    ("expert_mat_mul_blocks_nt_f16_64", 96),
    ("expert_mat_mul_blocks_nn_f16_64", 96),
    ("expert_mat_mul_blocks_tn_f16_64", 128),
    // Five blocks of 128 threads are on an SM at once.
    ("expert_activation_backward_gated", 96),
    // Several blocks are on an SM, so that one multiplies while another one computes activations.
    ("mat_mul_blocks_activation_128", 128),
    ("mat_mul_blocks_activation_64", 96),
    ("mat_mul_blocks_gated_128", 128),
    ("mat_mul_blocks_gated_64", 96),
    ("mat_mul_blocks_activation_backward_128", 128),
    ("mat_mul_blocks_activation_backward_64", 96),
    ("mat_mul_blocks_gated_backward_128", 128),
    ("mat_mul_blocks_gated_backward_64", 96),
    // A block of 512 threads is on an SM at once.
    ("norm_backward_weight", 128),
    // Five blocks of 128 threads are.
    ("norm_backward_input_layer", 96),
    ("norm_backward_input_rms", 96),
    ("norm_backward_input_rms_plus_one", 96),
    // Four blocks of 128 threads, or two of 256, are on an SM at once; with 168 registers three of 128, and with more
    // one of 256.
    ("attention_64", 128),
    ("attention_128", 168),
    ("attention_backward_queries_64", 168),
    ("attention_backward_queries_128", 168),
    ("attention_backward_keys_64", 128),
    ("attention_backward_keys_128", 240),
    // Two blocks of 128 threads are on an SM at once, or one of 256.
    ("attention_blocks_64", 255),
    ("attention_blocks_128", 255),
    ("attention_blocks_any_64", 255),
    ("attention_blocks_any_128", 255),
    ("attention_blocks_wide", 255),
    ("attention_blocks_queries_64", 255),
    ("attention_blocks_queries_128", 255),
    ("attention_blocks_queries_any_64", 255),
    ("attention_blocks_queries_any_128", 255),
    ("attention_blocks_queries_wide", 255),
    ("attention_blocks_keys_64", 255),
    ("attention_blocks_keys_128", 255),
    ("attention_blocks_keys_any_64", 255),
    ("attention_blocks_keys_any_128", 255),
    ("attention_blocks_keys_wide", 255),
];
/// Kernels by warpgroups begin with as many registers as an SM has for their threads, and exchange them.
const REGISTERS_OF_WARPGROUPS: u32 = 168;
/// At 64 registers an SM has room for 1024 threads.
const USUAL_REGISTERS: u32 = 64;

fn most_registers(entry: &str) -> u32 {
    let name = ["_f32", "_bf16", "_f16"].iter().find_map(|ending| entry.strip_suffix(ending)).unwrap_or(entry);
    if name.starts_with("mat_mul_wgmma_") {
        return REGISTERS_OF_WARPGROUPS;
    }
    REGISTERS.iter().find(|(listed, _)| *listed == name).map_or(USUAL_REGISTERS, |(_, most)| *most)
}

/// Picks among the GPUs that have the instructions of a source.
type Sample = fn(&Kernels, Vec<&'static str>) -> Vec<&'static str>;

/// Every source of kernels with the GPUs that a test compiles it for: those of the sample, or all.
fn sources(sample: Sample) -> Vec<(Kernels, &'static str)> {
    let all = SOURCES.iter().copied().chain([COLLECTIVES]);
    let of = |source: Kernels| {
        let has = |architecture: &&str| source.is_for(&Target::Cubin((*architecture).into()));
        let having: Vec<&str> = ARCHITECTURES.into_iter().filter(has).collect();
        let chosen = if needs::all_cases!() { having } else { sample(&source, having) };
        chosen.into_iter().map(move |architecture| (source, architecture))
    };
    all.flat_map(of).collect()
}

/// One, by the text of the source: each change of the source draws again.
fn drawn(source: &Kernels, architectures: Vec<&'static str>) -> Vec<&'static str> {
    let word = source.whole().bytes().fold(0u64, |word, byte| word.wrapping_mul(31).wrapping_add(byte.into()));
    vec![architectures[(word >> 32) as usize % architectures.len()]]
}

/// One that has the instructions of all sources, whose code other tests need, too.
fn that_runs(_: &Kernels, _: Vec<&'static str>) -> Vec<&'static str> {
    vec!["90a"]
}

/// Code that tests of all crates keep in one folder with the compiler's log, by a hash of compiler, options, target
/// and text.
fn cache() -> Cache {
    Cache::in_folder(std::env::temp_dir().join("pleach-of-tests/pleach/kernels"))
}

/// Messages of the compiler about `setmaxnreg` that it leaves out, and products of warpgroups that it makes wait for
/// each other.
const SLOW: [&str; 3] = ["C7508", "C7510", "C7515"];

/// NVRTC of the folder in PLEACH_CUDA.
fn compiler() -> Compiler {
    let folder = std::env::var_os("PLEACH_CUDA").expect("PLEACH_CUDA must name a folder with NVRTC");
    Compiler::open(&Search::only([PathBuf::from(folder)])).expect("NVRTC in PLEACH_CUDA")
}

/// The figures that `ptxas -v` prints of a kernel.
#[derive(Debug, Default)]
struct Resources {
    registers: u32,
    spilled_bytes: u32,
    stack_bytes: u32,
}

/// Resources by kernel, from the log of a compilation.
fn resources(log: &str) -> BTreeMap<String, Resources> {
    let mut all: BTreeMap<String, Resources> = BTreeMap::new();
    let mut name = String::new();
    for line in log.lines() {
        let number_before = |word: &str| {
            let (before, _) = line.split_once(word)?;
            before.split(|c: char| !c.is_ascii_digit()).rfind(|part| !part.is_empty())?.parse::<u32>().ok()
        };
        if let Some((_, after)) = line.split_once("Function properties for ") {
            name = after.trim().into();
        } else if let Some((_, after)) = line.split_once("Compiling entry function '") {
            name = after.split('\'').next().unwrap_or_default().into();
        } else if line.contains("bytes spill stores") {
            let kernel = all.entry(name.clone()).or_default();
            kernel.stack_bytes = number_before(" bytes stack frame").unwrap_or(u32::MAX);
            kernel.spilled_bytes = number_before(" bytes spill stores").unwrap_or(u32::MAX);
        } else if let Some(registers) = line.contains("Used ").then(|| number_before(" registers")).flatten() {
            all.entry(name.clone()).or_default().registers = registers;
        }
    }
    all
}

#[needs::cuda]
#[test]
fn kernels_fit_their_registers_on_every_gpu_and_spill_nothing() {
    let compiler = compiler();
    let (left, wrong) = (Mutex::new(sources(drawn)), Mutex::new(vec![]));
    let next = || left.lock().expect("unpoisoned").pop();
    let compile_all = || {
        while let Some((source, architecture)) = next() {
            let found = excesses(&compiler, &source, architecture);
            wrong.lock().expect("unpoisoned").extend(found);
        }
    };
    // Hundreds of kernels take minutes of a core.
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(compile_all);
        }
    });
    let wrong = wrong.into_inner().expect("unpoisoned");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Faults of the kernels of `source` on a GPU: too many registers, memory of threads, products that wait for each
/// other.
fn excesses(compiler: &Compiler, source: &Kernels, architecture: &str) -> Vec<String> {
    let options: Vec<&str> = OPTIONS.iter().copied().chain(["--ptxas-options=-v"]).collect();
    let text = Source::new(format!("{}.cu", source.name), source.whole());
    let target = Target::Cubin(architecture.into());
    let compiled = cache().compile(compiler, &text, &target, &options).expect("a CUBIN");
    let slow = compiled.log.lines().filter(|line| SLOW.iter().any(|number| line.contains(number)));
    let mut wrong: Vec<String> = slow.map(|line| format!("{}.cu for {target}: {line}", source.name)).collect();
    let all = resources(&compiled.log);
    for entry in source.entries {
        let most = most_registers(entry);
        let kernel = all.get(*entry).unwrap_or_else(|| panic!("{entry} is not in the log:\n{}", compiled.log));
        if kernel.registers > most || kernel.registers == 0 || kernel.spilled_bytes + kernel.stack_bytes > 0 {
            wrong.push(format!("{entry} for {target}: {kernel:?}, at most {most} registers"));
        }
    }
    wrong
}

/// Why an instruction is outside of the dialect.
fn violation(instruction: &str) -> Option<&'static str> {
    let opcode = instruction.split_whitespace().next().unwrap_or_default().trim_end_matches(';');
    let mut parts = opcode.split('.');
    let base = parts.next().unwrap_or_default();
    let modifiers: Vec<&str> = parts.collect();
    let is_real = modifiers.iter().any(|part| ["f32", "f64", "f16", "bf16", "f16x2", "bf16x2"].contains(part));
    let has = |modifier: &str| modifiers.contains(&modifier);
    if has("approx") || has("full") || ["ex2", "lg2", "sin", "cos", "tanh"].contains(&base) {
        return Some("an approximate instruction");
    }
    if has("ftz") || has("sat") {
        return Some("subnormal or other numbers are cut");
    }
    if is_real && ["atom", "red"].contains(&base) {
        return Some("an atomic operation on real numbers");
    }
    let rounds = ["add", "sub", "mul", "fma", "mad", "div", "sqrt", "rcp"].contains(&base);
    if is_real && rounds && !has("rn") {
        return Some("not rounded to nearest");
    }
    if is_real && base == "cvt" && ["rz", "rm", "rp"].iter().any(|mode| has(mode)) {
        return Some("not rounded to nearest");
    }
    None
}

#[needs::cuda]
#[test]
fn every_instruction_on_real_numbers_is_exact_or_rounded_to_nearest() {
    let compiler = compiler();
    let mut found = 0;
    for (source, architecture) in sources(that_runs) {
        let compiled = compile(&compiler, &cache(), &source, &Target::Ptx(architecture.into())).expect("PTX");
        let ptx = compiled.code.ptx().expect("PTX");
        for line in ptx.lines().map(str::trim) {
            // A guard is before its instruction.
            let instruction =
                line.strip_prefix('@').and_then(|rest| rest.split_once(' ')).map_or(line, |(_, rest)| rest);
            assert_eq!(violation(instruction), None, "{} for {architecture}: {line}", source.name);
            found += usize::from(instruction.starts_with("fma.rn.f32"));
        }
    }
    assert!(found > 1000, "{found} fused multiply-adds");
}

#[test]
fn instructions_outside_of_the_dialect_are_found() {
    for (instruction, expected) in [
        ("ex2.approx.f32 %f1, %f2;", Some("an approximate instruction")),
        ("div.full.f32 %f1, %f2, %f3;", Some("an approximate instruction")),
        ("mul.rn.ftz.f32 %f1, %f2, %f3;", Some("subnormal or other numbers are cut")),
        ("atom.global.add.f32 %f1, [%rd1], %f2;", Some("an atomic operation on real numbers")),
        ("red.global.add.f64 [%rd1], %fd2;", Some("an atomic operation on real numbers")),
        ("atom.global.add.u64 %rd2, [%rd1], %rd3;", None),
        ("add.f32 %f1, %f2, %f3;", Some("not rounded to nearest")),
        ("fma.rz.f32 %f1, %f2, %f3, %f4;", Some("not rounded to nearest")),
        ("cvt.rz.f32.s32 %f1, %r1;", Some("not rounded to nearest")),
        ("cvt.rzi.s32.f32 %r1, %f1;", None),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", None),
        ("add.s32 %r1, %r2, %r3;", None),
    ] {
        assert_eq!(violation(instruction), expected, "{instruction}");
    }
}
