//! Circles and loops in planted crates, and in the repository.

use xtask::loops;
use xtask::repository::{Repository, SourceFile};

/// The loops of a crate of these files below `src`.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let file = |(path, text): &(&str, &str)| SourceFile::of(&format!("crates/a/src/{path}"), text);
    let repository = Repository { files: files.iter().map(file).collect() };
    loops::loops(&repository).iter().map(|one| format!("{}: {one}", one.folder)).collect()
}

const CIRCLE: &[(&str, &str)] = &[
    ("lib.rs", "mod b;\nmod c;\nmod d;\nmod e;\npub use e::E;\n"),
    ("b.rs", "use crate::c::C;\npub struct B(C);\n"),
    ("c.rs", "pub struct C(super::d::D);\n"),
    ("d.rs", "use crate::E;\npub struct D(E);\n"),
    ("e.rs", "use crate::b::*;\npub struct E(B);\n"),
];

#[test]
fn four_files_that_use_each_other_are_found_through_re_exports_and_globs() {
    let text = "crates/a/src: files use each other: b.rs, c.rs, d.rs, e.rs\n    b.rs -> c.rs: C\n    c.rs -> d.rs: D\n    \
                d.rs -> e.rs: E\n    e.rs -> b.rs: B";
    assert_eq!(found(CIRCLE), [text]);
}

#[test]
fn three_files_may_use_each_other_and_tests_do_not_count() {
    let changed = |path: &str, text: &'static str| {
        let replaced = |(own, old): &(&'static str, &'static str)| (*own, if *own == path { text } else { *old });
        found(&CIRCLE.iter().map(replaced).collect::<Vec<_>>())
    };
    assert_eq!(changed("d.rs", "use crate::b::B;\npub struct D(B);\n"), [""; 0]);
    assert_eq!(changed("d.rs", "#[cfg(test)]\nuse crate::E;\npub struct D;\n"), [""; 0]);
    assert_eq!(changed("d.rs", "// crate::e::E\npub const D: &str = \"crate::e::E\";\n"), [""; 0]);
    assert_eq!(changed("e.rs", "use crate::b;\npub struct E;\n"), [""; 0]);
    assert_eq!(changed("e.rs", "use crate::b;\npub struct E(b::B);\n").len(), 1);
}

#[test]
fn folders_that_use_each_other_are_found() {
    let files = [
        ("lib.rs", "mod b;\nmod c;\n"),
        ("b/mod.rs", "mod inner;\npub(crate) use inner::B;\n"),
        ("b/inner.rs", "pub struct B(super::super::c::C);\n"),
        ("c.rs", "pub struct C;\n#[path = \"c/other.rs\"]\nmod d;\n"),
        ("c/other.rs", "use crate::b::B;\nstruct D(B);\n"),
    ];
    let text =
        "crates/a/src: folders use each other: b/, c/\n    b/inner.rs -> c.rs: C\n    c/other.rs -> b/inner.rs: B";
    assert_eq!(found(&files), [text]);
}

#[test]
fn a_file_and_the_files_below_it_are_one_place() {
    let files = [
        ("lib.rs", "mod b;\n"),
        ("b.rs", "mod c;\nmod d;\nmod e;\npub struct B(c::C);\n"),
        ("b/c.rs", "use super::d::D;\npub struct C(D);\n"),
        ("b/d.rs", "use super::e::E;\npub struct D(E);\n"),
        ("b/e.rs", "use super::B;\npub struct E(B);\n"),
    ];
    assert_eq!(found(&files), [""; 0]);
}

#[test]
fn no_crate_has_another_loop_than_those_that_are_open() {
    let repository = Repository::open().expect("every file can be read");
    let findings: Vec<String> = loops::check(&repository).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
