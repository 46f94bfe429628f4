//! Pages of figures against the code that they vouch for.

use xtask::pages::{Code, Confirmation, Entry, PAGES, Page, Renewal, Stamps, State, findings, state, with_stamps};
use xtask::repository::{Repository, SourceFile};

#[test]
fn no_page_is_older_than_the_code_that_it_vouches_for() {
    let findings = findings(&Repository::open().expect("every file can be read"));
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

const PAGE: Page = Page {
    name: "example",
    path: "docs/example.md",
    files: &["crates/a/src", "crates/a/table.csv"],
    renewal: Renewal::Prints("true"),
    confirmation: Confirmation::Prints("true"),
};

const SOURCE: &str =
    "//! About.\nfn a() -> &'static str {\n    // why\n    \"b\"\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
const TABLE: &str = "x,y\n1,2\n";

fn repository(files: &[(&str, &str)], page: &str) -> Repository {
    let mut files: Vec<SourceFile> = files.iter().map(|(path, text)| SourceFile::of(path, text)).collect();
    files.push(SourceFile::of(PAGE.path, page));
    Repository { files }
}

fn entry(repository: &Repository) -> Entry {
    let hash = Code::of(&PAGE, repository).hash();
    Entry {
        date: "2026-11-23".into(),
        commit: "0123456789ab".into(),
        hash,
        command: "true".into(),
        result: String::new(),
    }
}

/// The state of a page that was stamped with [`SOURCE`] and [`TABLE`], when the files are `files`.
fn state_with(files: &[(&str, &str)]) -> State {
    let first = repository(&[("crates/a/src/lib.rs", SOURCE), ("crates/a/table.csv", TABLE)], "");
    let page = with_stamps("# Example\n", PAGE.files, &Stamps { full: entry(&first), confirmed: None });
    state(&PAGE, &repository(files, &page))
}

#[test]
fn a_change_of_code_makes_a_page_stale_and_a_change_of_words_does_not() {
    let stale = State::Stale { since: "0123456789ab".into() };
    let with =
        |source: &str, table: &str| state_with(&[("crates/a/src/lib.rs", source), ("crates/a/table.csv", table)]);
    assert_eq!(with(SOURCE, TABLE), State::Fresh);
    let reworded = SOURCE.replace("About", "Of").replace("// why", "\n    // because").replace("fn c()", "fn d()");
    assert_eq!(with(&reworded, TABLE), State::Fresh);
    assert_eq!(with(&SOURCE.replace("\"b\"", "\"c\""), TABLE), stale, "a string is code");
    assert_eq!(with(&SOURCE.replace("fn a", "pub fn a"), TABLE), stale);
    assert_eq!(with(SOURCE, &TABLE.replace('2', "3")), stale);
    let table = ("crates/a/table.csv", TABLE);
    assert_eq!(state_with(&[("crates/a/src/lib.rs", SOURCE)]), stale, "a file is gone");
    assert_eq!(state_with(&[("crates/a/src/lib.rs", SOURCE), table, ("crates/a/src/b.rs", "fn b() {}")]), stale);
    assert_eq!(state_with(&[("crates/a/src/c/lib.rs", SOURCE), table]), State::Fresh, "a file that moved");
    assert_eq!(
        state_with(&[("crates/a/src/lib.rs", SOURCE), table, ("crates/a2/src/b.rs", "fn b() {}")]),
        State::Fresh
    );
    assert_eq!(
        state_with(&[("crates/a/src/lib.rs", SOURCE), table, ("crates/a/src/tests.rs", "fn b() {}")]),
        State::Fresh
    );
}

#[test]
fn a_confirmation_is_of_the_code_that_it_ran() {
    let old = repository(&[("crates/a/src/lib.rs", SOURCE), ("crates/a/table.csv", TABLE)], "");
    let new_source = SOURCE.replace("fn a", "fn b");
    let new_files = [("crates/a/src/lib.rs", new_source.as_str()), ("crates/a/table.csv", TABLE)];
    let stamps = Stamps { full: entry(&old), confirmed: Some(entry(&repository(&new_files, ""))) };
    let page = with_stamps("# Example\n", PAGE.files, &stamps);
    assert_eq!(state(&PAGE, &repository(&new_files, &page)), State::Confirmed);
    let newer = [("crates/a/src/lib.rs", "fn c() {}\n"), ("crates/a/table.csv", TABLE)];
    assert_eq!(state(&PAGE, &repository(&newer, &page)), State::Stale { since: "0123456789ab".into() });
    assert_eq!(state(&PAGE, &repository(&new_files, "# Example\n")), State::Unstamped);
}

#[test]
fn every_page_has_a_name_and_a_path_of_its_own() {
    for (index, page) in PAGES.iter().enumerate() {
        assert!(PAGES[..index].iter().all(|other| other.name != page.name && other.path != page.path), "{}", page.name);
    }
}
