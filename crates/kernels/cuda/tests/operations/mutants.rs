//! Kernels with one fault each, made from the text: a barrier, fence, wait, arrival or commit that is missing, a wait
//! that leaves one group more open, an index or a bound that is off by one.

use std::collections::BTreeMap;

/// A fault of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Of the order between threads, copies and products of warpgroups.
    Order,
    Bound,
    Index,
}

/// A changed text.
pub struct Mutant {
    /// Where and how, for people and for the list of those that change nothing. Of lines that are in a text more
    /// than once, the place is counted.
    pub name: String,
    pub fault: Fault,
    pub text: String,
}

/// Headers of plain arithmetic: what they compute is compared in all kernels, and they have neither indices nor
/// barriers.
const LEFT_ALONE: &[&str] = &["math.cuh", "types.cuh", "philox.cuh", "element.cuh", "tensor.cuh"];

/// How statements begin that order threads, copies and products of warpgroups. All have a line of their own.
const ORDERING: &[&str] = &[
    "__syncthreads();",
    "__syncwarp();",
    "begin_turn(",
    "end_turn(",
    "asm volatile(\"fence.",
    "bulk::arrive(",
    "bulk::expect_bytes(",
    "bulk::initialize_barrier(",
    "bulk::publish_barriers(",
    "bulk::wait(",
    "finish_copies();",
    "publish_copies();",
    "ring.release(",
    "tensor_core::end_copies();",
    "tensor_core::wait_for_copies<",
    "warpgroup::begin();",
    "warpgroup::end();",
    "warpgroup::wait<",
];

/// All mutants of a text in which marks of lines name the files.
pub fn mutants(whole: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = whole.lines().collect();
    let mut all = vec![];
    let mut file = "";
    for (index, line) in lines.iter().enumerate() {
        if let Some(name) = line.strip_prefix("#line ").and_then(|rest| rest.split('"').nth(1)) {
            file = name;
            continue;
        }
        if LEFT_ALONE.contains(&file) {
            continue;
        }
        // Bounds of loops that are unrolled whole count registers, after which there are no others.
        if index > 0 && lines[index - 1].trim() == "#pragma unroll" {
            continue;
        }
        for (changed, how, fault) in changes(line) {
            let mut text = lines.clone();
            text[index] = &changed;
            all.push(Mutant { name: format!("{file}: {}: {how}", line.trim()), fault, text: text.join("\n") + "\n" });
        }
    }
    count_places(&mut all);
    all
}

/// Makes names of those that are alike.
fn count_places(all: &mut [Mutant]) {
    let mut places: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for mutant in all.iter() {
        places.entry(mutant.name.clone()).or_default().0 += 1;
    }
    for mutant in all {
        let Some((total, seen)) = places.get_mut(&mutant.name) else { continue };
        *seen += 1;
        if *total > 1 {
            mutant.name += &format!(", place {seen} of {total}");
        }
    }
}

/// The line with one fault, and what the fault is.
fn changes(line: &str) -> Vec<(String, String, Fault)> {
    let code = line.split("//").next().unwrap_or_default();
    let mut all = vec![];
    if code.ends_with(';') && ORDERING.iter().any(|start| code.trim_start().starts_with(start)) {
        all.push((String::new(), "left out".into(), Fault::Order));
        if let Some((start, rest)) = code.split_once('<')
            && let Some((open, end)) = rest.split_once('>')
        {
            all.push((format!("{start}<({open}) + 1>{end}"), "one more open".into(), Fault::Order));
        }
        return all;
    }
    for (place, _) in code.match_indices(" < ") {
        all.push((
            format!("{} <= {}", &line[..place], &line[place + 3..]),
            format!("<= for < {}", ordinal(code, place)),
            Fault::Bound,
        ));
    }
    for (start, end) in subscripts(code) {
        let inside = &code[start + 1..end];
        let changed = format!("{}[({inside}) + 1]{}", &line[..start], &line[end + 1..]);
        all.push((changed, format!("[{inside}] + 1 {}", ordinal(code, start)), Fault::Index));
    }
    for (start, end) in row_arguments(code) {
        let inside = &code[start + 1..end];
        let changed = format!("{}(({inside}) + 1){}", &line[..start], &line[end + 1..]);
        all.push((changed, format!("row({inside}) + 1 {}", ordinal(code, start)), Fault::Index));
    }
    all
}

/// The brackets of arguments of `row(..)`: the number of a row in a matrix.
fn row_arguments(code: &str) -> Vec<(usize, usize)> {
    let end_of = |start: usize| {
        let mut depth = 0;
        code[start..].bytes().position(|byte| {
            depth += i32::from(byte == b'(') - i32::from(byte == b')');
            depth == 0
        })
    };
    let calls = code.match_indices(".row(").map(|(place, name)| place + name.len() - 1);
    calls.filter_map(|start| Some((start, start + end_of(start)?))).collect()
}

/// Which of the places of a line this is.
fn ordinal(code: &str, place: usize) -> String {
    format!("at column {}", place - (code.len() - code.trim_start().len()))
}

/// Brackets that read or write an element: not those of captures, of declarations and of parameters.
fn subscripts(code: &str) -> Vec<(usize, usize)> {
    let trimmed = code.trim_start();
    let declares =
        ["__shared__", "f32 ", "u32 ", "i64 ", "E ", "uint4 ", "const ", "QueryGradient ", "constexpr", "__device__"]
            .iter()
            .any(|word| trimmed.starts_with(word));
    let mut open = vec![];
    let mut found = vec![];
    for (place, byte) in code.bytes().enumerate() {
        match byte {
            b'[' => open.push(place),
            b']' => {
                let Some(start) = open.pop() else { continue };
                let before = code[..start].bytes().next_back().unwrap_or(b' ');
                let is_element = before.is_ascii_alphanumeric() || matches!(before, b')' | b']' | b'_');
                // A declaration has its brackets after its name, before any `=`.
                let is_declared = declares && !code[..start].contains('=');
                if is_element && !is_declared {
                    found.push((start, place));
                }
            }
            _ => {}
        }
    }
    found
}

#[test]
fn barriers_waits_bounds_and_indices_are_changed_one_at_a_time() {
    let text = "#line 1 \"types.cuh\"\na[1];\n#line 1 \"a.cu\"\n    __shared__ f32 a[32];\n    __syncthreads();\n    \
                __syncthreads();\n    warpgroup::wait<MOST - 1>();\n    for (u32 i = 0; i < n; i++) {\n    into[i] = x[y[i]] + 1; // a[1]\n    \
                each([&](u32 i) {\n    x.row(first(i) + 2) = 0;\n";
    let names: Vec<String> = mutants(text).into_iter().map(|mutant| mutant.name).collect();
    let expected = [
        "a.cu: __syncthreads();: left out, place 1 of 2",
        "a.cu: __syncthreads();: left out, place 2 of 2",
        "a.cu: warpgroup::wait<MOST - 1>();: left out",
        "a.cu: warpgroup::wait<MOST - 1>();: one more open",
        "a.cu: for (u32 i = 0; i < n; i++) {: <= for < at column 17",
        "a.cu: into[i] = x[y[i]] + 1; // a[1]: [i] + 1 at column 4",
        "a.cu: into[i] = x[y[i]] + 1; // a[1]: [i] + 1 at column 13",
        "a.cu: into[i] = x[y[i]] + 1; // a[1]: [y[i]] + 1 at column 11",
        "a.cu: x.row(first(i) + 2) = 0;: row(first(i) + 2) + 1 at column 5",
    ];
    assert_eq!(names, expected);
    let line = |mutant: usize, line| mutants(text)[mutant].text.lines().nth(line).map(String::from);
    assert_eq!(line(3, 6).as_deref(), Some("    warpgroup::wait<(MOST - 1) + 1>();"));
    assert_eq!(line(6, 8).as_deref(), Some("    into[i] = x[y[(i) + 1]] + 1; // a[1]"));
    assert_eq!(line(8, 10).as_deref(), Some("    x.row((first(i) + 2) + 1) = 0;"));
}
