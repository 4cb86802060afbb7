//! Names of providers in the product, outside of the crate that defines the name.
use super::Finding;
use super::code::Code;
use proc_macro2::{Literal, TokenStream, TokenTree};

const RULE: &str = "provider-literal";

/// Providers and the folder of the only crate that may spell each name.
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
                let (text, span) = (literal.to_string(), literal.span());
                let is_foreign =
                    |(name, home): &(&str, &str)| *name == text && !path.starts_with(home);
                if PROVIDERS.iter().any(is_foreign) && !file.is_test(span) {
                    places.push(Finding::new(path, span.start().line, RULE, text));
                }
            });
        }
    }
    places
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
