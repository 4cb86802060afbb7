//! One style of imports, which rustfmt cannot enforce yet.
use super::cycles::{Import, leaves};
use super::{Finding, SourceFile};
use std::collections::BTreeSet;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{ItemUse, UseTree};

pub(crate) const RULE: &str = "imports";

pub(crate) fn check(file: &SourceFile<'_>, _: &[String]) -> Vec<Finding> {
    let Some(code) = file.code else { return Vec::new() };
    let mut uses = Uses::default();
    uses.visit_file(&code.syntax);
    file.findings(RULE, uses.faults.into_iter())
}

#[derive(Default)]
struct Uses {
    /// Modules that the current block or module has imported from.
    seen: BTreeSet<String>,
    faults: Vec<(usize, String)>,
}

impl<'a> Visit<'a> for Uses {
    fn visit_item_use(&mut self, item: &'a ItemUse) {
        let line = item.span().start().line;
        if names_several(&item.tree) {
            let what = "this import names several modules: write one `use` for each";
            self.faults.push((line, what.to_owned()));
            return;
        }
        let module = module_of(&item.tree);
        let visibility = item.vis.span().source_text().unwrap_or_default();
        let plain = item.attrs.is_empty() && !module.is_empty();
        if plain && !self.seen.insert(format!("{visibility} {module}")) {
            self.faults.push((line, format!("{module} is imported from twice: merge the two")));
        }
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        let outside = std::mem::take(&mut self.seen);
        visit::visit_item_mod(self, module);
        self.seen = outside;
    }

    fn visit_block(&mut self, block: &'a syn::Block) {
        let outside = std::mem::take(&mut self.seen);
        visit::visit_block(self, block);
        self.seen = outside;
    }
}

/// Returns whether a group contains a path instead of names alone.
fn names_several(tree: &UseTree) -> bool {
    match tree {
        UseTree::Path(path) => names_several(&path.tree),
        UseTree::Group(group) => {
            group.items.iter().any(|item| matches!(item, UseTree::Path(_) | UseTree::Group(_)))
        }
        UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => false,
    }
}

/// Returns the module that a tree without nested paths imports from; empty for a glob or a renamed
/// trait, which need no merging.
fn module_of(tree: &UseTree) -> String {
    let mut found: Vec<Import> = Vec::new();
    leaves(tree, &mut Vec::new(), &mut found);
    match found.first() {
        Some(first) if !stands_alone(tree) => first[..first.len() - 1].join("::"),
        _ => String::new(),
    }
}

fn stands_alone(tree: &UseTree) -> bool {
    match tree {
        UseTree::Path(path) => stands_alone(&path.tree),
        UseTree::Rename(name) => name.rename == "_",
        UseTree::Glob(_) => true,
        UseTree::Name(_) | UseTree::Group(_) => false,
    }
}
