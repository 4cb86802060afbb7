//! For each rule, text that it must accept and text that it must refuse: this exposes rules that never
//! fail, and rules that refuse valid text.
use super::*;

struct Sample {
    rule: &'static str,
    path: &'static str,
    good: &'static [&'static str],
    bad: &'static [&'static str],
}

const ANY: &str = "crates/verbs/src/mem.rs";

const SAMPLES: &[Sample] = &[
    Sample {
        rule: workspace::FORBID_RULE,
        path: "crates/transfer/src/lib.rs",
        good: &["//! Words.\n#![forbid(unsafe_code)]\nmod a;"],
        bad: &["//! #![forbid(unsafe_code)]\nmod a;", "#![deny(unsafe_code)]\nmod a;"],
    },
    Sample {
        rule: leftovers::RULE,
        path: ANY,
        good: &[
            "fn f() { let s = \"TODO todo!()\"; }",
            "let template = mktemp(\"XXXXXX\"); // XXXXXX is filled in",
            "assert!(truth.is_ok());",
        ],
        bad: &[
            "// TODO: later",
            "/// FIXME later",
            "/* XXX */",
            "assert!(r.is_ok() || r.is_err());",
        ],
    },
    Sample {
        rule: leftovers::RULE,
        path: "docs/guide/start.md",
        good: &["What to do next."],
        bad: &["TODO: write this."],
    },
    Sample {
        rule: leftovers::SLEEP_RULE,
        path: "crates/cli/tests/demo.rs",
        good: &[
            "// The kernel gives no event for this.\nthread::sleep(STEP);",
            "thread::sleep(STEP); // as long as a frame takes",
        ],
        bad: &["thread::sleep(STEP);", "f(); // words\nstd::thread::sleep(STEP);"],
    },
    Sample {
        rule: paths::DOCUMENT_RULE,
        path: ANY,
        good: &[
            "// See docs/spec/block.md.",
            "// See block.md, section 2.",
            "// See https://example.org/other.md for more.",
            "const A: &str = \"other.md\";",
        ],
        bad: &["// See DESIGN.md section 5.", "/// As docs/spec/absent.md says"],
    },
    Sample {
        rule: paths::PHRASE_RULE,
        path: ANY,
        good: &["// The leading byte; a brief pause.", "fn f() { g(\"the lead\"); }"],
        bad: &["// The lead decides.", "// As instructed, no copy."],
    },
    Sample {
        rule: paths::REGISTRY_RULE,
        path: "Cargo.lock",
        good: &["source = \"registry+https://github.com/rust-lang/crates.io-index\"\n"],
        bad: &[
            "source = \"sparse+https://mirror.example/index/\"\n",
            "source = \"git+https://github.com/a/b\"\n",
        ],
    },
    Sample {
        rule: paths::REGISTRY_RULE,
        path: ".cargo/config.toml",
        good: &["[alias]\nxtask = \"run\"\n"],
        bad: &["[source.crates-io]\n", "[registries.mirror]\n", "[registry]\n"],
    },
    Sample {
        rule: text::RULE,
        path: ANY,
        good: &["fn f() {\n    g();\n}\n", ""],
        bad: &[
            "fn f() {}", "fn f() {} \n", "fn f() {\n\tg();\n}\n", "fn f() {}\r\n", "fn f() {}\n\n",
        ],
    },
    Sample {
        rule: text::LOOK_ALIKE_RULE,
        path: ANY,
        good: &["// 3 \u{b5}s, 2 \u{d7} 2, a \u{2192} b, caf\u{e9}\u{2026}"],
        bad: &[
            "// it\u{2019}s", "// a \u{2014} b", "let \u{430} = 1;", "// 3 \u{3bc}s",
            "// a\u{a0}b", "// a\u{200b}b",
        ],
    },
    Sample {
        rule: imports::RULE,
        path: ANY,
        good: &[
            "use std::fmt;\nuse std::sync::{Arc, Mutex};\nuse std::sync::atomic::{self, AtomicU8};",
            "use super::*;\nuse super::a;\npub use super::b;\nuse std::fmt::Write as _;",
            "use std::fmt::{self, Write as _};\nmod tests {\n    use std::fmt::Debug;\n}",
            "use a::b;\n#[cfg(test)]\nuse a::c;\nfn f() {\n    use a::d;\n}",
        ],
        bad: &[
            "use std::{sync::Arc, time::Duration};",
            "use std::sync::{Arc, atomic::Ordering};",
            "fn f() {\n    use {std::fmt, std::io};\n}",
            "use std::fmt;\nuse std::io;",
        ],
    },
    Sample {
        rule: workspace::CHANGELOG_RULE,
        path: "CHANGELOG.md",
        good: &["# Changelog\n\n## [Unreleased]\n"],
        bad: &["# Changelog\n", "# Changelog\n\n## Unreleased things\n"],
    },
];

const FILES: &[&str] = &["CHANGELOG.md", "crates/a/src/wide/part.rs", "docs/spec/block.md"];

fn rules() -> impl Iterator<Item = &'static Rule> {
    FILE_RULES.iter()
}

fn found(rule: &str, path: &str, text: &str) -> usize {
    let rule = rules().find(|known| known.name == rule).unwrap();
    let files: Vec<_> = FILES.iter().map(|name| (*name).to_owned()).collect();
    let code = code::File::parse(text, String::new()).ok();
    let findings = (rule.check)(&SourceFile::new(path, text, code.as_ref()), &files);
    assert!(findings.iter().all(|finding| finding.rule == rule.name && finding.path == path));
    findings.len()
}

#[test]
fn sound_text_is_accepted() {
    for sample in SAMPLES {
        for text in sample.good {
            assert_eq!(found(sample.rule, sample.path, text), 0, "{}: {text}", sample.rule);
        }
    }
}

#[test]
fn unsound_text_is_refused_once() {
    for sample in SAMPLES {
        for text in sample.bad {
            assert_eq!(found(sample.rule, sample.path, text), 1, "{}: {text}", sample.rule);
        }
    }
}

#[test]
fn every_rule_has_samples_of_both_kinds() {
    for rule in rules().filter(|rule| rule.name != paths::MACHINE_RULE) {
        let mine = || SAMPLES.iter().filter(|sample| sample.rule == rule.name);
        assert!(
            mine().any(|s| !s.good.is_empty()) && mine().any(|s| !s.bad.is_empty()),
            "{}",
            rule.name
        );
    }
}

/// These samples are assembled here, because the rule would find their texts.
#[test]
fn paths_of_one_machine_are_refused() {
    for folder in ["work", "root", "home", "Users", "tmp/wt"] {
        for bad in ["see /{}/a", "\"/{}\"", "cd /{} && x", "(/{}/b)"] {
            let text = bad.replace("{}", folder);
            assert_eq!(found(paths::MACHINE_RULE, "README.md", &text), 1, "{text}");
        }
        for good in ["./{}/a", "a/{}/b", "https://x.org/{}/", "/{}-2/a", "$OUT/{}/a", "{}/a"] {
            let text = good.replace("{}", folder);
            assert_eq!(found(paths::MACHINE_RULE, "README.md", &text), 0, "{text}");
        }
    }
}

#[test]
fn lines_are_counted_from_one() {
    let findings = leftovers::check(&SourceFile::new(ANY, "\n\n// TODO\n", None), &[]);
    assert_eq!(findings[0].line, 3);
    assert!(findings[0].to_string().starts_with("crates/verbs/src/mem.rs:3: [leftover] "));
}
