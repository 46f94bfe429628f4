//! Test programs. Cargo links each of them and runs one after the other, so a package has few.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::finding::Finding;
use crate::repository::Repository;

/// Most programs of one package: its unit tests, and one suite of other tests.
const MAX_OF_PACKAGE: usize = 2;
/// Most programs of all packages.
const MAX: usize = 46;
/// Kinds of targets other than libraries, with their folders and whether cargo tests them by default.
const TARGETS: [(&str, &str, bool); 4] =
    [("bin", "src/bin", true), ("test", "tests", true), ("bench", "benches", false), ("example", "examples", false)];

/// Packages with too many programs, too many programs in all, and libraries whose doc tests rustdoc looks for in vain,
/// or does not run.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut all = 0;
    for (file, text) in repository.with_extension("toml").filter(|(file, _)| file.path.ends_with("Cargo.toml")) {
        let Ok(manifest) = text.parse::<Table>() else { continue };
        if !manifest.contains_key("package") {
            continue;
        }
        let mut report = |message: String| findings.push(Finding { path: file.path.clone(), line: 0, message });
        let package = Package { repository, folder: file.path.trim_end_matches("Cargo.toml"), manifest: &manifest };
        let programs = package.programs();
        all += programs.len();
        if programs.len() > MAX_OF_PACKAGE {
            report(format!("test programs {} must be at most {MAX_OF_PACKAGE}; join them", programs.join(", ")));
        }
        match (package.has_library() && package.is_on("lib", "doctest"), package.has_doc_tests()) {
            (true, false) => report("there are no doc tests; set `doctest = false` in [lib]".into()),
            (false, true) => report("doc tests must run; remove `doctest = false`".into()),
            (true, true) | (false, false) => {}
        }
    }
    if all > MAX {
        let message = format!("{all} test programs must be at most {MAX}; join some, or set `test = false`");
        findings.push(Finding { path: "Cargo.toml".into(), line: 0, message });
    }
    findings
}

struct Package<'a> {
    repository: &'a Repository,
    /// Where its manifest is, with `/` at the end unless it is empty.
    folder: &'a str,
    manifest: &'a Table,
}

impl Package<'_> {
    /// Paths of the roots of all programs that `cargo test` runs.
    fn programs(&self) -> Vec<String> {
        let mut programs = BTreeSet::new();
        if self.has_library() && self.is_on("lib", "test") {
            programs.insert("src/lib.rs".to_string());
        }
        if self.has("src/main.rs") {
            programs.insert("src/main.rs".to_string());
        }
        for (found, folder) in [("autobins", "src/bin"), ("autotests", "tests")] {
            if self.is_on("package", found) {
                programs.extend(self.roots(folder));
            }
        }
        for (kind, folder, default) in TARGETS {
            for (path, is_tested) in self.declared(kind, folder) {
                if is_tested.unwrap_or(default) {
                    programs.insert(path);
                } else {
                    programs.remove(&path);
                }
            }
        }
        programs.into_iter().collect()
    }

    /// Roots of the targets of a kind in the manifest, each with its key `test`.
    fn declared(&self, kind: &str, folder: &str) -> Vec<(String, Option<bool>)> {
        let targets = self.manifest.get(kind).and_then(Value::as_array).into_iter().flatten();
        let declared = targets.filter_map(|target| {
            let given = |key: &str| target.get(key).and_then(Value::as_str);
            let name = given("name").unwrap_or_default();
            let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/main.rs")];
            let path = given("path").map(String::from).or_else(|| places.into_iter().find(|path| self.has(path)))?;
            Some((path, target.get("test").and_then(Value::as_bool)))
        });
        declared.collect()
    }

    /// `folder/*.rs` and `folder/*/main.rs`.
    fn roots(&self, folder: &str) -> BTreeSet<String> {
        let prefix = format!("{}{folder}/", self.folder);
        let below = self.repository.with_extension("rs").filter_map(|(file, _)| file.path.strip_prefix(&prefix));
        let is_root = |path: &&str| !path.contains('/') || path.ends_with("/main.rs") && path.matches('/').count() == 1;
        below.filter(is_root).map(|path| format!("{folder}/{path}")).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.repository.file(&format!("{}{path}", self.folder)).is_some()
    }

    fn has_library(&self) -> bool {
        self.has("src/lib.rs")
    }

    /// Whether `key` of a table of the manifest is not false.
    fn is_on(&self, table: &str, key: &str) -> bool {
        self.manifest.get(table).and_then(|table| table.get(key)).and_then(Value::as_bool).unwrap_or(true)
    }

    fn has_doc_tests(&self) -> bool {
        let sources = format!("{}src/", self.folder);
        self.repository.with_extension("rs").any(|(file, text)| file.path.starts_with(&sources) && has_doc_tests(text))
    }
}

/// Whether a block of code in doc comments is Rust.
fn has_doc_tests(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("//!").or_else(|| line.strip_prefix("///"))
    });
    let mut is_inside = false;
    comments.filter_map(|line| line.trim_start().strip_prefix("```")).any(|language| {
        is_inside = !is_inside;
        let first = language.split(',').next().unwrap_or_default();
        is_inside && ["", "rust", "no_run", "compile_fail", "should_panic", "ignore"].contains(&first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::SourceFile;

    fn findings(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut all = vec![SourceFile::of("crates/a/Cargo.toml", &format!("[package]\nname = \"a\"\n{manifest}"))];
        all.extend(files.iter().map(|(path, text)| SourceFile::of(&format!("crates/a/{path}"), text)));
        check(&Repository { files: all }).iter().map(Finding::to_string).collect()
    }

    const FILES: [(&str, &str); 6] = [
        ("src/lib.rs", ""),
        ("src/bin/b.rs", ""),
        ("src/bin/c/main.rs", ""),
        ("tests/d.rs", ""),
        ("tests/e/main.rs", ""),
        ("tests/e/f.rs", ""),
    ];

    #[test]
    fn programs_of_a_package_are_counted_by_its_files_and_its_manifest() {
        let all = "crates/a/Cargo.toml: test programs src/bin/b.rs, src/bin/c/main.rs, src/lib.rs, tests/d.rs, tests/e/main.rs \
                   must be at most 2; join them";
        assert_eq!(findings("[lib]\ndoctest = false\n", &FILES), [all]);
        let bins = "[lib]\ndoctest = false\n[[bin]]\nname = \"b\"\ntest = false\n[[bin]]\nname = \"c\"\ntest = false\n";
        assert_eq!(findings(&format!("autotests = false\n{bins}"), &FILES), [""; 0]);
        let suite = "[[test]]\nname = \"suite\"\npath = \"tests/d.rs\"\n";
        assert_eq!(findings(&format!("autotests = false\n{bins}{suite}"), &FILES), [""; 0]);
        let bench = "[[bench]]\nname = \"g\"\npath = \"benches/g.rs\"\ntest = true\n";
        let joined =
            "crates/a/Cargo.toml: test programs benches/g.rs, src/lib.rs, tests/d.rs must be at most 2; join them";
        assert_eq!(findings(&format!("autotests = false\n{bins}{suite}{bench}"), &FILES), [joined]);
    }

    #[test]
    fn programs_of_all_packages_are_counted() {
        let of = |number: usize| {
            let manifest = format!("[package]\nname = \"a{number}\"\n[lib]\ndoctest = false\n");
            let folder = format!("crates/a{number}");
            [
                SourceFile::of(&format!("{folder}/Cargo.toml"), &manifest),
                SourceFile::of(&format!("{folder}/src/lib.rs"), ""),
            ]
        };
        let found = |packages: usize| check(&Repository { files: (0..packages).flat_map(of).collect() });
        assert_eq!(found(MAX), []);
        let expected = "Cargo.toml: 47 test programs must be at most 46; join some, or set `test = false`";
        assert_eq!(found(MAX + 1).iter().map(Finding::to_string).collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn doc_tests_run_where_there_are_some() {
        let text = "//! ```text\n//! a\n//! ```\n";
        let tested = "/// ```compile_fail,E0308\n/// a\n/// ```\n";
        let (off, on) = ("[lib]\ndoctest = false\n", "");
        assert_eq!(findings(off, &[("src/lib.rs", text)]), [""; 0]);
        assert_eq!(findings(on, &[("src/lib.rs", tested)]), [""; 0]);
        let idle = "crates/a/Cargo.toml: there are no doc tests; set `doctest = false` in [lib]";
        assert_eq!(findings(on, &[("src/lib.rs", text)]), [idle]);
        let forgotten = "crates/a/Cargo.toml: doc tests must run; remove `doctest = false`";
        assert_eq!(findings(off, &[("src/lib.rs", tested)]), [forgotten]);
    }
}
