//! Docstrings name the item: no sentence at the start of a line is about a noun that is somewhere else, and none is a
//! clause such as "In which numbers a run stores".

use crate::finding::Finding;
use crate::repository::SourceFile;

/// Openings that leave out the noun, each with a remedy.
const OPENINGS: &[(&str, &str)] = &[
    ("Those of ", "name the noun: \"The messages of ...\""),
    ("That of ", "name the noun: \"The message of ...\""),
    ("As [`", "begin with a noun or a verb: \"Returns the same as [`X`], ...\""),
];
/// Prepositions that begin a clause in place of a noun, if an interrogative follows.
const PREPOSITIONS: &[&str] =
    &["After", "At", "Between", "By", "For", "From", "In", "Of", "On", "Over", "Through", "To", "Until", "With"];
const INTERROGATIVES: &[&str] = &["how", "what", "where", "which", "whom", "whose"];

/// Lines of docstrings that begin with such an opening.
pub fn check(file: &SourceFile, text: &str) -> Vec<Finding> {
    let findings = text.lines().enumerate().filter_map(|(index, line)| {
        let (opening, remedy) = broken(docstring(line)?)?;
        let message = format!("a docstring must not begin with \"{opening}\"; {remedy}");
        Some(Finding { path: file.path.clone(), line: index + 1, message })
    });
    findings.collect()
}

/// The text of a line that belongs to a docstring.
fn docstring(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start)
}

/// The opening of `text` that is not allowed, with its remedy.
fn broken(text: &str) -> Option<(String, &'static str)> {
    let opening = OPENINGS.iter().find(|(opening, _)| text.starts_with(opening));
    if let Some((opening, remedy)) = opening {
        return Some((opening.trim_end().to_string(), remedy));
    }
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    let (first, second) = (words.next()?, words.next()?);
    (PREPOSITIONS.contains(&first) && INTERROGATIVES.contains(&second))
        .then(|| (format!("{first} {second}"), "a clause is not a subject: \"The data types in which ...\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        check(&SourceFile::of("a.rs", text), text).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_docstring_begins_with_a_noun_or_a_verb() {
        let begins = |line: &str| found(&format!("/// Bytes of a rank.\nfn a() {{}}\n\n    {line}\n"));
        let cases = [
            ("/// Those of a rank.", "\"Those of\"; name the noun: \"The messages of ...\""),
            ("//! That of a rank.", "\"That of\"; name the noun: \"The message of ...\""),
            ("/// As [`a`].", "\"As [`\"; begin with a noun or a verb: \"Returns the same as [`X`], ...\""),
            ("/// In which order.", "\"In which\"; a clause is not a subject: \"The data types in which ...\""),
            ("//! With whom.", "\"With whom\"; a clause is not a subject: \"The data types in which ...\""),
        ];
        for (line, expected) in cases {
            assert_eq!(begins(line), [format!("a.rs:4: a docstring must not begin with {expected}")], "{line}");
        }
    }

    #[test]
    fn other_text_is_left_alone() {
        for line in ["// Those of a rank.", "/// Those that end.", "/// In order.", "///", "let a = \"/// As [`\";"] {
            assert_eq!(found(line), [""; 0], "{line}");
        }
    }
}
