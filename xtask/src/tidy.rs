//! The rules that a reader of this repository can rely on.

use crate::clocks;
use crate::columns;
use crate::dependencies::{self, parse_manifest};
use crate::docstrings;
use crate::documented;
use crate::file_access;
use crate::finding::Finding;
use crate::glossary;
use crate::layers;
use crate::page_links;
use crate::repository::{Repository, SourceFile};
use crate::rust_code::{code_only, function_lengths};
use crate::signposts;
use crate::test_programs;
use crate::trusted_values;
use crate::variables;
use crate::whole_tests;
use crate::words;

/// Longest source file, tests included.
const MAX_FILE_LINES: usize = 600;
/// Longest function.
const MAX_FUNCTION_LINES: usize = 80;
/// Functions that may be longer, because they are one exhaustive match: `(file, function)`.
const LONG_MATCHES: &[(&str, &str)] =
    &[("crates/kernels/cpu/src/execute.rs", "execute"), ("crates/kernels/cpu/src/parts.rs", "part")];
/// Files and folders that may contain unsafe code: memory that ranks share as threads and as processes, the calls of a
/// library of MPI and the memory that they use, those of NVIDIA's libraries, the arena, kernels, the map of a ring, a
/// counting allocator in a test.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/step/device/src/arena.rs",
    "crates/network/comm/src/host.rs",
    "crates/network/comm/src/threads/shared_memory.rs",
    "crates/network/comm/src/processes/pieces.rs",
    "crates/network/comm/src/processes/mpi_route.rs",
    "crates/network/comm/src/processes/peer_memory.rs",
    "crates/network/mpi/src/functions.rs",
    "crates/network/mpi/src/library.rs",
    "crates/network/mpi/src/mover.rs",
    "crates/kernels/nvidia/src/library.rs",
    "crates/kernels/nvidia/src/table.rs",
    "crates/kernels/nvidia/src/nvrtc/calls.rs",
    "crates/kernels/nvidia/src/driver/calls/",
    "crates/kernels/nvidia/src/cublaslt/calls.rs",
    "crates/kernels/nvidia/src/cudnn/calls.rs",
    "crates/kernels/nvidia/src/nccl/calls.rs",
    "crates/kernels/nvidia/src/tests/driver_errors.rs",
    "crates/kernels/nvidia/src/tests/soft_library.rs",
    "crates/training/blame/src/ring.rs",
    "crates/kernels/cpu/",
    "crates/training/data/src/memory_map.rs",
    "crates/training/data/tests/hostile_templates/counting.rs",
    "crates/testing/softgpu/src/execute/instruction_sets.rs",
    "crates/testing/softgpu_driver/",
    "crates/kernels/gpu_rank/src/staging.rs",
    "crates/proof/prove/tests/allocations.rs",
];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "misc"];
/// Placeholders of missing code or tests; written in two parts, for the rule holds for this file, too. Crate `needs`
/// makes the attribute of tests that lack a tool.
const STUBS: &[&str] = &[concat!("to", "do!"), concat!("unimple", "mented!"), concat!("#[ig", "nore")];
/// Folders of one machine, and hosts that ordinary clients find by themselves. Each begins a path or a host name.
const FOREIGN_PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("index.cra", "tes.io"),
    concat!("static.cra", "tes.io"),
];

/// Everything in the repository that breaks a rule, by file.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = texts(repository);
    findings.extend(glossary::check(repository));
    findings.extend(signposts::check(repository));
    findings.extend(page_links::check(repository));
    findings.extend(test_programs::check(repository));
    findings.extend(layers::check(repository));
    findings.extend(variables::check(repository));
    findings
}

/// The rules that hold for any set of files. The others expect certain pages.
fn texts(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, text) in repository.with_extension("rs") {
        findings.extend(sizes(file, text));
        findings.extend(words_in_code(file, text));
        findings.extend(file_access::check(file, text));
        findings.extend(clocks::check(file, text));
        findings.extend(trusted_values::check(file, text));
        findings.extend(documented::check(file, text));
        findings.extend(docstrings::check(file, text));
        findings.extend(whole_tests::check(file, text));
    }
    for file in &repository.files {
        findings.extend(columns::check(file));
        findings.extend(names(file));
        findings.extend(places(file));
    }
    findings.extend(crates(repository));
    findings.extend(readmes(repository));
    findings.extend(words::check(repository));
    findings
}

/// Every language's README prints the same commands.
fn readmes(repository: &Repository) -> Vec<Finding> {
    let is_readme = |file: &&SourceFile| file.path.starts_with("README.");
    let commands = |file: &SourceFile| -> Vec<String> {
        let text = file.text.as_deref().unwrap_or_default();
        text.lines().filter(|line| line.contains("cargo ")).map(str::to_string).collect()
    };
    let expected = repository.file("README.md").map(commands).unwrap_or_default();
    let others = repository.files.iter().filter(is_readme).filter(|file| commands(file) != expected);
    let message = "its lines with cargo commands are not those of README.md";
    others.map(|file| Finding { path: file.path.clone(), line: 0, message: message.into() }).collect()
}

fn sizes(file: &SourceFile, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_FILE_LINES {
        let message = format!("{lines} lines; at most {MAX_FILE_LINES}: split it by concept");
        findings.push(Finding { path: file.path.clone(), line: 0, message });
    }
    for function in function_lengths(text).into_iter().filter(|function| function.lines > MAX_FUNCTION_LINES) {
        if LONG_MATCHES.contains(&(file.path.as_str(), function.name.as_str())) {
            continue;
        }
        let message = format!("function {} has {} lines; at most {MAX_FUNCTION_LINES}", function.name, function.lines);
        findings.push(Finding { path: file.path.clone(), line: function.line, message });
    }
    findings
}

fn words_in_code(file: &SourceFile, text: &str) -> Vec<Finding> {
    let unsafe_allowed = UNSAFE_ALLOWED.iter().any(|place| file.path.starts_with(place));
    let mut findings = Vec::new();
    for (index, line) in code_only(text).lines().enumerate() {
        let mut report = |message: String| {
            findings.push(Finding { path: file.path.clone(), line: index + 1, message });
        };
        for stub in STUBS.iter().filter(|stub| line.contains(**stub)) {
            report(format!("{stub} stands for something that is not there"));
        }
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if !unsafe_allowed && words.any(|word| word == "unsafe") {
            report(format!("unsafe code; it is allowed in {} only", UNSAFE_ALLOWED.join(", ")));
        }
    }
    findings
}

fn names(file: &SourceFile) -> Option<Finding> {
    let folders = file.path.split('/').rev().skip(1);
    let empty = folders.chain([file.stem()]).find(|part| EMPTY_NAMES.contains(part))?;
    let message = format!("`{empty}` is not a name for a file or folder: name it after the concept inside");
    Some(Finding { path: file.path.clone(), line: 0, message })
}

fn places(file: &SourceFile) -> Vec<Finding> {
    // The lock file is written by cargo, with the registry in every entry.
    if file.path == "Cargo.lock" {
        return vec![];
    }
    let text = file.text.as_deref().unwrap_or_default();
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for place in FOREIGN_PLACES.iter().filter(|place| names_place(line, place)) {
            let message = format!("`{place}` means something on one machine only");
            findings.push(Finding { path: file.path.clone(), line: index + 1, message });
        }
    }
    findings
}

/// Whether `place` is in `line` at the start of a path, not in the middle of a longer one.
fn names_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let previous = line[..at].chars().next_back();
        !previous.is_some_and(|c| c.is_alphanumeric() || "._-}>".contains(c))
    })
}

fn crates(repository: &Repository) -> Vec<Finding> {
    let architecture = repository.file("ARCHITECTURE.md").and_then(|file| file.text.as_deref()).unwrap_or_default();
    let mut findings = Vec::new();
    for (file, text) in repository.with_extension("toml").filter(|(file, _)| file.path.ends_with("Cargo.toml")) {
        let mut report = |message: String| findings.push(Finding { path: file.path.clone(), line: 0, message });
        match parse_manifest(text) {
            Ok(None) => {}
            Ok(Some(manifest)) => {
                dependencies::violations(&manifest).into_iter().for_each(&mut report);
                dependencies::unused(&manifest, &code_of(repository, file)).into_iter().for_each(&mut report);
                if !architecture.contains(&format!("`{}`", manifest.name)) {
                    report(format!("ARCHITECTURE.md does not name `{}`", manifest.name));
                }
            }
            Err(error) => report(error),
        }
    }
    findings
}

/// The code of the folder `src` of a manifest's crate.
fn code_of(repository: &Repository, manifest: &SourceFile) -> String {
    let sources = format!("{}src/", manifest.path.trim_end_matches("Cargo.toml"));
    let files = repository.with_extension("rs").filter(|(file, _)| file.path.starts_with(&sources));
    files.map(|(_, text)| code_only(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        texts(&Repository { files: vec![SourceFile::of(path, text)] }).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn each_rule_finds_its_violation() {
        let long_file = "// a line\n".repeat(601);
        let long_function = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(79));
        let cases: [(&str, &str, &str); 9] = [
            (
                "crates/step/mesh/src/a.rs",
                "fn a() { std::fs::write(b, c) }\n",
                "crates/step/mesh/src/a.rs:1: `fs::write(`",
            ),
            ("crates/step/mesh/src/a.rs", &long_file, "601 lines; at most 600"),
            ("crates/step/mesh/src/a.rs", &long_function, "function long has 81 lines; at most 80"),
            (
                "crates/step/mesh/src/a.rs",
                "fn a() {\n    unsafe { b() }\n}\n",
                "crates/step/mesh/src/a.rs:2: unsafe code",
            ),
            ("crates/step/mesh/src/a.rs", concat!("fn a() { to", "do!() }\n"), concat!("to", "do! stands for")),
            (
                "crates/step/mesh/src/tests/a.rs",
                concat!("#[test]\n#[ig", "nore]\nfn a() {}\n"),
                concat!("#[ig", "nore stands for"),
            ),
            ("crates/step/mesh/src/utils.rs", "", "`utils` is not a name"),
            ("docs/a.md", concat!("see `/wo", "rk/a`\n"), "one machine only"),
            ("crates/odd/Cargo.toml", "[package]\nname = \"odd\"\n", "crate odd is not in the table"),
        ];
        for (path, text, expected) in cases {
            let found = findings(path, text);
            assert!(found.iter().any(|line| line.contains(expected)), "{path}: {found:?} lacks {expected}");
        }
    }

    #[test]
    fn readmes_print_the_same_commands() {
        let files = vec![SourceFile::of("README.md", "cargo test\n"), SourceFile::of("README.fr.md", "cargo tset\n")];
        let findings = texts(&Repository { files });
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].path, "README.fr.md");
    }

    #[test]
    fn comments_strings_kernels_and_longer_paths_are_left_alone() {
        assert_eq!(findings("crates/step/mesh/src/a.rs", "// unsafe todo!\nconst A: &str = \"unsafe\";\n"), [""; 0]);
        assert_eq!(findings("crates/kernels/cpu/src/kernel.rs", "fn a() {\n    unsafe { b() }\n}\n"), [""; 0]);
        assert_eq!(findings("docs/a.md", "a frame/wo",), [""; 0]);
        assert_eq!(findings("docs/a.md", concat!("see docs/wo", "rk/a\n")), [""; 0]);
    }
}
