//! How much memory there is: that of the machine, or what the process's control group or its limit of address space
//! leaves of it.

use std::fmt;
use std::path::{Path, PathBuf};

/// Bytes that this process may use, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    pub bytes: u64,
    /// Who sets the limit.
    pub source: LimitSource,
}

/// See [`MemoryLimit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The memory that is built in.
    Machine,
    /// A control group: a container or a job of a scheduler.
    ControlGroup,
    /// The address space of this process: `ulimit -v`.
    AddressSpace,
    /// An accelerator of the cluster that the run is judged for; each rank has one.
    Accelerator,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitSource::Machine => "this machine",
            LimitSource::ControlGroup => "this process's control group",
            LimitSource::AddressSpace => "this process's address space (ulimit -v)",
            LimitSource::Accelerator => "an accelerator of the cluster",
        })
    }
}

/// The limit here; `None` where the system does not say.
pub fn memory_limit() -> Option<MemoryLimit> {
    memory_limit_below(Path::new("/"))
}

/// The limit of a process that alone has all memory of a run: it counts address space, too.
pub fn process_limit() -> Option<MemoryLimit> {
    process_limit_below(Path::new("/"))
}

/// Returns the same as [`process_limit`], by the files below `root`.
fn process_limit_below(root: &Path) -> Option<MemoryLimit> {
    let limits = std::fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    let address_space = address_space_bytes(&limits);
    let address_space = address_space.map(|bytes| MemoryLimit { bytes, source: LimitSource::AddressSpace });
    let limits = [address_space, memory_limit_below(root)];
    limits.into_iter().flatten().min_by_key(|limit| limit.bytes)
}

/// The soft limit of address space in `/proc/self/limits`; `None` where it is unlimited.
fn address_space_bytes(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The limit that the files `proc/` and `sys/` below `root` name: the least of the machine's memory and the limits of
/// the process's control groups, both versions, with all groups around them.
pub fn memory_limit_below(root: &Path) -> Option<MemoryLimit> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let machine = machine_bytes_below(root)?;
    let groups = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    let files = groups.lines().flat_map(|line| limit_files(root, line));
    let control_group = files.filter_map(|file| read(&file)?.trim().parse::<u64>().ok()).min();
    Some(match control_group {
        Some(bytes) if bytes < machine => MemoryLimit { bytes, source: LimitSource::ControlGroup },
        Some(_) | None => MemoryLimit { bytes: machine, source: LimitSource::Machine },
    })
}

/// The memory that is built in, as `proc/meminfo` below `root` names it.
pub fn machine_bytes_below(root: &Path) -> Option<u64> {
    total(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?)
}

/// `MemTotal` in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files with the limits of one line of `/proc/self/cgroup` (`id:controllers:path`): of the group and of all around
/// it. Inside a container the path may lead nowhere; the root of the mount is then the container's group.
fn limit_files(root: &Path, line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return vec![] };
    let (mount, file) = match controllers {
        "" => ("sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return vec![],
    };
    let group = Path::new(path.trim_start_matches('/'));
    group.ancestors().map(|ancestor| root.join(mount).join(ancestor).join(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(files: &[(&str, &str)], name: &str) -> Option<MemoryLimit> {
        let root = std::env::temp_dir().join(format!("pleach-memory-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let limit = process_limit_below(&root);
        std::fs::remove_dir_all(&root).expect("removed");
        limit
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       1000 kB\nMemFree:  10 kB\n");

    #[test]
    fn the_machine_is_the_limit_where_no_group_is() {
        let machine = Some(MemoryLimit { bytes: 1_024_000, source: LimitSource::Machine });
        assert_eq!(limit_of(&[MEMINFO], "none"), machine);
        let unlimited = [MEMINFO, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "max\n")];
        assert_eq!(limit_of(&unlimited, "max"), machine);
        assert_eq!(limit_of(&[("proc/other", "")], "nothing"), None);
    }

    #[test]
    fn the_tightest_group_around_the_process_is_the_limit() {
        let second = [
            MEMINFO,
            ("proc/self/cgroup", "0::/slice/job\n"),
            ("sys/fs/cgroup/slice/memory.max", "5000\n"),
            ("sys/fs/cgroup/slice/job/memory.max", "9000\n"),
        ];
        let expected = |bytes| Some(MemoryLimit { bytes, source: LimitSource::ControlGroup });
        assert_eq!(limit_of(&second, "second"), expected(5000));
        let first = [
            MEMINFO,
            ("proc/self/cgroup", "3:cpu:/x\n4:hugetlb,memory:/gone\n0::/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n"),
        ];
        assert_eq!(limit_of(&first, "first"), expected(7000));
    }

    #[test]
    fn address_space_is_the_limit_of_a_process_where_it_is_less() {
        let limits = |soft: &str| {
            format!("Limit    Soft Limit  Hard Limit  Units\nMax address space   {soft}   unlimited   bytes\n")
        };
        let of = |soft: &str| limit_of(&[MEMINFO, ("proc/self/limits", &limits(soft))], "space");
        assert_eq!(of("3000"), Some(MemoryLimit { bytes: 3000, source: LimitSource::AddressSpace }));
        let machine = Some(MemoryLimit { bytes: 1_024_000, source: LimitSource::Machine });
        assert_eq!([of("unlimited"), of("2000000")], [machine; 2]);
    }
}
