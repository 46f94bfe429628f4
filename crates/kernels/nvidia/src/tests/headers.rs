//! Every declaration of the tables against NVIDIA's own headers, by the C++ compiler.

use crate::tests::toolkit;

use std::path::Path;
use std::process::Command;

use nvidia::headers::{Header, all};

/// Compiles the program of a header, and returns the compiler's errors.
fn errors(root: &Path, header: &Header) -> Vec<String> {
    let name = header.includes[0];
    let file =
        std::env::temp_dir().join(format!("pleach-{}-{:?}.cpp", std::process::id(), std::thread::current().id()));
    std::fs::write(&file, header.cpp()).expect("written");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-fsyntax-only", "-w", "-fmax-errors=0"]);
    for folder in toolkit::include_folders(root, name) {
        compiler.arg("-isystem").arg(folder);
    }
    let output = compiler.arg(&file).output().expect("g++; install it to compare declarations with headers");
    std::fs::remove_file(&file).expect("removed");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let errors: Vec<String> = text.lines().filter(|line| line.contains("error: ")).map(str::to_owned).collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{text}");
    errors
}

#[needs::cuda]
#[test]
fn every_declaration_is_that_of_the_header() {
    let root = toolkit::folder();
    let mut functions = 0;
    for header in all() {
        let errors = errors(&root, &header);
        assert!(errors.is_empty(), "{:?}:\n{}", header.includes, errors.join("\n"));
        functions += header.functions.len();
    }
    assert!(functions >= 90, "{functions} functions");
}

/// Changes every declaration of a header: the rules that reject must reject each.
#[needs::cuda]
#[test]
fn every_changed_declaration_is_found() {
    let root = toolkit::folder();
    all().into_iter().for_each(|header| assert_changes_are_found(&root, header));
}

/// cuDNN has a wheel of its own.
#[needs::cudnn]
#[test]
fn declarations_of_cudnn_are_those_of_its_header() {
    let root = toolkit::folder();
    let header = nvidia::cudnn::header();
    let errors = errors(&root, &header);
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    assert_changes_are_found(&root, header);
}

fn assert_changes_are_found(root: &Path, mut header: Header) {
    let mut expected = vec![];
    for function in &mut header.functions {
        // One more argument, and types of other sizes.
        let none = function.pointer.ends_with("(*)()");
        function.pointer.insert_str(function.pointer.len() - 1, if none { "int" } else { ", int" });
        expected.push(format!("static assertion failed: {}", function.symbol));
        expected
            .extend(function.since.map(|since| format!("static assertion failed: {} since {since}", function.symbol)));
        for (name, size) in &mut function.types {
            *size += 1;
            expected.push(format!("static assertion failed: size of {name} in {}", function.symbol));
        }
    }
    for (name, value) in &mut header.constants {
        *value += 1;
        expected.push(format!("static assertion failed: {name}"));
    }
    for layout in &mut header.layouts {
        if let Some(size) = &mut layout.size {
            *size += 1;
            expected.push(format!("static assertion failed: size of {}", layout.name));
        }
        for (field, offset) in &mut layout.fields {
            *offset += 1;
            expected.push(format!("static assertion failed: {}.{field}", layout.name));
        }
    }
    let errors = errors(root, &header);
    for expected in expected {
        assert!(errors.iter().any(|error| error.ends_with(&expected)), "{:?}: no {expected}", header.includes);
    }
}

/// One argument of another type, the result of another type, and another version: as a slip would be.
#[needs::cuda]
#[test]
fn one_slip_is_found_and_named() {
    let root = toolkit::folder();
    type Slip = fn(&mut Header);
    let slips: [(&str, Slip); 4] = [
        ("cuMemCreate", |header| slip(header, "cuMemCreate", "size_t", "unsigned int")),
        ("cuStreamQuery", |header| slip(header, "cuStreamQuery", "CUresult (", "int (")),
        ("cuMemcpyHtoDAsync_v2", |header| slip(header, "cuMemcpyHtoDAsync_v2", "void const*", "void*")),
        ("cuDeviceGetUuid", |header| {
            let uuid = header.functions.iter_mut().find(|function| function.symbol == "cuDeviceGetUuid_v2");
            uuid.expect("the function").since = Some(11_030);
        }),
    ];
    for (expected, slip) in slips {
        let mut driver = all().into_iter().find(|header| header.includes[0] == "cuda.h").expect("the driver");
        slip(&mut driver);
        let errors = errors(&root, &driver);
        let asserted = errors.iter().filter(|error| error.contains("static assertion"));
        let are_all_of_it = asserted.into_iter().all(|error| error.contains(expected));
        assert!(
            errors.first().is_some_and(|error| error.contains(expected)) && are_all_of_it,
            "{expected}: {errors:?}"
        );
    }
}

fn slip(header: &mut Header, symbol: &str, from: &str, to: &str) {
    let function = header.functions.iter_mut().find(|function| function.symbol == symbol).expect("the function");
    assert!(function.pointer.contains(from), "{} has {from}", function.pointer);
    function.pointer = function.pointer.replacen(from, to, 1);
}
