//! Known faults of dependencies: a dated extract of the RustSec advisory database for the crates of `Cargo.lock`.
//!
//! The extract is committed, so that a check needs no network and gives the same answer twice. A crate that the extract
//! does not cover is a finding: whoever adds a crate renews the extract.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use toml::Table;

use crate::advisories::version::{Requirement, Version};

mod version;

/// The extract.
pub const PATH: &str = "xtask/advisories.toml";

/// An advisory of the RustSec database, without its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advisory {
    /// `RUSTSEC-YEAR-NUMBER`.
    pub id: String,
    /// The crate.
    pub package: String,
    /// `vulnerability`, or what else it informs of: `unsound`, `unmaintained`, `notice`.
    pub kind: String,
    /// Versions in which the fault is mended.
    pub patched: Vec<Requirement>,
    /// Versions that never had it.
    pub unaffected: Vec<Requirement>,
}

/// The advisories of some crates at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extract {
    /// Crates whose advisories are all in the extract.
    pub covers: BTreeSet<String>,
    /// Their advisories.
    pub advisories: Vec<Advisory>,
    /// Advisories that do not matter here, with the reason.
    pub accepted: BTreeMap<String, String>,
}

/// A crate of a lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    pub name: String,
    pub version: Version,
}

/// The crates of a lock file that come from a registry or a repository; those of the workspace have no source.
///
/// # Errors
/// Text that is not a lock file.
pub fn locked(lock_file: &str) -> Result<Vec<Locked>, String> {
    let table: Table = lock_file.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let packages = table.get("package").and_then(toml::Value::as_array).ok_or("Cargo.lock must list packages")?;
    let foreign = packages.iter().filter(|package| package.get("source").is_some());
    foreign
        .map(|package| {
            let name = text(package, "name")?;
            let version = Version::parse(&text(package, "version")?)?;
            Ok(Locked { name, version })
        })
        .collect()
}

impl Extract {
    /// Reads the committed file.
    ///
    /// # Errors
    /// A file in another form.
    pub fn parse(file: &str) -> Result<Extract, String> {
        let table: Table = file.parse().map_err(|error| format!("{PATH}: {error}"))?;
        let advisories = table.get("advisory").and_then(toml::Value::as_array).into_iter().flatten();
        let accepted = table.get("accepted").and_then(toml::Value::as_table).into_iter().flatten();
        Ok(Extract {
            covers: strings(table.get("covers"))?.into_iter().collect(),
            advisories: advisories.map(advisory).collect::<Result<_, String>>()?,
            accepted: accepted.map(|(id, reason)| (id.clone(), reason.as_str().unwrap_or_default().into())).collect(),
        })
    }

    /// Findings about `crates`, one sentence each: crates that are not covered, advisories for the versions in use,
    /// and accepted ones that are not met any more.
    pub fn findings(&self, crates: &[Locked]) -> Vec<String> {
        let mut findings = Vec::new();
        let mut met = BTreeSet::new();
        for Locked { name, version } in crates {
            if !self.covers.contains(name) {
                findings
                    .push(format!("{name} is not covered by {PATH}; renew it: cargo run -p xtask -- advisories DB"));
            }
            for advisory in self.advisories.iter().filter(|advisory| advisory.package == *name) {
                let is_safe = advisory.patched.iter().chain(&advisory.unaffected).any(|safe| safe.contains(version));
                if is_safe {
                    continue;
                }
                met.insert(advisory.id.as_str());
                if !self.accepted.contains_key(&advisory.id) {
                    let Advisory { id, kind, .. } = advisory;
                    findings.push(format!("{name} {version} has {id} ({kind}); use a version that is mended"));
                }
            }
        }
        let idle = self.accepted.keys().filter(|id| !met.contains(id.as_str()));
        findings.extend(idle.map(|id| format!("{id} is accepted in {PATH}, and no crate has it; remove the line")));
        findings
    }
}

fn advisory(value: &toml::Value) -> Result<Advisory, String> {
    let requirements = |key: &str| -> Result<Vec<Requirement>, String> {
        strings(value.get(key))?.iter().map(|text| Requirement::parse(text)).collect()
    };
    Ok(Advisory {
        id: text(value, "id")?,
        package: text(value, "package")?,
        kind: text(value, "kind")?,
        patched: requirements("patched")?,
        unaffected: requirements("unaffected")?,
    })
}

fn text(value: &toml::Value, key: &str) -> Result<String, String> {
    value.get(key).and_then(toml::Value::as_str).map(String::from).ok_or_else(|| format!("{key} is missing in {value}"))
}

fn strings(value: Option<&toml::Value>) -> Result<Vec<String>, String> {
    let Some(value) = value else { return Ok(vec![]) };
    let list = value.as_array().ok_or_else(|| format!("a list was expected, not {value}"))?;
    list.iter()
        .map(|item| item.as_str().map(String::from).ok_or_else(|| format!("a text was expected: {item}")))
        .collect()
}

/// The extract for `crates` as text, from a clone of the database at `database`. `accepted` lines are kept.
///
/// # Errors
/// A clone that cannot be read.
pub fn extract(database: &Path, crates: &[Locked], accepted: &BTreeMap<String, String>) -> Result<String, String> {
    let of = git(database, &["log", "-1", "--date=short", "--format=commit = \"%H\"%ndate = \"%cd\""])?;
    let names: BTreeSet<&str> = crates.iter().map(|locked| locked.name.as_str()).collect();
    let mut text = String::from(
        "# Advisories of the RustSec database for the crates of Cargo.lock. `cargo run -p xtask -- advisories DB` renews it\n\
         # from a clone of github.com/rustsec/advisory-db; a test compares it with Cargo.lock.\n\n\
         # Crates whose advisories, if they have any, are below.\ncovers = [\n",
    );
    for name in &names {
        text.push_str(&format!("    \"{name}\",\n"));
    }
    text.push_str(&format!(
        "]\n\n[source]\n{of}\n# Advisories that do not matter here, each with the reason.\n[accepted]\n"
    ));
    for (id, reason) in accepted {
        text.push_str(&format!("{id} = {reason:?}\n"));
    }
    for name in names {
        let listed = git(database, &["ls-tree", "-r", "--name-only", "HEAD", &format!("crates/{name}/")])?;
        for path in listed.lines() {
            text.push_str(&entry(&git(database, &["show", &format!("HEAD:{path}")])?, path)?);
        }
    }
    Ok(text)
}

/// One advisory in the words of the extract; empty for one that was withdrawn.
fn entry(file: &str, path: &str) -> Result<String, String> {
    let block = file.split("```").nth(1).and_then(|block| block.strip_prefix("toml")).unwrap_or_default();
    let table: Table = block.parse().map_err(|error| format!("{path}: {error}"))?;
    let advisory = table.get("advisory").ok_or_else(|| format!("{path} has no advisory"))?;
    if advisory.get("withdrawn").is_some() {
        return Ok(String::new());
    }
    let versions = |key: &str| strings(table.get("versions").and_then(|versions| versions.get(key)));
    let kind = advisory.get("informational").and_then(toml::Value::as_str).unwrap_or("vulnerability");
    Ok(format!(
        "\n[[advisory]]\nid = {:?}\npackage = {:?}\nkind = {kind:?}\npatched = {:?}\nunaffected = {:?}\n",
        text(advisory, "id")?,
        text(advisory, "package")?,
        versions("patched")?,
        versions("unaffected")?,
    ))
}

fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let said = |error: &dyn std::fmt::Display| format!("git {} in {}: {error}", arguments.join(" "), folder.display());
    let output = Command::new("git").args(arguments).current_dir(folder).output().map_err(|error| said(&error))?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(|error| said(&error)),
        false => Err(said(&String::from_utf8_lossy(&output.stderr))),
    }
}
