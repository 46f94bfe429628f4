//! The list of texts that are not edited yet, whose counts can only fall.

use std::collections::{BTreeMap, BTreeSet};

use super::Occurrences;
use super::table::{REPLACED, Replaced};

/// The list, below the root of the repository.
pub const PATH: &str = "xtask/not_yet_edited.txt";
/// The command that lowers it.
pub const COMMAND: &str = "`cargo run -p xtask -- words --write`";

const HEADER: &str = "\
# Replaced phrases (xtask/src/words/table.rs) in texts that are not edited yet: how often each stands in each file.
# A file never has more, and no other file has any. `cargo run -p xtask -- words --write` lowers the counts.
";

/// Counts per file and phrase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ratchet {
    /// Phrases that the list covers; one that joined the table since has no counts yet.
    phrases: BTreeSet<String>,
    files: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Ratchet {
    /// The list that is written as `text`.
    ///
    /// # Errors
    /// The line, counted from 1, that cannot be read, and why.
    pub fn parse(text: &str) -> Result<Ratchet, (usize, String)> {
        let mut ratchet = Ratchet::default();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
            let refused = |message: &str| (index + 1, message.to_string());
            if let Some(name) = line.strip_prefix("phrase ") {
                ratchet.phrases.insert(name.into());
                continue;
            }
            let (path, counts) =
                line.split_once(": ").ok_or(refused("expected `phrase NAME` or `PATH: COUNT NAME, ...`"))?;
            for entry in counts.split(", ") {
                let (count, name) = entry.split_once(' ').ok_or(refused("expected `COUNT NAME` after the path"))?;
                let count = count.parse().map_err(|_| refused("expected a whole number before the phrase"))?;
                ratchet.files.entry(path.into()).or_default().insert(name.into(), count);
            }
        }
        Ok(ratchet)
    }

    /// How often the file at `path` may have the phrase.
    pub fn count(&self, path: &str, name: &str) -> usize {
        self.files.get(path).and_then(|counts| counts.get(name)).copied().unwrap_or(0)
    }

    /// All counts, as path, phrase and count.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.files
            .iter()
            .flat_map(|(path, counts)| counts.iter().map(move |(name, count)| (path.as_str(), name.as_str(), *count)))
    }

    /// The sum of the counts of each phrase.
    pub fn totals(&self) -> BTreeMap<&str, usize> {
        let mut totals = BTreeMap::new();
        for (_, name, count) in self.entries() {
            *totals.entry(name).or_insert(0) += count;
        }
        totals
    }

    /// The list for the texts as they are. Counts may move between files, which are renamed and split; no phrase of the
    /// list has more in all than before. A phrase that is not in the list yet joins it with the counts of the texts.
    ///
    /// # Errors
    /// The phrases that have more.
    pub fn lowered(&self, found: &Occurrences) -> Result<Ratchet, String> {
        let count = |phrases: &BTreeMap<String, Vec<usize>>| {
            phrases.iter().map(|(name, lines)| (name.clone(), lines.len())).collect()
        };
        let files = found.iter().map(|(path, phrases)| (path.clone(), count(phrases))).collect();
        let now = Ratchet { phrases: REPLACED.iter().map(Replaced::name).collect(), files };
        let before = self.totals();
        let risen: Vec<String> = now
            .totals()
            .into_iter()
            .filter(|(name, total)| self.phrases.contains(*name) && *total > before.get(name).copied().unwrap_or(0))
            .map(|(name, total)| {
                let listed = before.get(name).copied().unwrap_or(0);
                format!("`{name}`: {total} in the texts, {listed} in {PATH}; remove {}", total - listed)
            })
            .collect();
        if risen.is_empty() { Ok(now) } else { Err(risen.join("\n")) }
    }

    /// As a text that [`Ratchet::parse`] reads.
    pub fn text(&self) -> String {
        let mut text = HEADER.to_string();
        for name in &self.phrases {
            text.push_str(&format!("phrase {name}\n"));
        }
        for (path, counts) in &self.files {
            let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
            text.push_str(&format!("{path}: {}\n", counts.join(", ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "phrase told\na.md: 2 told\nb.md: 1 told\n";

    fn found(files: &[(&str, &str, usize)]) -> Occurrences {
        let mut all = Occurrences::new();
        for (path, name, count) in files {
            all.entry(path.to_string()).or_default().insert(name.to_string(), vec![1; *count]);
        }
        all
    }

    fn lowered(files: &[(&str, &str, usize)]) -> Result<Vec<String>, String> {
        let text = Ratchet::parse(LIST).expect("a list").lowered(&found(files))?.text();
        let kept = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("phrase "));
        Ok(kept.map(str::to_string).collect())
    }

    #[test]
    fn counts_fall_and_move_and_never_rise() {
        assert_eq!(lowered(&[("a.md", "told", 1)]), Ok(vec!["a.md: 1 told".into()]));
        assert_eq!(lowered(&[]), Ok(vec![]));
        assert_eq!(lowered(&[("c.md", "told", 3)]), Ok(vec!["c.md: 3 told".into()]));
        let message = "`told`: 4 in the texts, 3 in xtask/not_yet_edited.txt; remove 1";
        assert_eq!(lowered(&[("a.md", "told", 3), ("b.md", "told", 1)]), Err(message.into()));
    }

    #[test]
    fn a_phrase_joins_the_list_once() {
        let joined = found(&[("a.md", "told", 1), ("a.md", "anew", 7)]);
        let ratchet = Ratchet::parse(LIST).expect("a list").lowered(&joined).expect("no more than before");
        assert_eq!(ratchet.count("a.md", "anew"), 7);
        let empty = ratchet.lowered(&found(&[])).expect("fewer");
        let again = empty.lowered(&joined).expect_err("more than before");
        assert!(again.contains("`anew`: 7 in the texts, 0 in") && again.contains("`told`: 1 in"), "{again}");
    }

    #[test]
    fn a_list_reads_back_and_damage_is_named() {
        let ratchet = Ratchet::parse("phrase told\na.md: 2 told, 1 give up\n").expect("a list");
        assert_eq!(Ratchet::parse(&ratchet.text()), Ok(ratchet));
        for (text, message) in [
            ("a.md 2 told", "expected `phrase NAME` or `PATH: COUNT NAME, ...`"),
            ("a.md: told", "expected `COUNT NAME` after the path"),
            ("a.md: two told", "expected a whole number before the phrase"),
        ] {
            assert_eq!(Ratchet::parse(&format!("phrase told\n{text}\n")), Err((2, message.into())));
        }
    }
}
