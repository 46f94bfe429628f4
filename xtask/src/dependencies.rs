//! Which crate may use which: the one table of arrows between crates.

/// Every crate of the workspace with the workspace crates that it may depend on. Arrows point down only.
///
/// Every edge is in use: each is in a manifest, and in the code of its crate. Tests (`dev-dependencies`) may use any
/// crate except the command line.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("philox", &[]),
    ("sync", &[]),
    ("needs", &[]),
    ("files", &[]),
    ("secrets", &["files"]),
    ("session", &["secrets"]),
    ("formats", &[]),
    ("stores", &["files"]),
    ("report", &[]),
    ("blame", &["sync", "files"]),
    ("mpi", &["sync"]),
    ("gpu", &[]),
    ("softgpu", &["sync", "gpu"]),
    ("nvidia", &["sync", "gpu"]),
    ("mesh", &[]),
    ("launcher", &["mesh"]),
    ("rendezvous", &["sync", "files", "secrets", "session", "launcher"]),
    ("config", &["mesh"]),
    ("cluster", &[]),
    ("device", &["sync", "config"]),
    ("comm", &["sync", "secrets", "session", "mpi", "mesh", "device"]),
    ("program", &["mesh", "config", "device"]),
    ("cpu", &["philox", "sync", "config", "device"]),
    ("soft_products", &["device", "gpu", "softgpu", "cpu"]),
    ("softgpu_driver", &["sync", "device", "gpu", "nvidia", "softgpu", "soft_products"]),
    ("cuda", &["philox", "sync", "config", "device", "gpu", "nvidia"]),
    ("gpu_rank", &["sync", "mesh", "device", "gpu", "nvidia", "comm", "cuda"]),
    ("model", &["philox", "config", "device"]),
    ("record", &["mesh", "config", "device", "comm", "program", "model"]),
    ("sim", &["mesh", "config", "cluster", "device", "comm", "program", "record"]),
    ("data", &["philox", "sync", "files", "formats", "config"]),
    ("checkpoint", &["sync", "files", "stores", "mesh", "config", "device"]),
    ("interchange", &["files", "mesh", "config", "checkpoint"]),
    (
        "train",
        &[
            "philox",
            "sync",
            "mesh",
            "config",
            "device",
            "comm",
            "program",
            "cpu",
            "gpu",
            "nvidia",
            "cuda",
            "gpu_rank",
            "model",
            "record",
            "data",
            "blame",
            "checkpoint",
        ],
    ),
    ("prove", &["sync", "mesh", "config", "device", "program", "checkpoint", "train"]),
    ("plan", &["sync", "mesh", "config", "cluster", "device", "comm", "program", "cpu", "record", "sim", "train"]),
    (
        "testkit",
        &[
            "philox",
            "sync",
            "mesh",
            "config",
            "device",
            "gpu",
            "nvidia",
            "softgpu",
            "soft_products",
            "comm",
            "program",
            "checkpoint",
            "train",
            "prove",
        ],
    ),
    (
        "surveys",
        &[
            "philox",
            "sync",
            "mesh",
            "config",
            "cluster",
            "device",
            "gpu",
            "nvidia",
            "comm",
            "launcher",
            "rendezvous",
            "program",
            "cpu",
            "sim",
            "checkpoint",
            "train",
            "prove",
            "plan",
            "testkit",
        ],
    ),
    (
        "run",
        &[
            "sync",
            "files",
            "secrets",
            "stores",
            "report",
            "blame",
            "mpi",
            "gpu",
            "nvidia",
            "mesh",
            "launcher",
            "rendezvous",
            "config",
            "cluster",
            "device",
            "comm",
            "program",
            "sim",
            "data",
            "checkpoint",
            "interchange",
            "train",
            "plan",
        ],
    ),
    (
        "cli",
        &[
            "sync",
            "files",
            "report",
            "blame",
            "mpi",
            "gpu",
            "nvidia",
            "mesh",
            "launcher",
            "rendezvous",
            "config",
            "cluster",
            "program",
            "sim",
            "data",
            "checkpoint",
            "interchange",
            "train",
            "prove",
            "plan",
            "run",
        ],
    ),
    ("xtask", &["data"]),
];

/// The dependencies that a manifest names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Name of the package.
    pub name: String,
    /// Names in `[dependencies]` and `[build-dependencies]`.
    pub dependencies: Vec<String>,
    /// Names in `[dev-dependencies]`.
    pub dev_dependencies: Vec<String>,
    /// Names whose version is not that of the workspace.
    pub versions_of_their_own: Vec<String>,
}

/// Reads a package's manifest; `None` for a manifest without a package, such as the workspace's.
///
/// # Errors
/// TOML that cannot be parsed.
pub fn parse_manifest(text: &str) -> Result<Option<Manifest>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    let name = table.get("package").and_then(|package| package.get("name")).and_then(toml::Value::as_str);
    let Some(name) = name else { return Ok(None) };
    let mut manifest = Manifest { name: name.into(), ..Manifest::default() };
    collect(&table, &mut manifest);
    // Dependencies for one platform are as real as the others.
    let targets = table.get("target").and_then(toml::Value::as_table);
    for target in targets.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_table) {
        collect(target, &mut manifest);
    }
    Ok(Some(manifest))
}

fn collect(table: &toml::Table, manifest: &mut Manifest) {
    for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
        let Some(entries) = table.get(section).and_then(toml::Value::as_table) else { continue };
        for (name, value) in entries {
            let list =
                if section == "dev-dependencies" { &mut manifest.dev_dependencies } else { &mut manifest.dependencies };
            list.push(name.clone());
            if value.get("workspace").and_then(toml::Value::as_bool) != Some(true) {
                manifest.versions_of_their_own.push(name.clone());
            }
        }
    }
}

/// The faults of a manifest's dependencies, one sentence each.
pub fn violations(manifest: &Manifest) -> Vec<String> {
    let name = &manifest.name;
    let Some((_, allowed)) = ALLOWED.iter().find(|(krate, _)| krate == name) else {
        return vec![format!("crate {name} is not in the table of xtask/src/dependencies.rs")];
    };
    let is_ours = |dependency: &str| ALLOWED.iter().any(|(krate, _)| *krate == dependency);
    let mut found = Vec::new();
    for dependency in manifest.dependencies.iter().filter(|dependency| is_ours(dependency)) {
        if !allowed.contains(&dependency.as_str()) {
            found.push(format!("{name} may not depend on {dependency}; it may use {}", listed(allowed)));
        }
    }
    for dependency in allowed.iter().filter(|dependency| !manifest.dependencies.iter().any(|name| name == *dependency))
    {
        found.push(format!("{name} does not depend on {dependency}: take the edge out of xtask/src/dependencies.rs"));
    }
    for dependency in
        manifest.dev_dependencies.iter().filter(|dependency| ["cli", "xtask"].contains(&dependency.as_str()))
    {
        found.push(format!("tests of {name} may not depend on {dependency}"));
    }
    for dependency in &manifest.versions_of_their_own {
        found.push(format!("{name} gives {dependency} a version; write `{dependency}.workspace = true`"));
    }
    found
}

/// Workspace crates that a manifest depends on and `code`, the code of its `src`, does not name, one sentence each.
pub fn unused(manifest: &Manifest, code: &str) -> Vec<String> {
    let is_ours = |dependency: &&String| ALLOWED.iter().any(|(krate, _)| krate == dependency);
    let dependencies = manifest.dependencies.iter().filter(is_ours);
    let unused = dependencies.filter(|dependency| !names_crate(code, dependency));
    unused.map(|dependency| format!("the code of {} does not use its dependency {dependency}", manifest.name)).collect()
}

/// Whether a path in `code` begins with `krate`.
fn names_crate(code: &str, krate: &str) -> bool {
    code.match_indices(&format!("{krate}::")).any(|(at, _)| {
        let previous = code[..at].chars().next_back();
        !previous.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
    })
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "no crate of the workspace".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_arrow_up() {
        for (index, (krate, allowed)) in ALLOWED.iter().enumerate() {
            for dependency in *allowed {
                let place = ALLOWED.iter().position(|(name, _)| name == dependency);
                assert!(place.is_some_and(|place| place < index), "{krate} -> {dependency}");
            }
        }
    }

    #[test]
    fn an_edge_outside_the_table_is_named() {
        let manifest = parse_manifest("[package]\nname = \"mesh\"\n[dependencies]\ntrain.workspace = true\n");
        let found = violations(&manifest.expect("TOML").expect("package"));
        assert_eq!(found, ["mesh may not depend on train; it may use no crate of the workspace"]);
    }

    #[test]
    fn an_allowed_edge_that_is_not_there_is_named() {
        let manifest = parse_manifest("[package]\nname = \"config\"\n").expect("TOML").expect("package");
        let expected = "config does not depend on mesh: take the edge out of xtask/src/dependencies.rs";
        assert_eq!(violations(&manifest), [expected]);
    }

    #[test]
    fn a_dependency_that_no_code_names_is_found() {
        let manifest = parse_manifest("[package]\nname = \"config\"\n[dependencies]\nmesh.workspace = true\n");
        let manifest = manifest.expect("TOML").expect("package");
        assert_eq!(unused(&manifest, "use mesh::Rank;"), [""; 0]);
        let expected = "the code of config does not use its dependency mesh";
        assert_eq!(unused(&manifest, "use crate::mesh::Rank; smesh::a()"), [expected]);
    }

    #[test]
    fn a_version_outside_the_workspace_is_named() {
        let manifest = parse_manifest("[package]\nname = \"mesh\"\n[target.'cfg(unix)'.dependencies]\nserde = \"1\"\n");
        let found = violations(&manifest.expect("TOML").expect("package"));
        assert_eq!(found, ["mesh gives serde a version; write `serde.workspace = true`"]);
    }
}
