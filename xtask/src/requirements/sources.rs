//! The test functions that the table names, in the sources.
use super::facts::Fact;
use crate::repo::Repo;
use anyhow::{Result, anyhow};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, ItemFn, Lit, Meta};

/// The cases of this folder become tests in other packages, by a macro that lists them.
const CASES: &str = "testing/conformance/src/";

/// Test functions by name, each with the text of its documentation.
pub(super) struct Functions(BTreeMap<String, Vec<String>>);

impl Functions {
    /// Finds the test functions whose names stand in the table.
    pub(super) fn named_in(repo: &Repo, facts: &[Fact]) -> Result<Self> {
        let names: BTreeSet<_> =
            facts.iter().flat_map(|fact| &fact.tests).map(|test| function_of(test)).collect();
        let mut all = Self(BTreeMap::new());
        for path in repo.files()?.iter().filter(|path| path.ends_with(".rs")) {
            let text = repo.read(path)?;
            if names.iter().any(|name| text.contains(&format!("fn {name}("))) {
                all.add(&text, path.starts_with(CASES))
                    .map_err(|error| anyhow!("{path}: {error}"))?;
            }
        }
        Ok(all)
    }

    fn add(&mut self, text: &str, is_case: bool) -> syn::Result<()> {
        let mut found = Found { all: self, is_case };
        found.visit_file(&syn::parse_file(text)?);
        Ok(())
    }

    /// Returns what is wrong with a test as one of this requirement.
    pub(super) fn fault(&self, test: &str, id: &str) -> Option<String> {
        let name = function_of(test);
        let Some(documents) = self.0.get(name) else {
            return Some(format!("{id}: no test function is called {name}"));
        };
        let says_so = says_in_name(name, id) || documents.iter().any(|text| says(text, id));
        (!says_so).then(|| format!("{id}: neither name nor documentation of {test} says so"))
    }
}

fn function_of(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

/// Returns whether the name has the id as whole words: `s1_2` for S1.2, which `s1_20` has not.
fn says_in_name(name: &str, id: &str) -> bool {
    let wanted = id.to_ascii_lowercase().replace('.', "_");
    format!("_{name}_").contains(&format!("_{wanted}_"))
}

/// Returns whether the text has the id, not as the beginning of a longer one.
fn says(text: &str, id: &str) -> bool {
    let follows = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    text.split(id).skip(1).any(follows)
}

struct Found<'a> {
    all: &'a mut Functions,
    is_case: bool,
}

impl<'a> Visit<'a> for Found<'_> {
    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        let is_test = function.attrs.iter().any(|attribute| attribute.path().is_ident("test"));
        if is_test || self.is_case {
            let name = function.sig.ident.to_string();
            self.all.0.entry(name).or_default().push(documentation(&function.attrs));
        }
        visit::visit_item_fn(self, function);
    }
}

fn documentation(attributes: &[Attribute]) -> String {
    attributes.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

fn line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = &pair.value else { return None };
    pair.path.is_ident("doc").then(|| text.value())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "
        mod a {
            /// Holds S1.2, and
            /// S3.14.
            #[test]
            fn good() {}
            #[test]
            fn s1_2_s1_20_both() {}
            fn helper() {}
        }";

    #[test]
    fn a_test_is_found_with_its_id_and_a_helper_is_none() {
        let mut all = Functions(BTreeMap::new());
        all.add(CODE, false).unwrap();
        let fault = |test: &str, id: &str| all.fault(test, id);
        assert_eq!(fault("p::a::good", "S1.2"), None);
        assert_eq!(fault("p::a::good", "S3.14"), None);
        assert!(fault("p::a::good", "S3.1").unwrap().contains("neither name nor documentation"));
        assert_eq!(fault("p::s1_2_s1_20_both", "S1.20"), None);
        assert!(fault("p::s1_2_s1_20_both", "S1.1").is_some());
        assert!(fault("p::a::helper", "S1.2").unwrap().contains("no test function"));
        all.add(CODE, true).unwrap();
        assert!(fault_of(&all).contains("neither"), "as a case of the suite it is one");
    }

    fn fault_of(all: &Functions) -> String {
        all.fault("p::helper", "S1.2").unwrap()
    }
}
