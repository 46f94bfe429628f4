//! Files are opened by crate `files`, which knows what each may be: elsewhere only files that no user names are opened.

use crate::finding::Finding;
use crate::repository::SourceFile;
use crate::rust_code::code_only;

/// Calls that open, read, write or copy files.
const CALLS: &[&str] = &[
    "fs::write(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::copy(",
    "File::open(",
    "File::create(",
    "File::options(",
    "OpenOptions::new(",
];

/// Files and folders that may use them, each with the files that it opens.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/base/files/", "the reader and the writer"),
    ("crates/app/cli/src/doctor/", "files of the system"),
    ("crates/app/run/src/launch/failure_report.rs", "/proc and /sys"),
    ("crates/app/run/src/launch/leftovers.rs", "/proc"),
    ("crates/app/run/src/memory/", "/proc and /sys"),
    ("crates/network/comm/src/processes/process_map.rs", "/proc"),
    ("crates/network/mpi/src/find.rs", "/proc"),
    ("crates/testing/softgpu_driver/src/settings.rs", "the settings of a library for tests"),
    ("crates/network/mpi/src/loader.rs", "the configuration of the loader"),
    ("crates/training/checkpoint/src/disk.rs", "folders, to make names last"),
    ("crates/base/secrets/src/secret.rs", "a new secret, for its owner alone"),
    ("crates/kernels/nvidia/src/nvrtc/cache.rs", "the cache of compiled kernels"),
    (
        "crates/training/train/src/engine/run_device.rs",
        "the archive of compiled kernels, a regular file of a fixed name",
    ),
    ("crates/testing/surveys/", "pages of this repository"),
    ("crates/testing/testkit/src/run_files.rs", "examples of this repository"),
];

/// Calls in product code of a file that is not allowed to have them.
pub fn check(file: &SourceFile, text: &str) -> Vec<Finding> {
    if !file.path.starts_with("crates/")
        || !file.is_product()
        || ALLOWED.iter().any(|(place, _)| file.path.starts_with(place))
    {
        return vec![];
    }
    // Unit tests are the end of a file.
    let code = code_only(text);
    let lines = code.lines().enumerate().take_while(|(_, line)| line.trim() != "mod tests {");
    let mut findings = vec![];
    for (index, line) in lines {
        for call in CALLS.iter().filter(|call| calls(line, call)) {
            let message = format!(
                "`{call}` does not say which file is meant; use crate `files`, or add it to {LIST}",
                LIST = file!()
            );
            findings.push(Finding { path: file.path.clone(), line: index + 1, message });
        }
    }
    findings
}

/// Whether `line` has `call`, and not as the end of a longer name.
fn calls(line: &str, call: &str) -> bool {
    line.match_indices(call).any(|(at, _)| {
        let previous = line[..at].chars().next_back();
        !previous.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&SourceFile::of(path, text), text).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn each_call_is_found_in_product_code_alone() {
        for call in CALLS {
            let text = format!("fn a() {{\n    {call}b);\n}}\n");
            assert_eq!(lines("crates/step/mesh/src/a.rs", &text), [2], "{call}");
            assert_eq!(lines("crates/step/mesh/src/tests/a.rs", &text), [0; 0]);
            assert_eq!(lines("crates/base/files/src/a.rs", &text), [0; 0]);
            let tested = format!("#[cfg(test)]\nmod tests {{\n    {call}b);\n}}\n");
            assert_eq!(lines("crates/step/mesh/src/a.rs", &tested), [0; 0]);
            assert_eq!(lines("crates/step/mesh/src/a.rs", &format!("// {call}b)\n")), [0; 0]);
            assert_eq!(lines("crates/step/mesh/src/a.rs", &format!("fn a() {{ Token{call}b) }}\n")), [0; 0]);
        }
    }

    #[test]
    fn every_exception_is_in_use() {
        let repository = crate::repository::Repository::open().expect("every file can be read");
        for (place, _) in ALLOWED {
            let used = repository.with_extension("rs").any(|(file, text)| {
                file.path.starts_with(place) && CALLS.iter().any(|call| code_only(text).contains(call))
            });
            assert!(used, "{place} opens no file");
        }
    }
}
