//! The list of sources and of the kernels in them.

/// A file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name in `kernels/`, without the ending.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
    /// Its kernels.
    pub entries: &'static [&'static str],
}

/// `source!("file": "kernel", ..)`
macro_rules! source {
    ($name:literal: $($entry:literal),* $(,)?) => {
        Source {
            name: $name,
            text: include_str!(concat!("../kernels/", $name, ".cu")),
            entries: &[$($entry),*],
        }
    };
}

/// All files of kernels; a file is compiled at a time.
pub const SOURCES: &[Source] = &[
    source!("mat_mul":),
    source!("column_sum":),
    source!("norm":),
    source!("rotary":),
    source!("attention":),
    source!("attention_backward":),
    source!("activation":),
    source!("dropout":),
    source!("embedding":),
    source!("cross_entropy":),
    source!("rounded_sum":),
    source!("element_wise":),
    source!("initialize":),
    source!("fixed_point":),
    source!("adamw":),
];

/// A file that sources include.
macro_rules! header {
    ($name:literal) => {
        ($name, include_str!(concat!("../kernels/", $name)))
    };
}

/// What sources include: names and texts.
const HEADERS: &[(&str, &str)] = &[
    header!("types.cuh"),
    header!("tensor.cuh"),
    header!("element.cuh"),
    header!("math.cuh"),
    header!("philox.cuh"),
    header!("dropout_mask.cuh"),
    header!("row_sum.cuh"),
];

impl Source {
    /// The text with each included file in the place where it is first included, so that a compiler needs no other file.
    pub fn whole(&self) -> String {
        let mut whole = String::new();
        append(&mut whole, &mut vec![], &format!("{}.cu", self.name), self.text);
        whole
    }
}

/// Appends the text of a file with what it includes. Marks of lines keep the names and numbers of the files in messages.
fn append(whole: &mut String, included: &mut Vec<&'static str>, name: &str, text: &str) {
    whole.push_str(&format!("#line 1 \"{name}\"\n"));
    for (index, line) in text.lines().enumerate() {
        let header = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        match header.and_then(|header| HEADERS.iter().find(|(name, _)| *name == header)) {
            Some((header, _)) if included.contains(header) => whole.push('\n'),
            Some((header, text)) => {
                included.push(header);
                append(whole, included, header, text);
                whole.push_str(&format!("#line {} \"{name}\"\n", index + 2));
            }
            None if line == "#pragma once" => whole.push('\n'),
            None => {
                whole.push_str(line);
                whole.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_header_is_included_once_and_none_is_left() {
        for source in SOURCES {
            let whole = source.whole();
            assert!(!whole.contains("#include"), "{} includes what is not listed", source.name);
            for (header, text) in HEADERS {
                let first = text.lines().next().unwrap_or_default();
                assert!(whole.matches(first).count() <= 1, "{header} in {}", source.name);
            }
        }
    }

    #[test]
    fn the_list_names_exactly_the_kernels_of_the_files() {
        let mut all = vec![];
        for source in SOURCES {
            let after = source.text.split("extern \"C\" __global__").skip(1);
            let names: Vec<&str> = after
                .map(|rest| {
                    rest.split('(')
                        .find_map(|part| part.split_whitespace().last().filter(|n| *n != "__launch_bounds__"))
                })
                .map(|name| name.expect("a name"))
                .collect();
            assert_eq!(names, source.entries, "{}", source.name);
            all.extend(names);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "names are those of one kernel each");
    }
}
