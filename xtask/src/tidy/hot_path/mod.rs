//! The hot path, from the claim of a block to its release, takes no lock and does not allocate.
//!
//! The rule checks modules, not calls: [`MODULES`] lists every module with a function that runs for a
//! block, and its text is searched. A lock inside a type of ours is found by the type's name.
mod modules;

use super::Finding;
use super::code::{Code, File};
use modules::{HOT_PATH_EXCEPTIONS, MODULES};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

pub(super) const RULE: &str = "hot-path";
const MOST_EXCEPTIONS: usize = 10;
const LOCKS: &[&str] = &["Mutex", "RwLock", "Condvar"];

/// Calls that allocate: a path, or a macro with its `!`.
const ALLOCATIONS: &[&[&str]] =
    &[&["format", "!"], &["Box", ":", ":", "new"], &["Vec", ":", ":", "with_capacity"]];

/// Functions that set up what the hot path uses: they run before the first block and may allocate.
const SETUP: &[&str] = &["new", "open", "start"];

pub(super) fn check(code: &Code, texts: &[(String, String)]) -> Vec<Finding> {
    let exceptions: Vec<_> = HOT_PATH_EXCEPTIONS.iter().take(MOST_EXCEPTIONS).copied().collect();
    check_in(code, texts, MODULES, &exceptions)
}

fn check_in(
    code: &Code,
    texts: &[(String, String)],
    modules: &[(&str, &str)],
    exceptions: &[(&str, &str, &str)],
) -> Vec<Finding> {
    let locks = lock_types(code);
    let mut offences = Vec::new();
    for (path, text) in texts.iter().filter(|(path, _)| is_hot(path, modules)) {
        let Some(file) = code.files.get(path) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        let allowed = |line: usize| {
            let mut mine = exceptions.iter().filter(|(file, _, _)| file == path);
            mine.any(|(_, part, _)| lines.get(line - 1).is_some_and(|text| text.contains(part)))
        };
        let found = words(file.tokens.clone());
        let found = offences_in(file, &found, &locks.seen_from(path, &file.package));
        let found = found.into_iter().filter(|(line, _)| !allowed(*line));
        offences.extend(found.map(|(line, what)| Finding::new(path, line, RULE, what)));
    }
    offences.dedup();
    offences
}

fn is_hot(path: &str, modules: &[(&str, &str)]) -> bool {
    modules.iter().any(|(module, _)| match module.strip_suffix('/') {
        Some(folder) => path.starts_with(module) || path == format!("{folder}.rs"),
        None => path == *module,
    })
}

/// Finds modules of the list that no longer exist.
pub(super) fn missing(code: &Code) -> Vec<Finding> {
    let gone = MODULES.iter().filter(|module| {
        !code.files.keys().any(|path| is_hot(path, std::slice::from_ref(*module)))
    });
    let what = "is in the list of hot modules but does not exist";
    gone.map(|(module, _)| Finding::new(module, 0, RULE, what)).collect()
}

fn setup_lines(file: &File) -> BTreeSet<usize> {
    let functions = file.functions().into_iter();
    let setup = functions.filter(|function| SETUP.contains(&function.name.as_str()));
    setup.flat_map(|function| function.start..function.start + function.lines).collect()
}

fn offences_in(file: &File, words: &[Word], locks: &BTreeSet<String>) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let setup = setup_lines(file);
    for (at, word) in words.iter().enumerate() {
        let allocates = ALLOCATIONS.iter().find(|call| {
            let texts = words[at..].iter().map(|word| word.text.as_str());
            texts.take(call.len()).eq(call.iter().copied())
        });
        let makes = words[at + 1..].iter().map(|word| word.text.as_str()).take(2).eq([":", ":"]);
        let what = match allocates {
            Some(_) if setup.contains(&word.line) => continue,
            Some(call) => format!("{} allocates", call.concat()),
            // The place that holds the lock counts, not the one that creates it.
            None if makes => continue,
            None if LOCKS.contains(&word.text.as_str()) => format!("{} is a lock", word.text),
            None if locks.contains(&word.text) => format!("{} holds a lock", word.text),
            None => continue,
        };
        if file.test.get(word.line - 1) != Some(&true) {
            found.push((word.line, what));
        }
    }
    found
}

/// Finds types of ours that amount to a lock: an alias of one, or a structure of locks and plain values.
/// A structure with many parts, one of which has a lock, does not: the module that takes that lock is
/// in the list itself.
fn lock_types(code: &Code) -> LockTypes {
    let mut types = Vec::new();
    for (path, file) in &code.files {
        if path.starts_with("crates/") && file.product_lines() > 0 {
            let mut found = Types::default();
            found.visit_file(&file.syntax);
            let here = found.0.into_iter();
            types.extend(here.map(|(name, fields)| (path, &file.package, name, fields)));
        }
    }
    let mut locks: BTreeSet<String> = LOCKS.iter().map(|name| (*name).to_owned()).collect();
    loop {
        let before = locks.len();
        let more = types.iter().filter(|(_, _, _, fields)| is_lock(fields, &locks));
        let more: Vec<_> = more.map(|(_, _, name, _)| name.clone()).collect();
        locks.extend(more);
        if locks.len() == before {
            break;
        }
    }
    let known = types.into_iter().map(|(path, package, name, fields)| KnownType {
        path: path.clone(),
        package: package.clone(),
        name,
        is_lock: is_lock(&fields, &locks),
    });
    LockTypes(known.collect())
}

struct KnownType {
    path: String,
    package: String,
    name: String,
    is_lock: bool,
}

struct LockTypes(Vec<KnownType>);

impl LockTypes {
    /// Returns the names that mean a lock in the file at `path`: of types with the same name, that of
    /// the file counts, then that of the crate, then that of a crate that it may use.
    fn seen_from(&self, path: &str, package: &str) -> BTreeSet<String> {
        let rank = |known: &KnownType| (known.path != path, known.package != package);
        let mut nearest: BTreeMap<&str, &KnownType> = BTreeMap::new();
        let reachable = |known: &&KnownType| {
            known.package == package || super::edges::may_use(package, &known.package)
        };
        for known in self.0.iter().filter(reachable) {
            let place = nearest.entry(&known.name).or_insert(known);
            if rank(known) < rank(place) {
                *place = known;
            }
        }
        let locks = nearest.into_values().filter(|known| known.is_lock);
        locks.map(|known| known.name.clone()).collect()
    }
}

fn is_lock(fields: &[BTreeSet<String>], locks: &BTreeSet<String>) -> bool {
    let holds = |names: &BTreeSet<String>| !names.is_disjoint(locks);
    let plain = |names: &BTreeSet<String>| {
        let mut names = names.iter().map(String::as_str);
        names.all(|name| PLAIN.contains(&name) || name.starts_with("Atomic"))
    };
    fields.iter().any(holds) && fields.iter().all(|names| holds(names) || plain(names))
}

/// Types of fields that a structure may have beside a lock and still amount to one.
const PLAIN: &[&str] = &["bool", "u8", "u16", "u32", "u64", "usize", "PhantomData", "Arc"];

/// Aliases and structures, with the names in the types of their fields.
#[derive(Default)]
struct Types(Vec<(String, Vec<BTreeSet<String>>)>);

fn names_in(of: &syn::Type) -> BTreeSet<String> {
    let mut names = Names::default();
    names.visit_type(of);
    names.0
}

impl<'a> Visit<'a> for Types {
    fn visit_item_type(&mut self, item: &'a syn::ItemType) {
        self.0.push((item.ident.to_string(), vec![names_in(&item.ty)]));
    }

    fn visit_item_struct(&mut self, item: &'a syn::ItemStruct) {
        let fields = item.fields.iter().map(|field| names_in(&field.ty));
        self.0.push((item.ident.to_string(), fields.collect()));
    }

    fn visit_item_mod(&mut self, module: &'a syn::ItemMod) {
        if !module.attrs.iter().any(super::code::is_for_tests) {
            visit::visit_item_mod(self, module);
        }
    }
}

#[derive(Default)]
struct Names(BTreeSet<String>);

impl<'a> Visit<'a> for Names {
    fn visit_path_segment(&mut self, segment: &'a syn::PathSegment) {
        self.0.insert(segment.ident.to_string());
        visit::visit_path_segment(self, segment);
    }
}

struct Word {
    text: String,
    line: usize,
}

/// Flattens the tokens, without imports and documentation.
fn words(tokens: TokenStream) -> Vec<Word> {
    let mut words = Vec::new();
    let mut tokens = tokens.into_iter();
    while let Some(token) = tokens.next() {
        let line = token.span().start().line;
        match token {
            TokenTree::Ident(word) if word == "use" => {
                tokens.by_ref().find(super::public::is_semicolon);
            }
            TokenTree::Group(group) => words.extend(self::words(group.stream())),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {
                words.push(Word { text: token.to_string(), line })
            }
            TokenTree::Literal(_) => {}
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::code;
    use super::*;

    const HOT: &str = "crates/a/src/hot.rs";

    fn found(hot: &str, exceptions: &[(&str, &str, &str)]) -> Vec<String> {
        let root = "mod hot;\npub type Plain = Counted<u8>;\npub struct Big { a: Vec<u8>, b: Plain }\n\
                    pub struct Counted<T>(Mutex<T>, AtomicU64);";
        let code = code(&[("crates/a/src/lib.rs", root), (HOT, hot)]);
        let texts = [(HOT.to_owned(), hot.to_owned())];
        let found = check_in(&code, &texts, &[("crates/a/src/hot/", "")], exceptions);
        found.into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn locks_and_allocations_are_refused() {
        let cases = [
            ("fn f(b: std::sync::Mutex<u8>) {}", "Mutex is a lock"),
            ("fn f(c: &Condvar) {}", "Condvar is a lock"),
            ("fn f() { g(format!(\"x\")); }", "format! allocates"),
            ("fn f() { Box::new(1) }", "Box::new allocates"),
            ("fn f() { Vec::with_capacity(1) }", "Vec::with_capacity allocates"),
        ];
        for (source, what) in cases {
            assert_eq!(found(source, &[]), [what], "{source}");
        }
    }

    #[test]
    fn a_lock_behind_a_type_of_ours_is_refused() {
        assert_eq!(found("fn f(c: &Counted<u8>) {}", &[]), ["Counted holds a lock"]);
        assert_eq!(found("fn f(p: &Plain) {}", &[]), ["Plain holds a lock"]);
        assert_eq!(found("fn f(b: &Big) {}", &[]), Vec::<String>::new());
    }

    #[test]
    fn setup_before_the_first_block_is_accepted() {
        let source = "fn new() { Box::new(1); Mutex::new(2); }\nfn f() { Mutex::new(3); }";
        assert_eq!(found(source, &[]), Vec::<String>::new());
    }

    #[test]
    fn imports_tests_words_and_exceptions_are_accepted() {
        let source = "use std::sync::Mutex;\n/// Mutex\nfn f() { g(\"Mutex\"); Vec::new(); }\n\
                      #[cfg(test)]\nmod tests { fn f() { format!(\"x\"); } }";
        assert_eq!(found(source, &[]), Vec::<String>::new());
        let exception = [(HOT, "cold: Mutex", "taken when a link ends")];
        assert_eq!(found("fn f(cold: Mutex<u8>) {}", &exception), Vec::<String>::new());
        assert_eq!(found("fn f(warm: Mutex<u8>) {}", &exception).len(), 1);
    }

    #[test]
    fn every_exception_has_a_reason_and_they_are_few() {
        assert!(HOT_PATH_EXCEPTIONS.len() <= MOST_EXCEPTIONS);
        let reasons = HOT_PATH_EXCEPTIONS.iter().chain(&[(HOT, "x", "a reason")]);
        assert!(reasons.clone().all(|(_, line, why)| !line.is_empty() && why.len() > 5));
    }
}
