//! The repository obeys its own rules.

use xtask::repository::Repository;
use xtask::tidy;

#[test]
fn the_repository_is_tidy() {
    let repository = Repository::open().expect("every file can be read");
    let findings: Vec<String> = tidy::check(&repository).iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}
