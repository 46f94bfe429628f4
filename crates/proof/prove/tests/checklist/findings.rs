//! The findings of checks, on clean runs and on faulty ones.

/// The result of a check: nothing, or its finding.
pub type Verdict = Result<(), String>;

/// Fine if nothing was found.
pub fn verdict(findings: impl IntoIterator<Item = String>) -> Verdict {
    let findings: Vec<String> = findings.into_iter().collect();
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}

/// The clean run passes.
#[track_caller]
pub fn assert_holds(verdict: Verdict) {
    if let Err(finding) = verdict {
        panic!("the clean run is faulted:\n{finding}");
    }
}

/// The check finds the fault, with a message that contains `words`.
#[track_caller]
pub fn assert_found(verdict: Verdict, words: &str) {
    match verdict {
        Ok(()) => panic!("the fault was not found; `{words}` was expected"),
        Err(finding) => assert!(finding.contains(words), "`{words}` was expected, this was found:\n{finding}"),
    }
}
