//! The modules of a crate as the compiler finds them, and the files that define what a file uses.

use std::collections::{BTreeMap, BTreeSet};

use crate::repository::Repository;
use crate::rust_code::code_without_tests;

/// Keywords before the name of an item.
const ITEMS: &[&str] = &["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod"];
/// Words between such a keyword and the name.
const QUALIFIERS: &[&str] = &["unsafe", "extern", "fn", "async", "mut"];
/// Re-exports of re-exports that are followed.
const MAX_DEPTH: usize = 12;

/// For two files, or two places, what the first takes from the second.
pub type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// A library or a program.
#[derive(Clone, Debug)]
pub struct Crate {
    /// The folder of its first file.
    pub folder: String,
    /// The module of each file.
    pub places: BTreeMap<String, Vec<String>>,
    /// From files to the files that define what they use, other than themselves.
    pub arrows: Arrows,
}

/// All crates, without tests.
pub fn crates(repository: &Repository) -> Vec<Crate> {
    let is_root = |path: &str| {
        let is_program = path.contains("/src/bin/") && path.ends_with("/main.rs");
        path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || is_program
    };
    let roots =
        repository.with_extension("rs").filter(|(file, _)| is_root(&file.path) && !file.path.contains("/tests/"));
    roots.map(|(file, _)| Tree::of(repository, &file.path).summary()).collect()
}

/// A module: a file, or a part of one.
#[derive(Debug, Default)]
struct Module {
    path: Vec<String>,
    file: String,
    parent: usize,
    children: BTreeMap<String, usize>,
    /// Modules that are files of their own.
    declared: Vec<String>,
    items: BTreeSet<String>,
    /// Imported names with their paths.
    uses: BTreeMap<String, Vec<String>>,
    imports: Vec<Import>,
    /// Paths of at least two words in code.
    paths: Vec<Vec<String>>,
    /// Single words in code.
    words: BTreeSet<String>,
}

/// A leaf of a `use`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Import {
    path: Vec<String>,
    /// The name that it has here; none for all names of a module.
    name: Option<String>,
}

/// The end of a path.
enum Target {
    Module(usize),
    Item { module: usize, name: String },
}

/// The modules of a crate; the first is its root.
struct Tree {
    modules: Vec<Module>,
}

impl Tree {
    fn of(repository: &Repository, root: &str) -> Tree {
        let mut tree = Tree { modules: vec![Module { file: root.into(), ..Module::default() }] };
        let mut files = vec![0];
        while let Some(module) = files.pop() {
            let first_inline = tree.modules.len();
            let text =
                repository.file(&tree.modules[module].file).and_then(|file| file.text.as_deref()).unwrap_or_default();
            tree.read(module, &tokens(&code_without_tests(text)));
            let inline = first_inline..tree.modules.len();
            for parent in [module].into_iter().chain(inline) {
                let places = child_files(&tree.modules[module], &tree.modules[parent], given_paths(text));
                for (name, tries) in places {
                    let is_test = |path: &String| name == "tests" || path.contains("/tests/");
                    let file = tries.into_iter().find(|path| repository.file(path).is_some());
                    if let Some(file) = file.filter(|path| !is_test(path)) {
                        files.push(tree.add(parent, &name, file));
                    }
                }
            }
        }
        tree
    }

    fn add(&mut self, parent: usize, name: &str, file: String) -> usize {
        let path = [self.modules[parent].path.as_slice(), &[name.to_string()]].concat();
        let number = self.modules.len();
        self.modules.push(Module { path, file, parent, ..Module::default() });
        self.modules[parent].children.insert(name.into(), number);
        number
    }

    /// Reads the items, imports and paths of a file into `module` and modules within it.
    fn read(&mut self, module: usize, tokens: &[String]) {
        let token = |at: usize| tokens.get(at).map_or("", String::as_str);
        let (mut open, mut depth, mut at) = (vec![(module, 0)], 0_usize, 0);
        while at < tokens.len() {
            let (current, own_depth) = open.last().copied().unwrap_or((module, 0));
            let follows_path = at > 0 && ["::", "."].contains(&token(at - 1));
            match token(at) {
                "use" if !follows_path && token(at + 1) != "<" => {
                    let (imports, end) = use_tree(tokens, at + 1, &[]);
                    self.modules[current].take_imports(imports);
                    at = end;
                    continue;
                }
                "mod" if is_word(token(at + 1)) && token(at + 2) == ";" => {
                    self.modules[current].declared.push(token(at + 1).into());
                    at += 2;
                }
                "mod" if is_word(token(at + 1)) && token(at + 2) == "{" => {
                    let file = self.modules[current].file.clone();
                    depth += 1;
                    open.push((self.add(current, token(at + 1), file), depth));
                    at += 2;
                }
                "macro_rules" if token(at + 1) == "!" => {
                    self.modules[current].items.insert(token(at + 2).into());
                    at += 2;
                }
                keyword if ITEMS.contains(&keyword) && depth == own_depth && is_name(token(at + 1)) => {
                    self.modules[current].items.insert(token(at + 1).into());
                    at += 1;
                }
                "{" => depth += 1,
                "}" => {
                    if open.len() > 1 && depth == own_depth {
                        open.pop();
                    }
                    depth = depth.saturating_sub(1);
                }
                word if is_word(word) && !follows_path => {
                    let path = path_at(tokens, at);
                    at += 2 * (path.len() - 1);
                    self.modules[current].take_path(path);
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The end of a path in the code of `module`; none for what other crates define, and for local names.
    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let (head, mut rest) = path.split_first()?;
        let start = match head.as_str() {
            _ if depth > MAX_DEPTH => return None,
            "crate" => 0,
            "self" => module,
            "super" => {
                let mut start = self.modules[module].parent;
                while let Some(("super", more)) = rest.split_first().map(|(head, more)| (head.as_str(), more)) {
                    (start, rest) = (self.modules[start].parent, more);
                }
                start
            }
            _ => return self.within(module, path, depth),
        };
        if rest.is_empty() {
            return Some(Target::Module(start));
        }
        let missing = || Target::Item { module: start, name: rest[0].clone() };
        Some(self.within(start, rest, depth).unwrap_or_else(missing))
    }

    /// The end of a path that begins with a name of `module`.
    fn within(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let (head, rest) = path.split_first()?;
        let own = &self.modules[module];
        if let Some(child) = own.children.get(head) {
            return if rest.is_empty() {
                Some(Target::Module(*child))
            } else {
                self.within_or_item(*child, rest, depth)
            };
        }
        if own.items.contains(head) {
            return Some(Target::Item { module, name: head.clone() });
        }
        if let Some(target) = own.uses.get(head) {
            let is_other_crate = target.len() == 1 || target[0] == *head;
            let path = [target.as_slice(), rest].concat();
            return if is_other_crate { None } else { self.resolve(module, &path, depth + 1) };
        }
        let globs = own.imports.iter().filter(|import| import.name.is_none());
        globs.filter(|import| own.is_of_crate(&import.path)).find_map(|import| {
            match self.resolve(module, &import.path, depth + 1) {
                Some(Target::Module(target)) if target != module => self.within(target, path, depth + 1),
                Some(Target::Module(_) | Target::Item { .. }) | None => None,
            }
        })
    }

    /// Returns the same as [`Tree::within`]; a name that `module` does not show, such as that of a macro's item, counts
    /// as its item.
    fn within_or_item(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        self.within(module, path, depth).or_else(|| Some(Target::Item { module, name: path.first()?.clone() }))
    }

    /// The names that `module` uses, with the modules that define them.
    fn targets(&self, module: usize) -> Vec<(usize, String)> {
        let own = &self.modules[module];
        let mut targets = Vec::new();
        let mut take = |target: Option<Target>| {
            if let Some(Target::Item { module, name }) = target {
                targets.push((module, name));
            }
        };
        for path in own.imports.iter().filter(|import| import.name.is_some()).map(|import| &import.path) {
            take(self.resolve(module, path, 0));
        }
        for path in &own.paths {
            take(self.resolve(module, path, 0));
        }
        for import in own.imports.iter().filter(|import| import.name.is_none()) {
            match self.resolve(module, &import.path, 0) {
                Some(Target::Module(all)) => {
                    let is_foreign = |word: &&String| !own.items.contains(*word) && !own.uses.contains_key(*word);
                    let heads = own.paths.iter().map(|path| &path[0]).chain(&own.words).filter(is_foreign);
                    for word in heads {
                        take(self.within(all, std::slice::from_ref(word), 0));
                    }
                }
                item => take(item),
            }
        }
        targets
    }

    fn summary(&self) -> Crate {
        let root = &self.modules[0].file;
        let folder = root.rsplit_once('/').map_or(root.as_str(), |(folder, _)| folder).to_string();
        let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for module in &self.modules {
            let place = places.entry(module.file.clone()).or_insert_with(|| module.path.clone());
            if module.path.len() < place.len() {
                place.clone_from(&module.path);
            }
        }
        let mut arrows = Arrows::new();
        for (number, own) in self.modules.iter().enumerate() {
            for (target, name) in self.targets(number) {
                let file = &self.modules[target].file;
                if *file != own.file {
                    arrows.entry((own.file.clone(), file.clone())).or_default().insert(name);
                }
            }
        }
        Crate { folder, places, arrows }
    }
}

impl Module {
    fn take_imports(&mut self, imports: Vec<Import>) {
        for import in imports {
            if let Some(name) = import.name.as_ref().filter(|name| *name != "_") {
                self.uses.entry(name.clone()).or_insert_with(|| import.path.clone());
            }
            self.imports.push(import);
        }
    }

    fn take_path(&mut self, path: Vec<String>) {
        match path.as_slice() {
            [word] => _ = self.words.insert(word.clone()),
            _ => self.paths.push(path),
        }
    }

    /// Whether a path begins in this crate.
    fn is_of_crate(&self, path: &[String]) -> bool {
        path.first()
            .is_some_and(|head| ["crate", "self", "super"].contains(&head.as_str()) || self.children.contains_key(head))
    }
}

/// The files in which the modules may be that `parent` declares, a module of the file of `module`.
fn child_files(module: &Module, parent: &Module, given: BTreeMap<String, String>) -> Vec<(String, Vec<String>)> {
    let (folder, name) = module.file.rsplit_once('/').unwrap_or(("", &module.file));
    let is_face = module.path.is_empty() || name == "mod.rs";
    let mut base = if is_face { folder.to_string() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) };
    for inner in &parent.path[module.path.len()..] {
        base = format!("{base}/{inner}");
    }
    let tries = |name: &String| match given.get(name) {
        Some(path) => vec![format!("{folder}/{path}")],
        None => vec![format!("{base}/{name}.rs"), format!("{base}/{name}/mod.rs")],
    };
    parent.declared.iter().map(|name| (name.clone(), tries(name))).collect()
}

/// The files that `#[path]` gives to modules, by their names.
fn given_paths(text: &str) -> BTreeMap<String, String> {
    let mut paths = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let given = line.trim().strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"));
        let Some(path) = given else { continue };
        let declared = lines.next().and_then(|line| line.trim().strip_suffix(';')?.rsplit_once("mod "));
        if let Some((_, name)) = declared {
            paths.insert(name.to_string(), path.to_string());
        }
    }
    paths
}

/// The leaves of the `use` at `start`, and the end of it.
fn use_tree(tokens: &[String], start: usize, prefix: &[String]) -> (Vec<Import>, usize) {
    let token = |at: usize| tokens.get(at).map_or(";", String::as_str);
    let (mut path, mut at) = (prefix.to_vec(), start);
    loop {
        match token(at) {
            "{" => {
                let mut leaves = Vec::new();
                at += 1;
                while !["}", ";"].contains(&token(at)) {
                    let (more, end) = use_tree(tokens, at, &path);
                    leaves.extend(more);
                    at = if token(end) == "," { end + 1 } else { end };
                }
                return (leaves, at + 1);
            }
            "*" => return (vec![Import { path, name: None }], at + 1),
            "::" => at += 1,
            word if is_word(word) => {
                path.push(word.into());
                at += 1;
                if token(at) == "::" {
                    continue;
                }
                let renamed = (token(at) == "as").then(|| token(at + 1).to_string());
                at += if renamed.is_some() { 2 } else { 0 };
                path.pop_if(|last| last == "self");
                let name = renamed.or_else(|| path.last().cloned());
                return (vec![Import { path, name }], at);
            }
            _ => return (vec![], at + 1),
        }
    }
}

/// The words at `start` that `::` joins.
fn path_at(tokens: &[String], start: usize) -> Vec<String> {
    let mut path = vec![tokens[start].clone()];
    let mut at = start;
    while let Some([joint, word]) = tokens.get(at + 1..at + 3) {
        if joint != "::" || !is_word(word) {
            break;
        }
        path.push(word.clone());
        at += 2;
    }
    path
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Whether a word after a keyword of [`ITEMS`] is the name of the item.
fn is_name(token: &str) -> bool {
    is_word(token) && !QUALIFIERS.contains(&token)
}

/// Words, `::` and single signs of code; lifetimes have none of them.
fn tokens(code: &str) -> Vec<String> {
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
    let mut tokens = Vec::new();
    let mut left = code.chars().peekable();
    while let Some(c) = left.next() {
        if is_part(&c) || c == '\'' {
            let mut word = String::from(c);
            while let Some(next) = left.next_if(is_part) {
                word.push(next);
            }
            tokens.push(word);
        } else if c == ':' && left.next_if_eq(&':').is_some() {
            tokens.push("::".into());
        } else if !c.is_whitespace() {
            tokens.push(c.into());
        }
    }
    tokens
}
