//! How mutants ended, kept in a file of this very program: a hunt of all that was stopped resumes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::PathBuf;

use crate::operations::mutations::End;

/// The ends of the mutants of a source, and the file that holds them. Another build of this program keeps its own.
pub struct KeptEnds {
    ends: BTreeMap<String, End>,
    file: File,
}

const ENDS: [(&str, End); 3] = [("found", End::Found), ("missed", End::Missed), ("unchanged", End::Unchanged)];

impl KeptEnds {
    /// Opens or creates the file of a source.
    pub fn open(source: &str) -> KeptEnds {
        let program = std::env::current_exe().and_then(std::fs::read).expect("this program");
        let mut hasher = DefaultHasher::new();
        program.hash(&mut hasher);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("mutants-{:016x}", hasher.finish()));
        std::fs::create_dir_all(&folder).expect("a folder for results");
        let path = folder.join(format!("{source}.txt"));
        let known = std::fs::read_to_string(&path).unwrap_or_default();
        let file = OpenOptions::new().create(true).append(true).open(&path).expect("a file for results");
        KeptEnds { ends: known.lines().filter_map(read).collect(), file }
    }

    /// How a mutant ended, if it has run.
    pub fn of(&self, name: &str) -> Option<End> {
        self.ends.get(name).copied()
    }

    /// Keeps how a mutant ended.
    pub fn keep(&mut self, name: &str, end: End) {
        let (word, _) = ENDS.iter().find(|(_, known)| *known == end).expect("a word for every end");
        self.file.write_all(format!("{word}\t{name}\n").as_bytes()).expect("a result is written");
    }
}

/// A whole line of the file.
fn read(line: &str) -> Option<(String, End)> {
    let (word, name) = line.split_once('\t')?;
    let (_, end) = ENDS.iter().find(|(known, _)| *known == word)?;
    Some((name.into(), *end))
}
