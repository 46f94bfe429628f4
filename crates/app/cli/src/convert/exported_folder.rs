//! The folder of an export: empty before, or with an earlier export that is replaced. Files that the library or PEFT
//! would read together with the new ones are never left with them.

use std::fs;
use std::path::{Path, PathBuf};

use files::check_replaceable;
use interchange::is_exported;
use run::failure::Failure;
use run::places::names::RUN_FILE;
use run::places::own_places;
use run::source::hugging_face_run::TOKENIZER_FILES;

/// Names that an error lists.
const MOST_NAMES: usize = 6;

/// The treatment of an earlier export in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlierExport {
    /// The export is refused.
    Kept,
    /// Its files are replaced, and those that the new export lacks are removed.
    Replaced,
}

/// The folder that an export fills.
#[derive(Debug)]
pub struct ExportedFolder {
    path: PathBuf,
    /// Names of an earlier export's files.
    earlier: Vec<String>,
}

impl ExportedFolder {
    /// Makes the folder, if it is not there.
    ///
    /// # Errors
    /// A folder of a run, one with any file whose name does not begin with a dot unless an earlier export is replaced,
    /// and one that cannot be made.
    pub fn open(path: &Path, treatment: EarlierExport) -> Result<ExportedFolder, Failure> {
        let names =
            names(path).map_err(|error| Failure::Input(format!("--out {} cannot be read: {error}", path.display())))?;
        if path.join(RUN_FILE).exists() || own_places::is_run(path) {
            let path = path.display();
            return Err(Failure::Input(format!("--out {path} is the folder of a run; name another folder")));
        }
        if treatment == EarlierExport::Kept && !names.is_empty() {
            return Err(Failure::Input(format!(
                "--out {} must be a new or an empty folder; it has {}; use --overwrite to replace the files of an earlier \
                 export, or name another folder",
                path.display(),
                listed(&names)
            )));
        }
        let earlier: Vec<String> = names.into_iter().filter(|name| is_of_export(name)).collect();
        for name in &earlier {
            let file = path.join(name);
            let refused = |error| Failure::Input(format!("{} cannot be written: it {error}", file.display()));
            check_replaceable(&file).map_err(refused)?;
        }
        let unmade = |error| Failure::Input(format!("{} cannot be made: {error}", path.display()));
        fs::create_dir_all(path).map_err(unmade)?;
        Ok(ExportedFolder { path: path.to_path_buf(), earlier })
    }

    /// Removes the files of an earlier export that are not `written` again.
    ///
    /// # Errors
    /// A file that cannot be removed.
    pub fn remove_earlier(&self, written: &[&str]) -> Result<(), Failure> {
        for name in self.earlier.iter().filter(|name| !written.contains(&name.as_str())) {
            let file = self.path.join(name);
            fs::remove_file(&file).map_err(|error| {
                Failure::Input(format!(
                    "{} is of an earlier export and cannot be removed: {error}; remove it, or the folder is read with it",
                    file.display()
                ))
            })?;
        }
        Ok(())
    }
}

fn is_of_export(name: &str) -> bool {
    is_exported(name) || TOKENIZER_FILES.contains(&name)
}

/// The names in a folder that do not begin with a dot, sorted; none of one that is missing.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries?,
    };
    let mut names = vec![];
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    Ok(names)
}

/// `a, b and 3 others`.
fn listed(names: &[String]) -> String {
    let shown = &names[..names.len().min(MOST_NAMES)];
    match names.len() - shown.len() {
        0 => shown.join(", "),
        1 => format!("{} and 1 other", shown.join(", ")),
        others => format!("{} and {others} others", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = |count: usize| (0..count).map(|number| format!("f{number}")).collect::<Vec<_>>();
        assert_eq!(listed(&names(2)), "f0, f1");
        assert_eq!(listed(&names(7)), "f0, f1, f2, f3, f4, f5 and 1 other");
        assert!(listed(&names(9)).ends_with("f5 and 3 others"));
    }
}
