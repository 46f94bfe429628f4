//! Dates of the host may be set at any moment, so nothing is measured or waited for by them: only named files read the
//! date, to write it down.

use crate::finding::Finding;
use crate::repository::SourceFile;
use crate::rust_code::code_only;

/// Files that read or name dates, each with the reason.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/training/blame/src/clock.rs", "the date of a process's first entry"),
    ("crates/app/run/src/places/kept_run.rs", "the name of a folder that is kept"),
    ("crates/app/run/src/training/measured_trace.rs", "the date of a trace, to align processes"),
    ("crates/app/cli/src/run_report/follow.rs", "dates of files, to see that they changed"),
    ("crates/app/run/src/training/progress.rs", "dates in records"),
    ("crates/app/run/src/records/record.rs", "dates in records"),
    ("crates/app/run/src/watch/numbers.rs", "the date of the last step"),
    ("crates/app/run/src/watch/status_file.rs", "the date of the last step"),
    ("crates/training/data/src/tokenize/key.rs", "a number that no other run has"),
    ("crates/base/stores/src/date.rs", "the time of signatures, and the end of credentials"),
    ("xtask/src/", "dates of pages"),
];

/// Dates in product code of a file that is not allowed to have them.
pub fn check(file: &SourceFile, text: &str) -> Vec<Finding> {
    if !file.is_product() || ALLOWED.iter().any(|(place, _)| file.path.starts_with(place)) {
        return vec![];
    }
    let code = code_only(text);
    // Unit tests are the end of a file.
    let lines = code.lines().enumerate().take_while(|(_, line)| line.trim() != "mod tests {");
    let dated = lines.filter(|(_, line)| line.contains("SystemTime"));
    let finding = |(index, _)| {
        let message =
            format!("`SystemTime` may jump; measure with `Instant`, or add the file to {LIST}", LIST = file!());
        Finding { path: file.path.clone(), line: index + 1, message }
    };
    dated.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile { path: path.into(), text: Some(text.into()) };
        check(&file, text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn dates_are_read_in_named_files_only() {
        let code =
            "use std::time::SystemTime;\nlet a = 1; // SystemTime\nSystemTime::now();\nmod tests {\nSystemTime\n}\n";
        assert_eq!(lines("crates/a/src/b.rs", code), [1, 3]);
        for allowed in ["crates/app/run/src/records/record.rs", "crates/a/tests/b.rs", "xtask/src/pages/date.rs"] {
            assert_eq!(lines(allowed, code), [0; 0], "{allowed}");
        }
    }
}
