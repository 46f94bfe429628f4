//! The files of the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One file under version control, or about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Path below the root, with `/`.
    pub path: String,
    /// Content; `None` when it is not UTF-8.
    pub text: Option<String>,
}

impl SourceFile {
    /// A file made of text, for tests.
    pub fn of(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: Some(text.into()) }
    }

    /// Whether the product is compiled from it: it is below `src`, and neither a file nor in a folder of tests.
    pub fn is_product(&self) -> bool {
        self.path.contains("/src/") && !self.path.contains("/tests/") && self.stem() != "tests"
    }

    /// The last part of the path, without extension.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.split('.').next().unwrap_or_default()
    }
}

/// All files that a reader of the repository sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repository {
    /// Sorted by path.
    pub files: Vec<SourceFile>,
}

impl Repository {
    /// Reads this repository: tracked files and files that would be tracked; without git, every file outside build
    /// folders.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn open() -> Result<Repository, String> {
        let root = root();
        let mut paths = match tracked(&root) {
            Some(paths) => paths,
            None => walk(&root)?,
        };
        paths.sort();
        paths.dedup();
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let full = root.join(&path);
            // A file that was deleted but not yet committed is still listed by git.
            if full.is_file() {
                let bytes = fs::read(&full).map_err(|error| format!("{path}: {error}"))?;
                files.push(SourceFile { path, text: String::from_utf8(bytes).ok() });
            }
        }
        Ok(Repository { files })
    }

    /// The file at `path`.
    pub fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Files whose name ends with `.extension` and that are text, with their text.
    pub fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&SourceFile, &str)> {
        let suffix = format!(".{extension}");
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(&suffix))
            .filter_map(|file| file.text.as_deref().map(|text| (file, text)))
    }
}

/// The folder of the workspace.
pub fn root() -> PathBuf {
    let manifest_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_folder.parent().unwrap_or(manifest_folder).to_path_buf()
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()?;
    let list = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = list.split('\0').filter(|path| !path.is_empty()).map(str::to_string).collect();
    (output.status.success() && !paths.is_empty()).then_some(paths)
}

fn walk(root: &Path) -> Result<Vec<String>, String> {
    let mut folders = vec![root.to_path_buf()];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
            let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if path.is_dir() && !["target", "runs", ".git"].contains(&below.as_str()) {
                folders.push(path);
            } else if path.is_file() {
                paths.push(below);
            }
        }
    }
    Ok(paths)
}
