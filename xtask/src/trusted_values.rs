//! Values that make a command run, listen, send or write are the user's: only named files say of a value, or of the
//! text of a run file, that it is.

use crate::finding::Finding;
use crate::repository::SourceFile;
use crate::rust_code::code_only;

/// Words that say so.
const CLAIMS: [&str; 2] = ["of_command_line(", "Author::User"];

/// Files that use them, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/step/config/src/", "run files that the command line names"),
    ("crates/app/cli/src/convert/hugging_face.rs", "the folder of --out"),
    ("crates/app/cli/src/infer/eval.rs", "the text of --data"),
    ("crates/app/run/src/store/downloads.rs", "the texts of `data tokenize`"),
    ("crates/app/run/src/places/author.rs", "run files that the user's secret confirms"),
    ("crates/app/cli/src/main.rs", "the address of `fetch`"),
    ("crates/app/run/src/store/stored.rs", "the address of --resume, and keys of --set"),
    ("xtask/src/", "this list"),
];

/// Claims in product code of a file that is not allowed to have them.
pub fn check(file: &SourceFile, text: &str) -> Vec<Finding> {
    let is_product = file.path.contains("/src/") && file.stem() != "tests";
    if !is_product || ALLOWED.iter().any(|(place, _)| file.path.starts_with(place)) {
        return vec![];
    }
    let code = code_only(text);
    // Unit tests are the end of a file.
    let lines = code.lines().enumerate().take_while(|(_, line)| line.trim() != "mod tests {");
    let claims = lines.filter_map(|(index, line)| Some((index, CLAIMS.iter().find(|claim| line.contains(**claim))?)));
    let finding = |(index, claim): (usize, &&str)| {
        let message = format!(
            "`{claim}` says that the user has chosen a value; take it as `Trusted`, or add the file to {LIST}",
            LIST = file!()
        );
        Finding { path: file.path.clone(), line: index + 1, message }
    };
    claims.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile { path: path.into(), text: Some(text.into()) };
        check(&file, text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn only_named_files_answer_for_values() {
        let code = "let a = Trusted::of_command_line(b); // Author::User\nAuthor::Unknown\nkept.load(name, Author::User)\n\
                    mod tests {\nAuthor::User\n}\n";
        assert_eq!(lines("crates/app/run/src/training/resume.rs", code), [1, 3]);
        for allowed in ["crates/app/run/src/places/author.rs", "crates/app/cli/tests/b.rs"] {
            assert_eq!(lines(allowed, code), [0; 0], "{allowed}");
        }
    }
}
