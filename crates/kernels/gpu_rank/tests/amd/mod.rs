//! Kernels that memory bounds compile for GPUs of AMD (gfx942: MI300), without spills. Needs clang 19, which
//! PLEACH_CLANG names, or `clang++-19`. None has run on such a GPU.

use std::path::PathBuf;
use std::process::Command;

use cuda::kernels::{SOURCES, Source};

/// The GPU: that of MI300.
const GPU: &str = "gfx942";

/// The names that NVRTC knows without an include.
const DIALECT: &str = include_str!("dialect.h");

/// Sources whose instructions are NVIDIA's alone, and sources whose tiles of sums need more registers.
const LEFT_OUT: &[(&str, &str)] = &[
    ("mat_mul_blocks", "instructions of tensor cores"),
    ("mat_mul_blocks_activation", "instructions of tensor cores"),
    ("mat_mul_wgmma", "instructions of warpgroups"),
    ("mat_mul_wgmma_turns", "instructions of warpgroups"),
    ("mat_mul_wgmma_activation", "instructions of warpgroups"),
    ("attention_blocks", "instructions of tensor cores"),
    ("attention_blocks_queries", "instructions of tensor cores"),
    ("attention_blocks_keys", "instructions of tensor cores"),
    ("attention_blocks_wide", "instructions of tensor cores"),
    ("expert_mat_mul_blocks", "instructions of tensor cores"),
    ("mat_mul", "spills"),
    ("expert_mat_mul", "spills"),
    ("attention", "spills"),
    ("attention_backward", "spills"),
];

/// A folder of temporary files.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The assembly of a source, or the compiler's errors.
fn assembly(clang: &str, folder: &Folder, source: &Source) -> Result<String, String> {
    let [text, dialect, code] = ["kernels.hip", "dialect.h", "kernels.s"].map(|name| folder.0.join(name));
    std::fs::write(&text, source.whole()).expect("written");
    std::fs::write(&dialect, DIALECT).expect("written");
    let options = ["--cuda-device-only", "-nogpuinc", "-nogpulib", "-std=c++17", "-O2", "-ffp-contract=off", "-S"];
    let mut command = Command::new(clang);
    command.args(["-x", "hip"]).arg(format!("--offload-arch={GPU}")).args(options);
    command.arg("-include").arg(&dialect).arg("-o").arg(&code).arg(&text);
    let output = command.output().unwrap_or_else(|error| panic!("PLEACH_CLANG = {clang:?} must be clang 19; {error}"));
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(std::fs::read_to_string(&code).expect("assembly"))
}

/// Kernels of an assembly whose name and number of spilled registers its metadata has.
fn kernels(assembly: &str) -> Vec<(String, u32)> {
    let values = |key: &str| -> Vec<String> {
        let of_key = |line: &str| line.trim().strip_prefix(key).map(|value| value.trim().to_string());
        assembly.lines().filter_map(of_key).collect()
    };
    let spilled = values(".vgpr_spill_count:").into_iter().map(|count| count.parse().expect("a number"));
    let names = values(".symbol:").into_iter().map(|symbol| symbol.trim_end_matches(".kd").to_string());
    names.zip(spilled).collect()
}

#[needs::clang]
#[test]
fn kernels_that_memory_bounds_compile_for_gpus_of_amd() {
    let clang = std::env::var("PLEACH_CLANG").unwrap_or("clang++-19".into());
    let folder = Folder(std::env::temp_dir().join(format!("pleach-amd-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let mut wrong = vec![];
    for source in SOURCES.iter().filter(|source| LEFT_OUT.iter().all(|(name, _)| *name != source.name)) {
        match assembly(&clang, &folder, source) {
            Err(errors) => wrong.push(format!("{}: {errors}", source.name)),
            Ok(assembly) => {
                let found = kernels(&assembly);
                let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
                let missing = source.entries.iter().filter(|entry| !names.contains(entry));
                wrong.extend(missing.map(|entry| format!("{}: no {entry} among {names:?}", source.name)));
                let spilling = found.iter().filter(|(_, spilled)| *spilled > 0);
                wrong.extend(spilling.map(|(name, spilled)| format!("{name} spills {spilled} registers")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_source_that_is_left_out_exists() {
    for (name, _) in LEFT_OUT {
        assert!(SOURCES.iter().any(|source| source.name == *name), "{name}");
    }
}
