//! Names of providers in the product, outside of the crate that has the name.
use super::Finding;
use super::code::Code;
use proc_macro2::{Literal, TokenStream, TokenTree};

const RULE: &str = "provider-literal";

/// Providers and the folder of the one crate that spells each name.
const PROVIDERS: &[(&str, &str)] = &[
    ("\"shm\"", "crates/provider-shm/"),
    ("\"ibverbs\"", "crates/provider-ibverbs/"),
    ("\"roce\"", "crates/provider-roce/"),
];

pub(super) fn providers(code: &Code) -> Vec<Finding> {
    let mut places = Vec::new();
    for (path, file) in &code.files {
        if path.starts_with("crates/") {
            collect(file.tokens.clone(), &mut |literal| {
                if is_foreign(path, &literal.to_string()) && !file.is_test(literal.span()) {
                    let line = literal.span().start().line;
                    places.push(Finding::new(path, line, RULE, literal.to_string()));
                }
            });
        }
    }
    places
}

fn is_foreign(path: &str, text: &str) -> bool {
    PROVIDERS.iter().any(|(name, home)| *name == text && !path.starts_with(home))
}

fn collect(tokens: TokenStream, found: &mut impl FnMut(&Literal)) {
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => found(&literal),
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::code::tests::code;
    use super::*;

    #[test]
    fn a_name_counts_outside_of_its_crate_and_of_tests() {
        let code = code(&[
            ("crates/provider-shm/src/lib.rs", "const N: &str = \"shm\";"),
            (
                "crates/a/src/lib.rs",
                "/// \"roce\"\nfn f() { g(\"shm\", h!(\"roce\"), \"shm:\"); }\n\
                 #[cfg(test)]\nmod tests { const N: &str = \"ibverbs\"; }",
            ),
        ]);
        let found = providers(&code);
        let found: Vec<_> = found.iter().map(|p| (p.line, p.what.as_str())).collect();
        assert_eq!(found, [(2, "\"shm\""), (2, "\"roce\"")]);
    }
}
