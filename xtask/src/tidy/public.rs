//! Public items of libraries, and those that no code names.
use super::code::{Code, File};
use super::words::is_word;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Ident, ItemImpl, Visibility};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PublicItem {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) name: String,
    is_module: bool,
}

/// Returns the public items of each library, by package: functions, types, traits, constants, modules,
/// and the functions and constants of types.
pub(super) fn items(code: &Code) -> BTreeMap<String, Vec<PublicItem>> {
    let mut items: BTreeMap<String, Vec<PublicItem>> = BTreeMap::new();
    for path in library_files(code) {
        let file = &code.files[path];
        let mut found = Public { path, file, found: Vec::new() };
        found.visit_file(&file.syntax);
        items.entry(file.package.clone()).or_default().extend(found.found);
    }
    items
}

fn library_files(code: &Code) -> BTreeSet<&str> {
    let modules = code.modules.iter().filter(|module| module.root.ends_with("/lib.rs"));
    modules.map(|module| module.file.as_str()).collect()
}

struct Public<'a> {
    path: &'a str,
    file: &'a File,
    found: Vec<PublicItem>,
}

impl Public<'_> {
    fn add(&mut self, visibility: &Visibility, name: &Ident, is_module: bool) {
        if matches!(visibility, Visibility::Public(_)) && !self.file.is_test(name.span()) {
            self.found.push(PublicItem {
                file: self.path.to_owned(),
                line: name.span().start().line,
                name: name.to_string(),
                is_module,
            });
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "syntax of other kinds has none")]
impl<'a> Visit<'a> for Public<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        match item {
            syn::Item::Const(item) => self.add(&item.vis, &item.ident, false),
            syn::Item::Enum(item) => self.add(&item.vis, &item.ident, false),
            syn::Item::Fn(item) => self.add(&item.vis, &item.sig.ident, false),
            syn::Item::Mod(item) => self.add(&item.vis, &item.ident, true),
            syn::Item::Static(item) => self.add(&item.vis, &item.ident, false),
            syn::Item::Struct(item) => self.add(&item.vis, &item.ident, false),
            syn::Item::Trait(item) => self.add(&item.vis, &item.ident, false),
            syn::Item::Type(item) => self.add(&item.vis, &item.ident, false),
            syn::Item::Union(item) => self.add(&item.vis, &item.ident, false),
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'a ItemImpl) {
        for item in &item.items {
            match item {
                syn::ImplItem::Fn(item) => self.add(&item.vis, &item.sig.ident, false),
                syn::ImplItem::Const(item) => self.add(&item.vis, &item.ident, false),
                _ => {}
            }
        }
    }

    /// Items in a function are not visible elsewhere.
    fn visit_block(&mut self, _: &'a syn::Block) {}
}

/// Returns the public items whose name appears only in their definition: in no crate, test or example,
/// including their own. Modules are left out, since their items are checked.
pub(super) fn dead(code: &Code, items: &BTreeMap<String, Vec<PublicItem>>) -> Vec<PublicItem> {
    let named = names(code);
    let mut defined: BTreeMap<&str, usize> = BTreeMap::new();
    for item in items.values().flatten() {
        *defined.entry(&item.name).or_default() += 1;
    }
    let is_dead = |item: &&PublicItem| {
        !item.is_module && named.get(&item.name) <= defined.get(item.name.as_str())
    };
    let mut dead: Vec<_> = items.values().flatten().filter(is_dead).cloned().collect();
    dead.sort();
    dead
}

/// Counts how often each name appears in code, including examples in documentation. A re-export does
/// not count as a use.
fn names(code: &Code) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for file in code.files.values() {
        count(file.tokens.clone(), &mut names);
    }
    names
}

fn count(tokens: TokenStream, names: &mut BTreeMap<String, usize>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut fence = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "pub" => {
                let exports =
                    matches!(tokens.peek(), Some(TokenTree::Ident(next)) if next == "use");
                if exports {
                    tokens.by_ref().find(is_semicolon);
                }
            }
            TokenTree::Ident(word) => *names.entry(word.to_string()).or_default() += 1,
            TokenTree::Group(group) => match documentation(&group.stream()) {
                Some(text) if text.trim_start().starts_with("```") => fence = !fence,
                Some(text) if fence => count_words(&text, names),
                Some(_) => {}
                None => count(group.stream(), names),
            },
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

pub(super) fn is_semicolon(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ';')
}

/// Returns the text of a documentation comment, which the parser sees as `[doc = "..."]`.
fn documentation(tokens: &TokenStream) -> Option<String> {
    let mut tokens = tokens.clone().into_iter();
    let TokenTree::Ident(first) = tokens.next()? else { return None };
    let TokenTree::Literal(text) = tokens.nth(1).filter(|_| first == "doc")? else { return None };
    Some(text.to_string().trim_start_matches('"').to_owned())
}

fn count_words(text: &str, names: &mut BTreeMap<String, usize>) {
    for word in text.split(|c| !is_word(c)).filter(|word| !word.is_empty()) {
        *names.entry(word.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::code;
    use super::*;

    const LIBRARY: &str = "pub mod m;\npub use m::forgotten;\nstruct Own;\n\
        impl Own { pub fn used(&self) {} pub fn unused(&self) {} fn own(&self) {} }\n\
        pub trait Shown { fn f(&self); }\n\
        pub(crate) fn inner() { pub fn local() {} }\n\
        #[cfg(test)]\nmod tests { pub fn helper() { crate::documented(); } }\n";
    const MODULE: &str = "/// ```\n/// a::in_docs();\n/// ```\n/// Unlike `told_of`.\n\
        pub fn in_docs() {}\npub fn forgotten() {}\npub fn told_of() {}\npub fn documented() {}\n";

    fn library() -> Code {
        code(&[
            ("crates/a/src/lib.rs", LIBRARY),
            ("crates/a/src/m.rs", MODULE),
            ("crates/b/src/lib.rs", "fn f(o: Own) { o.used(); let _: &dyn Shown; }"),
        ])
    }

    #[test]
    fn public_items_are_those_of_the_library_itself() {
        let items = items(&library());
        let mut names: Vec<_> = items["catchment-a"].iter().map(|i| i.name.as_str()).collect();
        names.sort_unstable();
        let expected = ["Shown", "documented", "forgotten", "in_docs", "m", "told_of"];
        assert_eq!(names, [&expected[..], &["unused", "used"]].concat());
        assert!(items["catchment-b"].is_empty());
    }

    #[test]
    fn what_no_code_names_is_dead() {
        let code = library();
        let dead = dead(&code, &items(&code));
        let names: Vec<_> = dead.iter().map(|item| item.name.as_str()).collect();
        assert_eq!(names, ["unused", "forgotten", "told_of"]);
        assert_eq!((dead[0].file.as_str(), dead[0].line), ("crates/a/src/lib.rs", 4));
    }
}
