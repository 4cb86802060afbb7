//! Import cycles: files of one crate that reach each other through `use`.
//!
//! A module may import from modules that contain it: it is part of them and moves with them.
use super::code::{Code, Module};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{ItemMod, ItemUse, UseTree};

/// Returns the groups of files that import each other, each sorted.
pub(super) fn find(code: &Code) -> Vec<Vec<String>> {
    let graph = Crates::new(code).edges();
    let mut groups = BTreeSet::new();
    for file in graph.keys() {
        let ahead = reachable(&graph, file);
        let mut group: Vec<String> =
            ahead.into_iter().filter(|other| reachable(&graph, other).contains(file)).collect();
        group.sort();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

pub(super) type Import = Vec<String>;

type Graph = BTreeMap<String, BTreeSet<String>>;

fn reachable(graph: &Graph, start: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![start];
    while let Some(file) = open.pop() {
        for next in graph.get(file).into_iter().flatten() {
            if found.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    found
}

/// A module of a crate: the file with the root, and the path below it.
type Place<'a> = (&'a str, Vec<String>);

/// The modules and imports of all crates, except those for tests.
struct Crates<'a> {
    modules: BTreeMap<Place<'a>, &'a Module>,
    imports: BTreeMap<Place<'a>, Vec<Import>>,
}

impl<'a> Crates<'a> {
    fn new(code: &'a Code) -> Self {
        let mut crates = Self { modules: BTreeMap::new(), imports: BTreeMap::new() };
        for module in code.modules.iter().filter(|module| !module.test) {
            let root = module.root.as_str();
            crates.modules.insert((root, module.path.clone()), module);
            if !module.inline {
                for (inside, found) in imports(code, module) {
                    let path = [module.path.clone(), inside].concat();
                    crates.imports.entry((root, path)).or_default().extend(found);
                }
            }
        }
        crates
    }

    fn edges(&self) -> Graph {
        let mut graph = Graph::new();
        for ((root, path), imports) in &self.imports {
            let Some(from) = self.modules.get(&(*root, path.clone())) else { continue };
            let targets = imports.iter().filter_map(|import| self.resolve(root, path, import));
            let targets = targets.filter(|file| *file != from.file && !contains(file, &from.file));
            graph.entry(from.file.clone()).or_default().extend(targets);
        }
        graph
    }

    /// Returns the file of the module that `path` names or leads into, seen from the module at `here`;
    /// none for another crate.
    fn resolve(&self, root: &str, here: &[String], path: &[String]) -> Option<String> {
        let mut place = here.to_vec();
        let first = path.first()?.as_str();
        if first == "crate" {
            place.clear();
        } else if !["self", "super"].contains(&first) {
            let child = [here, &[first.to_owned()]].concat();
            self.modules.get(&(root, child))?;
        }
        for segment in path {
            match segment.as_str() {
                "crate" | "self" | "*" => {}
                "super" => drop(place.pop()),
                name => {
                    place.push(name.to_owned());
                    if !self.modules.contains_key(&(root, place.clone())) {
                        place.pop();
                        break;
                    }
                }
            }
        }
        Some(self.modules.get(&(root, place))?.file.clone())
    }
}

fn contains(file: &str, other: &str) -> bool {
    let stem = file.trim_end_matches(".rs");
    let ends = ["/mod", "/lib", "/main"];
    let folder = ends.iter().find_map(|end| stem.strip_suffix(end)).unwrap_or(stem);
    other.starts_with(&format!("{folder}/"))
}

fn imports(code: &Code, module: &Module) -> BTreeMap<Vec<String>, Vec<Import>> {
    let mut uses = Uses::default();
    if let Some(file) = code.files.get(&module.file) {
        uses.visit_file(&file.syntax);
    }
    uses.found
}

#[derive(Default)]
struct Uses {
    inside: Vec<String>,
    found: BTreeMap<Vec<String>, Vec<Import>>,
}

impl<'a> Visit<'a> for Uses {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if module.attrs.iter().any(super::code::is_for_tests) {
            return;
        }
        self.inside.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inside.pop();
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if !item.attrs.iter().any(super::code::is_for_tests) {
            let found = self.found.entry(self.inside.clone()).or_default();
            leaves(&item.tree, &mut Vec::new(), found);
        }
    }
}

/// Collects the paths of all names that a tree imports; the last segment is `*` for a glob.
pub(super) fn leaves(tree: &UseTree, path: &mut Import, found: &mut Vec<Import>) {
    let leaf = |path: &Import, last: String| [&path[..], &[last]].concat();
    match tree {
        UseTree::Path(below) => {
            path.push(below.ident.to_string());
            leaves(&below.tree, path, found);
            path.pop();
        }
        UseTree::Name(name) => found.push(leaf(path, name.ident.to_string())),
        UseTree::Rename(name) => found.push(leaf(path, name.ident.to_string())),
        UseTree::Glob(_) => found.push(leaf(path, "*".to_owned())),
        UseTree::Group(group) => {
            for below in &group.items {
                leaves(below, path, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::code;
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        find(&code(files))
    }

    #[test]
    fn files_that_import_each_other_are_a_cycle() {
        let cycles = found(&[
            ("crates/a/src/lib.rs", "mod b; mod c; mod d;"),
            ("crates/a/src/b.rs", "use crate::c::C;"),
            ("crates/a/src/c.rs", "use super::{d::{D, E as F}};"),
            ("crates/a/src/d.rs", "fn f() { use crate::b::B; }"),
        ]);
        assert_eq!(cycles.len(), 1);
        assert_eq!(cycles[0].len(), 3, "{cycles:?}");
    }

    #[test]
    fn a_part_may_import_from_the_whole_and_tests_do_not_count() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; mod c; use b::B; struct A;"),
            ("crates/a/src/b/mod.rs", "mod d; use super::A; use crate::c::C; use std::fmt;"),
            ("crates/a/src/b/d.rs", "use super::B; use crate::A; use self::E as X;"),
            ("crates/a/src/c.rs", "#[cfg(test)]\nmod tests { use super::super::b::B; }"),
        ];
        assert_eq!(found(&files).len(), 0);
        let files = [files[0], files[1], files[2], ("crates/a/src/c.rs", "use crate::b::B;")];
        assert_eq!(found(&files).len(), 1);
    }
}
