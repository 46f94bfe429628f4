//! The stamp at the end of a page: written and read.

/// The heading that begins a stamp.
const HEADING: &str = "\n## Stamp\n";

/// When figures were made, of which code, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `2026-11-23`.
    pub date: String,
    pub commit: String,
    /// Hash of the code, 16 hexadecimal digits.
    pub hash: String,
    /// Commands, joined by ` && `.
    pub command: String,
    /// The result that the command printed; empty for a full count, whose result is the page.
    pub result: String,
}

/// The stamp of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The run that made all figures.
    pub full: Entry,
    /// The newest sample since.
    pub confirmed: Option<Entry>,
}

impl Entry {
    fn row(&self, name: &str) -> String {
        let Entry { date, commit, hash, command, result } = self;
        let command = if command.is_empty() { "by hand".to_string() } else { format!("`{command}`") };
        format!("| {name} | {date} | `{commit}` | `{hash}` | {command} | {result} |\n")
    }

    /// The row that begins with `name`.
    fn read(text: &str, name: &str) -> Option<Entry> {
        let row = text.lines().find(|line| line.starts_with(&format!("| {name} |")))?;
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, date, commit, hash, command, result] = cells[..] else { return None };
        let plain = |cell: &str| cell.trim_matches('`').to_string();
        Some(Entry {
            date: date.into(),
            commit: plain(commit),
            hash: plain(hash),
            command: if command.starts_with('`') { plain(command) } else { String::new() },
            result: result.into(),
        })
    }
}

/// The page without its stamp, and the stamp; `None` where there is none or it cannot be read.
pub fn split(page: &str) -> (&str, Option<Stamps>) {
    let Some((body, stamp)) = page.split_once(HEADING) else { return (page, None) };
    let stamps =
        Entry::read(stamp, "full count").map(|full| Stamps { full, confirmed: Entry::read(stamp, "confirmed") });
    (body, stamps)
}

/// The page with `stamps` in place of the stamp that it has.
pub fn with_stamps(page: &str, files: &[&str], stamps: &Stamps) -> String {
    let body = split(page).0.trim_end();
    let confirmed = stamps.confirmed.as_ref().map_or(String::new(), |entry| entry.row("confirmed"));
    format!(
        "{body}\n{HEADING}\n\
         `cargo run -p xtask -- pages` writes this section, and reports whether the code has changed since. The hash is that of\n\
         the code in the files below, without comments and tests. A confirmation runs a sample again and must find what the page\n\
         reports.\n\n\
         | | date | commit | code | command | result |\n|---|---|---|---|---|---|\n\
         {}{confirmed}\n\
         Files: {}.\n",
        stamps.full.row("full count"),
        wrapped(files),
    )
}

/// Names in lines of at most 120 columns.
fn wrapped(files: &[&str]) -> String {
    let mut text = String::new();
    let mut column = "Files: ".len();
    for (index, file) in files.iter().enumerate() {
        let name = format!("`{file}`{}", if index + 1 < files.len() { "," } else { "" });
        if index > 0 {
            let breaks = column + name.len() + 2 > 120;
            text.push(if breaks { '\n' } else { ' ' });
            column = if breaks { 0 } else { column + 1 };
        }
        column += name.len();
        text += &name;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(commit: &str, command: &str) -> Entry {
        Entry {
            date: "2026-11-23".into(),
            commit: commit.into(),
            hash: "0123456789abcdef".into(),
            command: command.into(),
            result: "8 of 8 cases".into(),
        }
    }

    #[test]
    fn a_stamp_is_read_as_it_was_written_and_replaced_by_the_next() {
        let first = Stamps { full: entry("a", ""), confirmed: None };
        let page = with_stamps("# Page\n\ntext\n", &["a/src", "b.csv"], &first);
        assert_eq!(split(&page), ("# Page\n\ntext\n", Some(first)));
        let second = Stamps { full: entry("b", "run"), confirmed: Some(entry("c", "run --sample 8")) };
        let again = with_stamps(&page, &["a/src"], &second);
        assert_eq!(split(&again), ("# Page\n\ntext\n", Some(second)));
        assert_eq!(again.matches("## Stamp").count(), 1);
        assert!(again.ends_with("\nFiles: `a/src`.\n"), "{again}");
    }

    #[test]
    fn a_page_without_a_stamp_has_none() {
        assert_eq!(split("# Page\n"), ("# Page\n", None));
        assert_eq!(split("# Page\n\n## Stamp\n\n| full count | cut off |\n").1, None);
    }
}
