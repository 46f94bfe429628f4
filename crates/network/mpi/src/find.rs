//! Which library of MPI a process opens.
//!
//! In this order: the path that the user gives, a library that the process has loaded already, one in the folder of the
//! launcher that started the process, that of `I_MPI_ROOT`, and the loader's folders. The launcher decides between the
//! families. Nothing is opened to find out.

use std::path::{Path, PathBuf};

use crate::abi::Abi;

/// The variable that names the library.
const VARIABLE: &str = "PLEACH_MPI_LIBRARY";
/// Programs by which launchers of MPI start processes.
const LAUNCHERS: &[&str] = &[
    "hydra_pmi_proxy",
    "hydra_bstrap_proxy",
    "mpiexec",
    "mpiexec.hydra",
    "mpirun",
    "orted",
    "orterun",
    "prted",
    "prterun",
    "prte",
];
/// Folders of libraries below the folder in which a launcher's `bin` is.
const LIBRARY_FOLDERS: &[&str] = &[
    "lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib/release",
    "lib/mpich/lib",
    "lib64/mpich/lib",
];
/// Ancestors of a process that are looked at.
const ANCESTORS: usize = 8;

/// The surroundings of a process that decide, as far as the system shows them.
pub struct Surroundings<'a> {
    /// Environment variables by name.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Programs of the ancestors of this process, the nearest first.
    pub ancestors: Vec<PathBuf>,
    /// Libraries that this process has loaded.
    pub loaded: Vec<PathBuf>,
    /// The folders of the system's loader.
    pub folders: Vec<PathBuf>,
}

/// A library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// Why this one, as a clause.
    pub reason: String,
}

/// Why no library is chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// No library.
    #[error(
        "run.transport = \"mpi\" needs a library of MPI, and none of {} is in the folder of the launcher or on the loader's \
         path; install one, or give its path in PLEACH_MPI_LIBRARY",
        names(looked_for)
    )]
    Missing {
        /// The ABIs whose libraries were looked for.
        looked_for: Vec<Abi>,
    },
    /// A path that names no file.
    #[error("PLEACH_MPI_LIBRARY = {0:?} must be the file of a library of MPI, such as /usr/lib/libmpi_abi.so.1")]
    NoFile(PathBuf),
    /// Two families, and a launcher of neither.
    #[error(
        "{first} and {second} are two libraries of MPI, and no launcher of one of them started this process; use the mpiexec \
         of one, or give a path in PLEACH_MPI_LIBRARY"
    )]
    Undecided {
        /// One of them.
        first: PathBuf,
        /// The other one.
        second: PathBuf,
    },
    /// A library that is loaded next to the one that was to be opened.
    #[error(
        "{loaded} is loaded in this process already, and {other} is {reason}; two libraries of MPI in one process do not \
         work: unset LD_PRELOAD, or give {loaded} in PLEACH_MPI_LIBRARY"
    )]
    TwoAtOnce {
        /// The library that is loaded.
        loaded: PathBuf,
        /// The other one.
        other: PathBuf,
        /// Why the other one.
        reason: String,
    },
}

fn names(abis: &[Abi]) -> String {
    abis.iter().flat_map(|abi| abi.file_names()).copied().collect::<Vec<_>>().join(", ")
}

impl<'a> Surroundings<'a> {
    /// The surroundings of this process. `folders` are the loader's.
    pub fn of_process(environment: &'a dyn Fn(&str) -> Option<String>, folders: Vec<PathBuf>) -> Surroundings<'a> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut loaded: Vec<PathBuf> = maps.lines().filter_map(mapped_library).collect();
        loaded.dedup();
        let ancestors = ancestors().into_iter().map(|(_, program)| program).collect();
        Surroundings { environment, ancestors, loaded, folders }
    }

    /// The ABIs that fit the launcher whose variables are there.
    fn abis(&self) -> Vec<Abi> {
        let is_set = |name: &str| (self.environment)(name).is_some();
        if is_set("OMPI_COMM_WORLD_SIZE") {
            // Open MPI 6 has the ABI of MPI 5, too.
            vec![Abi::OpenMpi, Abi::Mpi5]
        } else if ["PMI_RANK", "PMI_FD", "PMI_PORT"].into_iter().any(is_set) {
            vec![Abi::Mpi5, Abi::Mpich]
        } else {
            Abi::ALL.to_vec()
        }
    }
}

/// The file of a line of `/proc/self/maps`, if it is a library of MPI.
fn mapped_library(line: &str) -> Option<PathBuf> {
    let path = Path::new(line.split_whitespace().nth(5)?);
    let name = path.file_name()?.to_str()?;
    let is_mpi = ["libmpi.so.", "libmpi_abi.so.", "libmpich.so."].iter().any(|start| name.starts_with(start));
    is_mpi.then(|| path.to_path_buf())
}

/// The number of the process of a launcher of MPI that has started this process and all others of its run on this
/// machine: its nearest ancestor that is one.
pub fn launching_process() -> Option<u32> {
    let is_launcher = |program: &PathBuf| {
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        ["mpiexec", "mpirun", "orterun", "orted", "prterun", "prted", "hydra_"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    ancestors().into_iter().find(|(_, program)| is_launcher(program)).map(|(process, _)| process)
}

/// The ancestors of this process with their programs, as far as they may be seen.
fn ancestors() -> Vec<(u32, PathBuf)> {
    let mut programs = vec![];
    let mut process = std::os::unix::process::parent_id();
    while process > 1 && programs.len() < ANCESTORS {
        programs.extend(std::fs::read_link(format!("/proc/{process}/exe")).map(|program| (process, program)));
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // The name in parentheses may have spaces.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        process = rest.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0);
    }
    programs
}

/// The library for a process.
///
/// # Errors
/// See [`FindError`].
pub fn find(surroundings: &Surroundings<'_>) -> Result<Found, FindError> {
    let found = chosen(surroundings);
    let same = |one: &Path, other: &Path| match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        (Ok(_) | Err(_), _) => one == other,
    };
    match (surroundings.loaded.first(), found) {
        (Some(loaded), Ok(found)) if !same(loaded, &found.path) => {
            let (loaded, other, reason) = (loaded.clone(), found.path, found.reason);
            Err(FindError::TwoAtOnce { loaded, other, reason })
        }
        (Some(loaded), Ok(_) | Err(FindError::Missing { .. } | FindError::Undecided { .. })) => {
            Ok(Found { path: loaded.clone(), reason: "loaded in this process already".into() })
        }
        (_, found) => found,
    }
}

fn chosen(surroundings: &Surroundings<'_>) -> Result<Found, FindError> {
    if let Some(path) = (surroundings.environment)(VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        let reason = format!("the path in {VARIABLE}");
        return if path.is_file() { Ok(Found { path, reason }) } else { Err(FindError::NoFile(path)) };
    }
    let abis = surroundings.abis();
    if let Some((path, program)) = next_to_launcher(surroundings, &abis) {
        return Ok(Found { path, reason: format!("in the folder of {}", program.display()) });
    }
    let intel = (surroundings.environment)("I_MPI_ROOT").map(PathBuf::from);
    let intel = intel.map(|root| library_folders(&root)).unwrap_or_default();
    let is_intel = |abi: &Abi| *abi != Abi::OpenMpi;
    if let Some(path) = first_in(&intel, abis.iter().copied().filter(is_intel)) {
        return Ok(Found { path, reason: "in I_MPI_ROOT".into() });
    }
    let found: Vec<(Abi, PathBuf)> =
        abis.iter().filter_map(|abi| Some((*abi, first_in(&surroundings.folders, [*abi])?))).collect();
    match (found.first(), found.iter().find(|(abi, _)| *abi == Abi::OpenMpi)) {
        (None, _) => Err(FindError::Missing { looked_for: abis }),
        (Some((first_abi, first)), Some((_, open_mpi))) if *first_abi != Abi::OpenMpi => {
            Err(FindError::Undecided { first: first.clone(), second: open_mpi.clone() })
        }
        (Some((_, path)), _) => Ok(Found { path: path.clone(), reason: "on the loader's path".into() }),
    }
}

/// The library in the folder of the nearest launcher of MPI that has one, and that launcher.
fn next_to_launcher(surroundings: &Surroundings<'_>, abis: &[Abi]) -> Option<(PathBuf, PathBuf)> {
    let is_launcher = |program: &&PathBuf| {
        let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // Debian calls them mpiexec.mpich and the like.
        LAUNCHERS.iter().any(|launcher| name == *launcher || name.starts_with(&format!("{launcher}.")))
    };
    surroundings.ancestors.iter().filter(is_launcher).find_map(|program| {
        let root = program.parent()?.parent()?;
        Some((first_in(&library_folders(root), abis.iter().copied())?, program.clone()))
    })
}

fn library_folders(root: &Path) -> Vec<PathBuf> {
    LIBRARY_FOLDERS.iter().map(|folder| root.join(folder)).collect()
}

/// The first library of `abis`, in their order, in the first of `folders`.
fn first_in(folders: &[PathBuf], abis: impl IntoIterator<Item = Abi>) -> Option<PathBuf> {
    let names = abis.into_iter().flat_map(|abi| abi.file_names());
    names.into_iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

/// The `mpiexec` that belongs to the library at `path`, if it is where libraries have it.
pub fn mpiexec_of(path: &Path, abi: Abi) -> Option<PathBuf> {
    let names: &[&str] = match abi {
        Abi::Mpi5 | Abi::Mpich => &["mpiexec.mpich", "mpiexec", "mpiexec.hydra"],
        Abi::OpenMpi => &["mpiexec.openmpi", "mpiexec"],
    };
    let roots = path.ancestors().skip(2).take(3);
    let mut programs = roots.flat_map(|root| names.iter().map(move |name| root.join("bin").join(name)));
    programs.find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with empty files, which ends with its test.
    struct Root(PathBuf);

    impl Root {
        fn with(name: &str, files: &[&str]) -> Root {
            let root = Root(std::env::temp_dir().join(format!("pleach-mpi-{name}-{}", std::process::id())));
            for file in files {
                let path = root.0.join(file);
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                std::fs::write(path, "").expect("a file");
            }
            root
        }

        fn found(&self, variables: &[(&str, &str)], ancestors: &[&str], loaded: &[&str]) -> Result<Found, FindError> {
            let environment = |name: &str| {
                variables.iter().find(|(own, _)| *own == name).map(|(_, value)| value.replace("ROOT", &self.text()))
            };
            let paths = |paths: &[&str]| paths.iter().map(|path| self.0.join(path)).collect();
            let (ancestors, loaded) = (paths(ancestors), paths(loaded));
            find(&Surroundings { environment: &environment, ancestors, loaded, folders: paths(&["usr/lib"]) })
        }

        fn text(&self) -> String {
            self.0.display().to_string()
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const HYDRA: (&str, &str) = ("PMI_RANK", "0");
    const OPEN_MPI: (&str, &str) = ("OMPI_COMM_WORLD_SIZE", "2");

    #[test]
    fn the_launcher_decides() {
        let files =
            ["usr/lib/libmpich.so.12", "usr/lib/libmpi.so.40", "a/bin/hydra_pmi_proxy", "a/lib/libmpi_abi.so.1"];
        let root = Root::with("launcher", &files);
        let path = |found: Result<Found, FindError>| found.map(|found| found.path.display().to_string());
        let at = |name: &str| Ok(format!("{}/{name}", root.text()));
        assert_eq!(path(root.found(&[HYDRA], &["a/bin/hydra_pmi_proxy"], &[])), at("a/lib/libmpi_abi.so.1"));
        assert_eq!(
            path(root.found(&[HYDRA], &["bin/sh", "usr/bin/hydra_pmi_proxy"], &[])),
            at("usr/lib/libmpich.so.12")
        );
        assert_eq!(path(root.found(&[HYDRA], &[], &[])), at("usr/lib/libmpich.so.12"));
        assert_eq!(path(root.found(&[OPEN_MPI], &["usr/bin/orterun"], &[])), at("usr/lib/libmpi.so.40"));
        let given = ("PLEACH_MPI_LIBRARY", "ROOT/a/lib/libmpi_abi.so.1");
        assert_eq!(path(root.found(&[OPEN_MPI, given], &[], &[])), at("a/lib/libmpi_abi.so.1"));
        assert_eq!(path(root.found(&[("I_MPI_ROOT", "ROOT/a")], &[], &[])), at("a/lib/libmpi_abi.so.1"));
    }

    #[test]
    fn two_families_without_a_launcher_are_named() {
        let root = Root::with("families", &["usr/lib/libmpich.so.12", "usr/lib/libmpi.so.40"]);
        let error = root.found(&[], &[], &[]).map_err(|error| error.to_string()).expect_err("undecided");
        let folder = root.text();
        assert_eq!(
            error,
            format!(
                "{folder}/usr/lib/libmpich.so.12 and {folder}/usr/lib/libmpi.so.40 are two libraries of MPI, and no launcher of \
                 one of them started this process; use the mpiexec of one, or give a path in PLEACH_MPI_LIBRARY"
            )
        );
    }

    #[test]
    fn a_second_library_in_one_process_is_named() {
        let root = Root::with("second", &["usr/lib/libmpich.so.12", "b/libmpi.so.40"]);
        let error = root.found(&[HYDRA], &[], &["b/libmpi.so.40"]).map_err(|error| error.to_string());
        let error = error.expect_err("two at once");
        assert!(error.contains("b/libmpi.so.40 is loaded in this process already, and"), "{error}");
        let found = root.found(&[HYDRA], &[], &["usr/lib/libmpich.so.12"]).expect("the same one");
        assert_eq!(found.reason, "loaded in this process already");
    }

    #[test]
    fn missing_libraries_are_named() {
        let root = Root::with("missing", &["usr/lib/libmpi.so.40"]);
        let error = root.found(&[HYDRA], &[], &[]).map_err(|error| error.to_string()).expect_err("missing");
        assert!(error.contains("none of libmpi_abi.so.1, libmpi.so.12, libmpich.so.12 is in the folder"), "{error}");
        let given = [("PLEACH_MPI_LIBRARY", "/no/such/file")];
        assert_eq!(root.found(&given, &[], &[]), Err(FindError::NoFile("/no/such/file".into())));
    }

    #[test]
    fn the_mpiexec_of_a_library_is_next_to_it() {
        let files = ["usr/lib/x86_64-linux-gnu/libmpi.so.40", "usr/bin/mpiexec.openmpi", "a/lib/x.so", "a/bin/mpiexec"];
        let root = Root::with("mpiexec", &files);
        let of = |library: &str, abi| mpiexec_of(&root.0.join(library), abi);
        assert_eq!(
            of("usr/lib/x86_64-linux-gnu/libmpi.so.40", Abi::OpenMpi),
            Some(root.0.join("usr/bin/mpiexec.openmpi"))
        );
        assert_eq!(of("a/lib/x.so", Abi::Mpich), Some(root.0.join("a/bin/mpiexec")));
        assert_eq!(of("usr/lib/x86_64-linux-gnu/libmpi.so.40", Abi::Mpich), None);
    }

    #[test]
    fn libraries_of_mpi_are_seen_in_a_memory_map() {
        let line = "7f00-7f01 r-xp 00000000 fd:00 123    /usr/lib/libmpi.so.40.30.4";
        assert_eq!(mapped_library(line), Some("/usr/lib/libmpi.so.40.30.4".into()));
        assert_eq!(mapped_library("7f00-7f01 r-xp 00000000 fd:00 123    /usr/lib/libmpifort.so.12"), None);
        assert_eq!(mapped_library("7f00-7f01 rw-p 00000000 00:00 0"), None);
    }
}
