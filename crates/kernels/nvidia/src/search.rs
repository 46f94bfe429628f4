//! Where a library is.

use std::path::{Path, PathBuf};

/// Folders below a given one that hold libraries: its own, those of a CUDA toolkit, and those of Python's wheels in a
/// folder of packages.
const BELOW: &[&str] = &[
    "",
    "lib",
    "lib64",
    "nvidia/cu13/lib",
    "nvidia/cublas/lib",
    "nvidia/cuda_nvrtc/lib",
    "nvidia/cudnn/lib",
    "nvidia/nccl/lib",
    "lib/x86_64-linux-gnu",
    "targets/x86_64-linux/lib",
];

/// Places in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Files of libraries, and folders: of libraries, of a CUDA toolkit, of Python packages, or of a virtual
    /// environment.
    pub given: Vec<PathBuf>,
    /// Whether the system's loader looks in its own folders afterwards.
    pub loader: Loader,
}

/// The last place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loader {
    /// The folders of the system's loader.
    #[default]
    Used,
    /// None.
    NotUsed,
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    File(PathBuf),
    /// A name for the system's loader.
    Name(&'static str),
}

impl Found {
    /// The argument for the loader.
    pub fn path(&self) -> &Path {
        match self {
            Found::File(path) => path,
            Found::Name(name) => Path::new(name),
        }
    }
}

impl Search {
    /// Given places first, the system's loader last.
    pub fn with(given: impl IntoIterator<Item = PathBuf>) -> Search {
        Search { given: given.into_iter().collect(), loader: Loader::Used }
    }

    /// Given places only.
    pub fn only(given: impl IntoIterator<Item = PathBuf>) -> Search {
        Search { given: given.into_iter().collect(), loader: Loader::NotUsed }
    }

    /// Everything that may be the library with one of `names`, in order. A given file counts if its name begins with
    /// the part of a name before `.so`.
    pub fn candidates(&self, names: &[&'static str]) -> Vec<Found> {
        let mut found = vec![];
        for given in &self.given {
            if given.is_file() {
                let name = given.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
                let stem = |name: &str| name.split(".so").next().unwrap_or_default().to_owned();
                if names.iter().any(|wanted| stem(wanted) == stem(&name)) {
                    found.push(Found::File(given.clone()));
                }
                continue;
            }
            for folder in folders_of(given) {
                let files = names.iter().map(|name| folder.join(name)).filter(|path| path.is_file());
                found.extend(files.map(Found::File));
            }
        }
        match self.loader {
            Loader::Used => found.extend(names.iter().copied().map(Found::Name)),
            Loader::NotUsed => {}
        }
        found
    }

    /// The given places, as a part of a sentence.
    pub fn describe(&self) -> String {
        let mut places: Vec<String> = self.given.iter().map(|path| path.display().to_string()).collect();
        match self.loader {
            Loader::Used => places.push("the folders of the loader".into()),
            Loader::NotUsed => {}
        }
        if places.is_empty() { "no folder".into() } else { places.join(", ") }
    }
}

/// The folders of libraries below a given one, those of a virtual environment last.
fn folders_of(given: &Path) -> Vec<PathBuf> {
    let mut roots = vec![given.to_path_buf()];
    let versions = std::fs::read_dir(given.join("lib")).into_iter().flatten().flatten();
    let mut packages: Vec<PathBuf> =
        versions.map(|entry| entry.path().join("site-packages")).filter(|path| path.is_dir()).collect();
    packages.sort();
    roots.extend(packages);
    roots.iter().flat_map(|root| BELOW.iter().map(move |below| root.join(below))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_files_and_folders_come_before_the_loader() {
        let root = std::env::temp_dir().join(format!("pleach-nvidia-search-{}", std::process::id()));
        let wheel = root.join("lib/python3.11/site-packages/nvidia/cu13/lib");
        std::fs::create_dir_all(&wheel).expect("a folder");
        std::fs::write(wheel.join("liba.so.13"), "").expect("a file");
        std::fs::write(root.join("liba.so"), "").expect("a file");
        std::fs::write(root.join("libab.so.13"), "").expect("a file");
        let given = [root.join("liba.so"), root.join("libab.so.13"), root.clone(), root.join("missing")];
        let found = Search::with(given.clone()).candidates(&["liba.so.13", "liba.so.12"]);
        let expected = [
            Found::File(root.join("liba.so")),
            Found::File(wheel.join("liba.so.13")),
            Found::Name("liba.so.13"),
            Found::Name("liba.so.12"),
        ];
        assert_eq!(found, expected);
        assert_eq!(Search::only(given).candidates(&["liba.so.12"]), [Found::File(root.join("liba.so"))]);
        std::fs::remove_dir_all(&root).expect("removed");
    }
}
