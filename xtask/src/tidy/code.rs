//! The parsed Rust code of the workspace: which module of which crate each file is, and which lines are
//! compiled only for tests.
use super::paths::resolve;
use crate::metadata::{Package, Target};
use proc_macro2::{LexError, Span, TokenStream};
use std::collections::{BTreeMap, BTreeSet};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod};

pub(crate) struct Code {
    pub(crate) files: BTreeMap<String, File>,
    pub(crate) modules: Vec<Module>,
}

pub(crate) struct File {
    pub(crate) syntax: syn::File,
    pub(crate) tokens: TokenStream,
    pub(crate) lines: usize,
    pub(crate) package: String,
    /// For each line, whether it is compiled only for tests.
    pub(crate) test: Vec<bool>,
}

impl File {
    pub(crate) fn is_test(&self, span: Span) -> bool {
        self.test.get(span.start().line.saturating_sub(1)).copied() == Some(true)
    }

    pub(crate) fn product_lines(&self) -> usize {
        self.test[..self.lines].iter().filter(|test| !**test).count()
    }
}

/// A module: a file, or a part of one between braces.
pub(crate) struct Module {
    pub(crate) root: String,
    pub(crate) path: Vec<String>,
    pub(crate) file: String,
    pub(crate) inline: bool,
    pub(crate) test: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) start: usize,
    /// From its signature to its closing brace.
    pub(crate) lines: usize,
    pub(crate) test: bool,
}

impl Code {
    /// Parses the Rust files among `texts` and finds the modules of `packages`. Also returns the files
    /// that could not be parsed, with the errors.
    pub(crate) fn read(
        texts: &[(String, String)],
        packages: &[Package],
    ) -> (Self, Vec<(String, String)>) {
        let mut code = Self { files: BTreeMap::new(), modules: Vec::new() };
        let mut faults = Vec::new();
        for (path, text) in texts.iter().filter(|(path, _)| path.ends_with(".rs")) {
            match File::parse(text, package_of(path, packages)) {
                Ok(file) => drop(code.files.insert(path.clone(), file)),
                Err(fault) => faults.push((path.clone(), fault)),
            }
        }
        for target in packages.iter().flat_map(|package| &package.targets) {
            if code.files.contains_key(&target.root) {
                Walk::new(&mut code, target).file(target.root.clone());
            }
        }
        code.mark_tests();
        (code, faults)
    }

    /// Marks files that only tests include as test code.
    fn mark_tests(&mut self) {
        let mut product = BTreeSet::new();
        for module in self.modules.iter().filter(|module| !module.test) {
            product.insert(module.file.as_str());
        }
        for (path, file) in &mut self.files {
            if !product.contains(path.as_str()) {
                file.test.fill(true);
            }
        }
    }
}

fn package_of(path: &str, packages: &[Package]) -> String {
    let above = packages.iter().filter(|package| path.starts_with(&format!("{}/", package.folder)));
    let nearest = above.max_by_key(|package| package.folder.len());
    nearest.map_or_else(String::new, |package| package.name.clone())
}

impl File {
    pub(crate) fn parse(text: &str, package: String) -> Result<Self, String> {
        let tokens: TokenStream = text.parse().map_err(|error: LexError| error.to_string())?;
        let syntax = syn::parse2(tokens.clone()).map_err(|error| error.to_string())?;
        let lines = text.lines().count();
        let test = test_lines(&syntax, lines);
        Ok(Self { syntax, tokens, lines, package, test })
    }

    pub(crate) fn functions(&self) -> Vec<Function> {
        let mut found = Functions { file: self, found: Vec::new() };
        found.visit_file(&self.syntax);
        found.found
    }
}

pub(crate) fn test_lines(syntax: &syn::File, lines: usize) -> Vec<bool> {
    let mut marks = Marks(vec![false; lines + 1]);
    if syntax.attrs.iter().any(is_for_tests) {
        marks.0.fill(true);
    }
    marks.visit_file(syntax);
    marks.0
}

struct Marks(Vec<bool>);

impl<'a> Visit<'a> for Marks {
    fn visit_item(&mut self, item: &'a Item) {
        if attributes(item).iter().any(is_for_tests) {
            let span = item.span();
            self.0[span.start().line - 1..span.end().line].fill(true);
        } else {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        if function.attrs.iter().any(is_for_tests) {
            let span = function.span();
            self.0[span.start().line - 1..span.end().line].fill(true);
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "syntax of other kinds has none")]
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether the attribute is `#[test]` or a `#[cfg]` that requires `test`.
pub(crate) fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition: String = list.tokens.to_string().split_whitespace().collect();
    let all = condition.strip_prefix("all(").map(|rest| &rest[..rest.len() - 1]);
    let mut needed = all.unwrap_or(&condition).split(',');
    list.path.is_ident("cfg") && needed.any(|word| word == "test")
}

struct Functions<'a> {
    file: &'a File,
    found: Vec<Function>,
}

impl Functions<'_> {
    fn add(&mut self, signature: &syn::Signature, whole: Span) {
        let start = signature.span().start().line;
        self.found.push(Function {
            name: signature.ident.to_string(),
            start,
            lines: whole.end().line + 1 - start,
            test: self.file.is_test(signature.span()),
        });
    }
}

impl<'a> Visit<'a> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        self.add(&function.sig, function.block.span());
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        self.add(&function.sig, function.block.span());
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig, block.span());
        }
        visit::visit_trait_item_fn(self, function);
    }
}

struct Walk<'a> {
    code: &'a mut Code,
    target: &'a Target,
    path: Vec<String>,
    test: bool,
}

impl<'a> Walk<'a> {
    fn new(code: &'a mut Code, target: &'a Target) -> Self {
        let test = ["test", "bench"].contains(&target.kind.as_str());
        Self { code, target, path: Vec::new(), test }
    }

    fn file(&mut self, file: String) {
        let folder = self.folder_below(&file);
        self.add(&file, false);
        let Some(items) = self.code.files.get(&file).map(|f| f.syntax.items.clone()) else {
            return;
        };
        self.items(&items, &file, &folder);
    }

    fn folder_below(&self, file: &str) -> String {
        let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
        if name == "mod.rs" || file == self.target.root {
            return folder.to_owned();
        }
        file.trim_end_matches(".rs").to_owned()
    }

    fn add(&mut self, file: &str, inline: bool) {
        self.code.modules.push(Module {
            root: self.target.root.clone(),
            path: self.path.clone(),
            file: file.to_owned(),
            inline,
            test: self.test,
        });
    }

    fn items(&mut self, items: &[Item], file: &str, folder: &str) {
        for item in items {
            if let Item::Mod(module) = item {
                self.module(module, file, folder);
            }
        }
    }

    fn module(&mut self, module: &ItemMod, file: &str, folder: &str) {
        let outside = self.test;
        self.test |= module.attrs.iter().any(is_for_tests);
        let name = module.ident.to_string();
        self.path.push(name.clone());
        let below = format!("{folder}/{name}");
        match &module.content {
            Some((_, items)) => {
                self.add(file, true);
                self.items(items, file, &below);
            }
            None => {
                if let Some(found) = self.declared(module, file, &below) {
                    self.file(found);
                }
            }
        }
        self.path.pop();
        self.test = outside;
    }

    fn declared(&self, module: &ItemMod, file: &str, below: &str) -> Option<String> {
        let candidates = match module.attrs.iter().find_map(given_path) {
            Some(path) => Vec::from_iter(resolve(file, &path)),
            None => vec![format!("{below}.rs"), format!("{below}/mod.rs")],
        };
        candidates.into_iter().find(|path| self.code.files.contains_key(path))
    }
}

/// Returns the value of `#[path = "..."]`.
fn given_path(attribute: &Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(value) = &pair.value else { return None };
    let syn::Lit::Str(text) = &value.lit else { return None };
    pair.path.is_ident("path").then(|| text.value())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses the code of packages with folders `crates/NAME` and roots `src/lib.rs`.
    pub(crate) fn code(files: &[(&str, &str)]) -> Code {
        let texts: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        let roots = files.iter().filter(|(path, _)| path.ends_with("src/lib.rs"));
        let packages: Vec<_> = roots.map(|(path, _)| package(path)).collect();
        let (code, faults) = Code::read(&texts, &packages);
        assert_eq!(faults, []);
        code
    }

    fn package(root: &str) -> Package {
        let folder = root.trim_end_matches("/src/lib.rs");
        Package {
            name: format!("catchment-{}", folder.trim_start_matches("crates/")),
            folder: folder.to_owned(),
            targets: vec![Target { kind: "lib".to_owned(), root: root.to_owned() }],
            ..Package::default()
        }
    }

    fn marks(source: &str) -> Vec<bool> {
        let lines = source.lines().count();
        let mut marks = test_lines(&syn::parse_str(source).unwrap(), lines);
        marks.truncate(lines);
        marks
    }

    #[test]
    fn items_for_tests_are_marked_and_nothing_else() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {\n }\n}\nfn c() {}";
        assert_eq!(marks(source), [false, true, true, true, true, true, false]);
        let source = "#[cfg(test)]\nmod samples;\nfn c() {}";
        assert_eq!(marks(source), [true, true, false]);
        let source = "#[cfg(all(test, not(loom)))]\nfn a() {}\n#[cfg(not(test))]\nfn b() {}";
        assert_eq!(marks(source), [true, true, false, false]);
        assert_eq!(marks("#[test]\nfn a() {}\nfn b() {}"), [true, true, false]);
        assert_eq!(marks("#![cfg(test)]\nfn b() {}"), [true, true]);
    }

    #[test]
    fn modules_are_found_in_both_layouts_and_by_their_path() {
        let code = code(&[
            ("crates/a/src/lib.rs", "mod b;\nmod c;\n#[cfg(test)]\nmod d;\nmod i { mod j; }"),
            ("crates/a/src/b.rs", "#[path = \"../other/e.rs\"]\nmod e;"),
            ("crates/a/src/c/mod.rs", "mod f;"),
            ("crates/a/src/c/f.rs", ""),
            ("crates/a/src/d.rs", "fn helper() {}"),
            ("crates/a/src/i/j.rs", ""),
            ("crates/a/other/e.rs", ""),
            ("crates/a/src/lost.rs", ""),
        ]);
        let path = |file: &str| {
            let module = code.modules.iter().find(|module| module.file == file && !module.inline);
            module.map(|module| module.path.join("::"))
        };
        assert_eq!(path("crates/a/src/b.rs").as_deref(), Some("b"));
        assert_eq!(path("crates/a/src/c/f.rs").as_deref(), Some("c::f"));
        assert_eq!(path("crates/a/src/i/j.rs").as_deref(), Some("i::j"));
        assert_eq!(path("crates/a/other/e.rs").as_deref(), Some("b::e"));
        assert_eq!(path("crates/a/src/lost.rs"), None);
        assert_eq!(code.files["crates/a/src/d.rs"].product_lines(), 0);
        assert_eq!(code.files["crates/a/src/lib.rs"].product_lines(), 3);
    }

    #[test]
    fn functions_are_measured_from_signature_to_brace() {
        let source = "trait T {\n fn a();\n}\n/// Doc.\npub fn b(x: u8)\n{\n  fn i() {}\n}\n\
                      #[test]\nfn c() {}\n";
        let functions = File::parse(source, String::new()).unwrap().functions();
        let sizes: Vec<_> =
            functions.iter().map(|f| (f.name.as_str(), f.start, f.lines, f.test)).collect();
        assert_eq!(sizes, [("b", 5, 4, false), ("i", 7, 1, false), ("c", 10, 1, true)]);
    }
}
