//! `cargo xtask tidy --json`: the size and shape of the repository in figures.
use super::code::{Code, Function};
use super::{Finding, cycles, hot_path, literals, public};
use crate::metadata::Package;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const LONG_FUNCTION: usize = 70;
const LONG_FILE: usize = 500;

/// Folders that the product may depend on only in tests.
const PROOF: &[&str] = &["experiments/", "bench", "testing/", "xtask"];

pub(super) struct Figures {
    lines_rust: usize,
    lines_by_crate: BTreeMap<String, usize>,
    lines_product: usize,
    long_files: Vec<(String, usize)>,
    functions: Vec<(String, Function)>,
    cycles: Vec<Vec<String>>,
    provider_literals: Vec<Finding>,
    offences: Vec<Finding>,
    lost_modules: Vec<Finding>,
    depends_on_proof: Vec<String>,
    public: BTreeMap<String, Vec<public::PublicItem>>,
    dead: Vec<public::PublicItem>,
}

impl Figures {
    pub(super) fn of(code: &Code, packages: &[Package], texts: &[(String, String)]) -> Self {
        let public = public::items(code);
        let product = code.files.iter().filter(|(path, _)| path.starts_with("crates/"));
        Self {
            lines_rust: code.files.values().map(|file| file.lines).sum(),
            lines_by_crate: lines_by_crate(code),
            lines_product: product.map(|(_, file)| file.product_lines()).sum(),
            long_files: long_files(code),
            functions: functions(code),
            cycles: cycles::find(code),
            provider_literals: literals::providers(code),
            offences: hot_path::check(code, texts),
            lost_modules: hot_path::missing(code),
            depends_on_proof: depends_on_proof(packages),
            dead: public::dead(code, &public),
            public,
        }
    }

    fn long_functions(&self) -> impl Iterator<Item = &(String, Function)> {
        self.functions.iter().filter(|(_, function)| function.lines > LONG_FUNCTION)
    }

    pub(super) fn json(&self) -> Value {
        let public = self.public.iter();
        let public: BTreeMap<_, _> = public.map(|(name, items)| (name, items.len())).collect();
        json!({
            "lines_rust": self.lines_rust,
            "lines_product": self.lines_product,
            "lines_by_crate": self.lines_by_crate,
            "files_over_500": self.long_files.len(),
            "functions": self.functions.len(),
            "functions_over_70": self.long_functions().count(),
            "median_function_lines": self.median_function_lines(),
            "import_cycles_between_files": self.cycles.len(),
            "provider_literals": self.provider_literals.len(),
            "hot_path_locks": self.offences.len(),
            "product_depends_on_experiments": !self.depends_on_proof.is_empty(),
            "pub_items_by_crate": public,
            "dead_pub_items": self.dead.len(),
        })
    }

    fn median_function_lines(&self) -> usize {
        let mut sizes: Vec<_> = self.functions.iter().map(|(_, f)| f.lines).collect();
        sizes.sort_unstable();
        percentile(&sizes, 50)
    }

    pub(super) fn report(&self, code: &Code) -> String {
        let mut text = self.table(code);
        for (path, lines) in &self.long_files {
            let _ = writeln!(text, "long file: {path} has {lines} lines");
        }
        for (path, Function { name, start, lines, .. }) in self.long_functions() {
            let _ = writeln!(text, "long function: {path}:{start} {name} has {lines} lines");
        }
        for cycle in &self.cycles {
            let _ = writeln!(text, "import cycle: {}", cycle.join(", "));
        }
        for Finding { path, line, what, .. } in &self.provider_literals {
            let _ = writeln!(text, "provider literal: {path}:{line} {what}");
        }
        for Finding { path, line, what, .. } in self.offences.iter().chain(&self.lost_modules) {
            let _ = writeln!(text, "hot path: {path}:{line} {what}");
        }
        for edge in &self.depends_on_proof {
            let _ = writeln!(text, "product on proof: {edge}");
        }
        for public::PublicItem { file, line, name, .. } in &self.dead {
            let _ = writeln!(text, "dead public item: {file}:{line} {name}");
        }
        text
    }

    fn table(&self, code: &Code) -> String {
        let mut table = format!(
            "{:<28}{:>6}{:>8}{:>8}{:>11}{:>8}{:>6}{:>8}\n",
            "crate", "files", "lines", "tests", "functions", "median", "p90", "public"
        );
        for (name, lines) in &self.lines_by_crate {
            let files = code.files.values().filter(|file| file.package == *name);
            let all: usize = files.clone().map(|file| file.lines).sum();
            let mine = self.functions.iter().filter(|(path, _)| code.files[path].package == *name);
            let mut sizes: Vec<_> = mine.map(|(_, function)| function.lines).collect();
            sizes.sort_unstable();
            let _ = writeln!(
                table,
                "{name:<28}{:>6}{lines:>8}{:>8}{:>11}{:>8}{:>6}{:>8}",
                files.count(),
                all - lines,
                sizes.len(),
                percentile(&sizes, 50),
                percentile(&sizes, 90),
                self.public.get(name).map_or(0, Vec::len),
            );
        }
        table
    }
}

fn lines_by_crate(code: &Code) -> BTreeMap<String, usize> {
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    for file in code.files.values().filter(|file| !file.package.is_empty()) {
        *lines.entry(file.package.clone()).or_default() += file.product_lines();
    }
    lines
}

fn long_files(code: &Code) -> Vec<(String, usize)> {
    let long = code.files.iter().filter(|(_, file)| file.lines > LONG_FILE);
    long.map(|(path, file)| (path.clone(), file.lines)).collect()
}

fn functions(code: &Code) -> Vec<(String, Function)> {
    let mut functions = Vec::new();
    for (path, file) in &code.files {
        let found = file.functions().into_iter().filter(|function| !function.test);
        functions.extend(found.map(|function| (path.clone(), function)));
    }
    functions
}

fn depends_on_proof(packages: &[Package]) -> Vec<String> {
    let is_proof = |name: &str| {
        let mut others = packages.iter().filter(|other| other.name == name);
        others.any(|other| PROOF.iter().any(|folder| other.folder.starts_with(folder)))
    };
    let mut edges = Vec::new();
    for package in packages.iter().filter(|package| package.folder.starts_with("crates/")) {
        let normal = package.dependencies.iter().filter(|edge| !edge.dev);
        let wrong = normal.filter(|edge| is_proof(&edge.name));
        edges.extend(wrong.map(|edge| format!("{} uses {}", package.name, edge.name)));
    }
    edges
}

fn percentile(sorted: &[usize], percent: usize) -> usize {
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::code;
    use super::*;
    use crate::metadata::Dependency;

    fn figures(root: &str) -> Figures {
        let files = [("crates/a/src/lib.rs", root)];
        Figures::of(&code(&files), &[], &[])
    }

    #[test]
    fn the_object_has_the_documented_keys() {
        let root = format!(
            "fn long() {{\n{}}}\nfn short() {{}}\n#[test]\nfn t() {{}}\n",
            "f();\n".repeat(500)
        );
        let value = figures(&root).json();
        let keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "dead_pub_items",
            "files_over_500",
            "functions",
            "functions_over_70",
            "hot_path_locks",
            "import_cycles_between_files",
            "lines_by_crate",
            "lines_product",
            "lines_rust",
            "median_function_lines",
            "product_depends_on_experiments",
            "provider_literals",
            "pub_items_by_crate",
        ];
        assert_eq!(keys, expected);
        assert_eq!((&value["lines_rust"], &value["lines_product"]), (&json!(505), &json!(503)));
        assert_eq!(value["lines_by_crate"], json!({"catchment-a": 503}));
        assert_eq!((&value["functions"], &value["functions_over_70"]), (&json!(2), &json!(1)));
        assert_eq!(
            (&value["files_over_500"], &value["median_function_lines"]),
            (&json!(1), &json!(1))
        );
        assert!(!value.to_string().contains('\n'));
    }

    #[test]
    fn long_things_are_named_and_short_ones_are_not() {
        let root = format!("fn long() {{\n{}}}\nfn short() {{}}\n", "f();\n".repeat(900));
        let files = [("crates/a/src/lib.rs", root.as_str())];
        let code = code(&files);
        let report = Figures::of(&code, &[], &[]).report(&code);
        assert!(report.contains("long file: crates/a/src/lib.rs has 903 lines"), "{report}");
        assert!(report.contains("crates/a/src/lib.rs:1 long has 902 lines"), "{report}");
        assert!(!report.contains("short"), "{report}");
    }

    #[test]
    fn the_product_may_use_experiments_in_tests_only() {
        let package = |name: &str, folder: &str| Package {
            name: name.into(),
            folder: folder.into(),
            ..Package::default()
        };
        let mut product = package("a", "crates/a");
        let edge = |dev| Dependency { name: "b".into(), dev };
        product.dependencies = vec![edge(true)];
        let found = |product: &Package| {
            depends_on_proof(&[product.clone(), package("b", "experiments/b")]).len()
        };
        assert_eq!(found(&product), 0);
        product.dependencies = vec![edge(false)];
        assert_eq!(found(&product), 1);
    }

    #[test]
    fn percentiles_are_of_the_sorted_sizes() {
        assert_eq!(percentile(&[1, 2, 3, 4, 100], 50), 3);
        assert_eq!(percentile(&[1, 2, 3, 4, 100], 90), 100);
        assert_eq!(percentile(&[], 50), 0);
    }
}
