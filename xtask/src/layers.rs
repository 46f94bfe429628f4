//! The layers of the workspace: folders of crates, of which each uses layers below it only.

use crate::dependencies::{ALLOWED, Manifest, parse_manifest};
use crate::finding::Finding;
use crate::repository::Repository;

/// Every folder of `crates/`, with the other layers that its crates may use. A layer comes after those that it uses.
pub const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("step", &["base"]),
    ("network", &["base", "step"]),
    ("kernels", &["base", "step", "network"]),
    ("training", &["base", "step", "network", "kernels"]),
    ("planning", &["base", "step", "network", "kernels", "training"]),
    ("proof", &["base", "step", "network", "kernels", "training"]),
    ("app", &["base", "step", "network", "kernels", "training", "planning", "proof"]),
    (TESTING, &["base", "step", "network", "kernels", "training", "planning", "proof"]),
];
/// The layer that no product uses; tests of every layer may.
const TESTING: &str = "testing";
/// Most lines of a layer's README.
const MAX_README_LINES: usize = 16;

/// Crates outside of a layer, arrows up, and layers without a README.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let manifests = manifests(repository);
    let mut findings = Vec::new();
    for (path, manifest) in &manifests {
        let mut report = |message: String| findings.push(Finding { path: path.clone(), line: 0, message });
        let Some(layer) = layer_of(path) else {
            report(format!("crate {} must be in the folder of a layer, crates/LAYER/{}", manifest.name, manifest.name));
            continue;
        };
        let Some((_, lower)) = LAYERS.iter().find(|(name, _)| *name == layer) else {
            report(format!("{layer} is not a layer of xtask/src/layers.rs"));
            continue;
        };
        let of =
            |name: &str| manifests.iter().find(|(_, other)| other.name == name).and_then(|(path, _)| layer_of(path));
        for used in manifest.dependencies.iter().filter(|name| ALLOWED.iter().any(|(ours, _)| ours == name)) {
            let Some(below) = of(used) else { continue };
            if below != layer && !lower.contains(&below) {
                report(format!("{} of layer {layer} may not use {used} of layer {below}", manifest.name));
            }
        }
    }
    findings.extend(readmes(repository));
    findings
}

/// The manifests of crates in `crates/`, by path.
fn manifests(repository: &Repository) -> Vec<(String, Manifest)> {
    let files = repository.with_extension("toml").filter(|(file, _)| file.path.starts_with("crates/"));
    let files = files.filter(|(file, _)| file.path.ends_with("/Cargo.toml"));
    files.filter_map(|(file, text)| Some((file.path.clone(), parse_manifest(text).ok()??))).collect()
}

/// The layer of a file, if it is in a crate of a layer.
fn layer_of(path: &str) -> Option<&str> {
    let mut parts = path.strip_prefix("crates/")?.split('/');
    let layer = parts.next()?;
    // A crate and its manifest follow.
    (parts.count() == 2).then_some(layer)
}

/// Layers whose README is missing, or longer than a glance.
fn readmes(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (layer, _) in LAYERS {
        let path = format!("crates/{layer}/README.md");
        let lines = repository.file(&path).and_then(|file| file.text.as_deref()).map_or(0, |text| text.lines().count());
        if !(1..=MAX_README_LINES).contains(&lines) {
            let message = format!("{lines} lines; a layer has a README of 1 to {MAX_README_LINES} lines");
            findings.push(Finding { path, line: 0, message });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::SourceFile;

    /// The findings in a repository of these manifests, whose layers have READMEs.
    fn found(manifests: &[(&str, &str)]) -> Vec<String> {
        let mut files: Vec<SourceFile> = LAYERS
            .iter()
            .map(|(layer, _)| SourceFile::of(&format!("crates/{layer}/README.md"), "# A layer\n"))
            .collect();
        files.extend(manifests.iter().map(|(path, used)| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let text = format!("[package]\nname = \"{name}\"\n[dependencies]\n{used}");
            SourceFile::of(&format!("crates/{path}/Cargo.toml"), &text)
        }));
        check(&Repository { files }).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_arrow_to_a_lower_layer_and_within_one_is_allowed() {
        let manifests = [("base/files", ""), ("base/stores", "files = {}\n"), ("app/cli", "stores = {}\nclap = {}\n")];
        assert_eq!(found(&manifests), [""; 0]);
    }

    #[test]
    fn an_arrow_up_and_a_product_that_uses_the_layer_of_tests_are_found() {
        let manifests =
            [("base/files", "mesh = {}\n"), ("step/mesh", ""), ("app/cli", "testkit = {}\n"), ("testing/testkit", "")];
        let expected = [
            "crates/base/files/Cargo.toml: files of layer base may not use mesh of layer step",
            "crates/app/cli/Cargo.toml: cli of layer app may not use testkit of layer testing",
        ];
        assert_eq!(found(&manifests), expected);
    }

    #[test]
    fn tests_may_use_the_layer_of_tests() {
        let manifests = [("app/cli", "[dev-dependencies]\ntestkit = {}\n"), ("testing/testkit", "")];
        assert_eq!(found(&manifests), [""; 0]);
    }

    #[test]
    fn a_crate_outside_of_a_layer_and_an_unknown_layer_are_found() {
        let expected = [
            "crates/mesh/Cargo.toml: crate mesh must be in the folder of a layer, crates/LAYER/mesh",
            "crates/cellar/mesh/Cargo.toml: cellar is not a layer of xtask/src/layers.rs",
        ];
        assert_eq!(found(&[("mesh", ""), ("cellar/mesh", "")]), expected);
    }

    #[test]
    fn a_layer_without_a_page_is_found() {
        let findings = check(&Repository::default());
        assert_eq!(findings.len(), LAYERS.len());
        assert_eq!(findings[0].to_string(), "crates/base/README.md: 0 lines; a layer has a README of 1 to 16 lines");
    }

    #[test]
    fn every_layer_comes_after_those_that_it_uses() {
        for (index, (layer, lower)) in LAYERS.iter().enumerate() {
            for used in *lower {
                let place = LAYERS.iter().position(|(name, _)| name == used);
                assert!(place.is_some_and(|place| place < index), "{layer} -> {used}");
            }
        }
    }
}
