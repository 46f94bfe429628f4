//! Circles of files and loops of folders within a crate.
//!
//! An arrow goes from a file to each file that defines what it uses. A file and the files below it are one place, and
//! arrows within a place do not count: that is how a folder works.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::finding::Finding;
use crate::modules::{Arrows, Crate, crates};
use crate::repository::Repository;

/// Most files of a circle: types that describe each other.
pub const MAX_CIRCLE: usize = 3;

/// Loops that are still open: folders of crates with their numbers of circles of more than [`MAX_CIRCLE`] files, and of
/// loops of folders.
const OPEN: &[(&str, usize, usize)] = &[];

/// The shape of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Files that use each other.
    Circle,
    /// Folders, and files in the same folder, that use each other.
    Folders,
}

/// Files or folders of a crate each of which uses all others, if only by way of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The folder `src` of the crate.
    pub folder: String,
    pub shape: Shape,
    /// Files below `src`, or folders and files of one folder.
    pub members: Vec<String>,
    /// Which file takes what from which.
    pub arrows: Vec<String>,
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.shape {
            Shape::Circle => "files use each other",
            Shape::Folders => "folders use each other",
        };
        write!(f, "{what}: {}", self.members.join(", "))?;
        self.arrows.iter().try_for_each(|arrow| write!(f, "\n    {arrow}"))
    }
}

/// All circles of more than [`MAX_CIRCLE`] files, and all loops of folders.
pub fn loops(repository: &Repository) -> Vec<Loop> {
    crates(repository).iter().flat_map(|one| [circles(one), folder_loops(one)].concat()).collect()
}

/// The loops of crates that are not among those that are still open, and crates of that list that have fewer.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut by_folder: BTreeMap<String, Vec<Loop>> = BTreeMap::new();
    for found in loops(repository) {
        by_folder.entry(found.folder.clone()).or_default().push(found);
    }
    let mut findings = Vec::new();
    for (folder, circles, folders) in OPEN {
        let found = by_folder.remove(*folder).unwrap_or_default();
        let count = |shape: Shape| found.iter().filter(|one| one.shape == shape).count();
        if (count(Shape::Circle), count(Shape::Folders)) != (*circles, *folders) {
            let message = format!(
                "{folder} has {} circles and {} loops of folders, and the list of those that are open has {circles} \
                 and {folders}; open them, or shorten the list",
                count(Shape::Circle),
                count(Shape::Folders)
            );
            findings.push(Finding { path: "xtask/src/loops.rs".into(), line: 0, message });
        }
    }
    let others = by_folder.into_values().flatten();
    findings.extend(others.map(|found| Finding { path: found.folder.clone(), line: 0, message: found.to_string() }));
    findings
}

/// Circles of files, without arrows between a file and those below it.
fn circles(one: &Crate) -> Vec<Loop> {
    let mut graph: Graph = BTreeMap::new();
    let mut names: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for ((from, to), taken) in &one.arrows {
        let (above, below) = (&one.places[from], &one.places[to]);
        if above.starts_with(below) || below.starts_with(above) {
            continue;
        }
        graph.entry(from.clone()).or_default().insert(to.clone());
        names.insert((from, to), shown(one, from, to, taken));
    }
    let large = components(&graph).into_iter().filter(|members| members.len() > MAX_CIRCLE);
    large.map(|members| loop_of(one, Shape::Circle, &members, &names)).collect()
}

fn loop_of(one: &Crate, shape: Shape, members: &[String], names: &BTreeMap<(&str, &str), String>) -> Loop {
    let is_inside = |name: &str| members.iter().any(|member| member == name);
    let arrows = names.iter().filter(|((from, to), _)| is_inside(from) && is_inside(to));
    Loop {
        folder: one.folder.clone(),
        shape,
        members: members.iter().map(|file| below(one, file)).collect(),
        arrows: arrows.map(|(_, text)| text.clone()).collect(),
    }
}

/// In each folder, the loops of its folders and files of which at least one is a folder.
fn folder_loops(one: &Crate) -> Vec<Loop> {
    let mut folders: BTreeMap<&[String], Arrows> = BTreeMap::new();
    for ((from, to), taken) in &one.arrows {
        let (a, b) = (&one.places[from], &one.places[to]);
        let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        if let (Some(first), Some(second)) = (a.get(shared), b.get(shared)) {
            let arrow = (first.clone(), second.clone());
            let texts = folders.entry(&a[..shared]).or_default().entry(arrow).or_default();
            texts.insert(shown(one, from, to, taken));
        }
    }
    let mut found = Vec::new();
    for (folder, arrows) in folders {
        let mut graph: Graph = BTreeMap::new();
        for (from, to) in arrows.keys() {
            graph.entry(from.clone()).or_default().insert(to.clone());
        }
        let has_files = |name: &String| {
            one.places.values().any(|place| {
                place.len() > folder.len() + 1 && place.starts_with(folder) && place[folder.len()] == *name
            })
        };
        for members in components(&graph).into_iter().filter(|members| members.iter().any(has_files)) {
            let is_inside = |name: &String| members.contains(name);
            let own = arrows.iter().filter(|((from, to), _)| is_inside(from) && is_inside(to));
            let arrows = own.flat_map(|(_, texts)| texts.iter().cloned()).collect();
            let path = |name: &String| {
                let path = [folder, std::slice::from_ref(name)].concat().join("/");
                if has_files(name) { format!("{path}/") } else { path }
            };
            let members = members.iter().map(path).collect();
            found.push(Loop { folder: one.folder.clone(), shape: Shape::Folders, members, arrows });
        }
    }
    found
}

fn shown(one: &Crate, from: &str, to: &str, taken: &BTreeSet<String>) -> String {
    let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
    format!("{} -> {}: {}", below(one, from), below(one, to), taken.join(", "))
}

/// The path of a file below the folder of its crate.
fn below(one: &Crate, file: &str) -> String {
    file.strip_prefix(&one.folder).unwrap_or(file).trim_start_matches('/').to_string()
}

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The sets of at least two nodes that reach each other.
fn components(graph: &Graph) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = graph.keys().map(|node| (node, reached(graph, node))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (node, others) in &reached {
        if !seen.insert(*node) {
            continue;
        }
        let comes_back = |other: &&&String| reached.get(**other).is_some_and(|back| back.contains(node));
        let members: BTreeSet<&String> = others.iter().filter(comes_back).copied().chain([*node]).collect();
        seen.extend(&members);
        if members.len() > 1 {
            found.push(members.into_iter().cloned().collect());
        }
    }
    found
}

/// The nodes that arrows lead to from `node`.
fn reached<'a>(graph: &'a Graph, node: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = graph.get(node).into_iter().flatten().collect();
    while let Some(node) = next.pop() {
        if found.insert(node) {
            next.extend(graph.get(node).into_iter().flatten());
        }
    }
    found
}
