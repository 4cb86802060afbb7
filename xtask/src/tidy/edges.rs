//! Dependencies between crates follow a fixed graph; any other edge is an error.
use super::Finding;
use crate::metadata::{Dependency, Package};

pub(crate) const RULE: &str = "edge";

/// The whole graph: a crate, the crates it may use, and those that its tests, examples and benches may
/// use in addition; without the prefix `catchment-`. A new crate needs a row here and one in
/// ARCHITECTURE.md.
const GRAPH: &[(&str, &str, &str)] = &[
    ("verbs-types", "", ""),
    ("verbs", "verbs-types", ""),
    ("provider-shm", "verbs", "conformance probe"),
    ("roce", "verbs-types", "sim"),
    ("ibverbs-abi", "", ""),
    ("provider-ibverbs", "ibverbs-abi verbs", "conformance netns"),
    ("provider-roce", "roce verbs", "conformance netns"),
    ("transfer", "verbs", "probe provider-ibverbs provider-roce provider-shm"),
    ("channel", "transfer verbs", "probe provider-ibverbs provider-roce provider-shm"),
    ("control", "", ""),
    (
        "agent",
        "control provider-ibverbs provider-roce provider-shm session transfer verbs",
        "conformance probe session",
    ),
    ("application", "agent channel session verbs", "conformance probe"),
    ("controller", "control session", "probe session"),
    ("probe", "verbs", ""),
    ("perf", "channel transfer verbs", "provider-shm"),
    (
        "mechanisms",
        "channel perf probe transfer verbs",
        "probe provider-ibverbs provider-roce provider-shm",
    ),
    ("drum", "control", ""),
    ("rnic", "agent sim verbs", ""),
    ("duplex", "channel verbs", "probe provider-roce provider-shm sim"),
    ("media", "", "netns"),
    ("observe", "media", "netns"),
    ("session", "verbs", "probe"),
    ("providers", "agent observe provider-ibverbs provider-roce provider-shm session verbs", ""),
    ("linear", "", "probe"),
    ("kv", "perf providers session verbs", "agent linear probe provider-shm"),
    ("tunnel", "channel providers session verbs", "probe"),
    ("granting", "control observe session transfer verbs", ""),
    ("sink", "observe session transfer verbs", ""),
    (
        "catchment",
        "granting media observe perf provider-ibverbs provider-roce providers session sink transfer verbs",
        "controller netns probe provider-shm sim",
    ),
    ("doctor", "agent catchment control provider-ibverbs provider-roce provider-shm verbs", ""),
    ("conformance", "probe verbs", ""),
    ("lab", "conformance perf provider-ibverbs provider-roce roce sim verbs", ""),
    ("sim", "control probe roce verbs", "channel conformance transfer"),
    ("netns", "", ""),
    ("attack", "netns", ""),
    ("fuzz", "agent conformance control controller provider-shm roce session verbs", ""),
    ("cli", "agent catchment controller doctor kv netns tunnel", "probe"),
    (
        "bench",
        "agent catchment channel cli conformance control controller duplex kv linear mechanisms netns perf probe provider-ibverbs provider-roce provider-shm rnic roce session sim transfer verbs",
        "",
    ),
    ("xtask", "", ""),
];

fn short(package: &str) -> &str {
    package.strip_prefix("catchment-").unwrap_or(package)
}

fn row(package: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    GRAPH.iter().find(|row| row.0 == short(package))
}

fn holds(names: &str, name: &str) -> bool {
    names.split(' ').any(|known| known == short(name))
}

/// Returns whether the crate `package` may use `other`, directly or indirectly.
pub(super) fn may_use(package: &str, other: &str) -> bool {
    row(package).is_some_and(|(_, normal, _)| {
        holds(normal, other) || normal.split(' ').any(|used| may_use(used, other))
    })
}

/// Finds edges and crates that are missing in the graph.
pub(crate) fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(|package| check_package(package, packages)).collect()
}

fn check_package(package: &Package, all: &[Package]) -> Vec<Finding> {
    let Some((_, normal, dev)) = row(&package.name) else {
        let what = format!(
            "{} has no row of permitted dependencies: add it to GRAPH in xtask/src/tidy/edges.rs",
            package.name
        );
        return vec![finding(package, what)];
    };
    let ours = package.dependencies.iter();
    let ours = ours.filter(|edge| all.iter().any(|other| other.name == edge.name));
    let permits = |Dependency { name, dev: is_dev }: &Dependency| {
        holds(normal, name) || (*is_dev && holds(dev, name))
    };
    let found = ours.filter(|dependency| !permits(dependency)).map(|Dependency { name, dev }| {
        let kind = if *dev { "dev-dependency" } else { "dependency" };
        finding(package, format!("{} may not have the {kind} {name}", package.name))
    });
    found.collect()
}

fn finding(package: &Package, what: String) -> Finding {
    Finding::new(&format!("{}/Cargo.toml", package.folder), 0, RULE, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, dev)| Dependency { name: (*name).to_owned(), dev: *dev })
            .collect();
        Package { name: name.to_owned(), dependencies, ..Package::default() }
    }

    fn findings(name: &str, dependencies: &[(&str, bool)]) -> Vec<String> {
        let mut all: Vec<_> = GRAPH.iter().map(|row| package(row.0, &[])).collect();
        all.retain(|other| other.name != name);
        all.push(package(name, dependencies));
        check(&all).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn the_edges_of_the_design_are_accepted() {
        let good: &[(&str, &[(&str, bool)])] = &[
            ("cli", &[("catchment", false), ("clap", false)]),
            ("catchment", &[("transfer", false), ("provider-shm", true), ("verbs", false)]),
            ("transfer", &[("verbs", false), ("provider-shm", true), ("loom", true)]),
            ("provider-shm", &[("verbs", false), ("conformance", true)]),
            ("sim", &[("roce", false)]),
        ];
        for (name, dependencies) in good {
            assert_eq!(findings(name, dependencies), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn any_other_edge_is_refused() {
        let bad: &[(&str, &str, bool)] = &[
            ("cli", "verbs", false),
            ("cli", "provider-shm", false),
            ("verbs", "provider-shm", false),
            ("verbs", "transfer", true),
            ("transfer", "provider-shm", false),
            ("transfer", "catchment", true),
            ("provider-shm", "transfer", true),
            ("roce", "verbs", false),
            ("verbs", "roce", false),
            ("catchment", "cli", false),
            ("catchment", "conformance", false),
            ("xtask", "catchment", false),
        ];
        for (name, dependency, dev) in bad {
            let found = findings(name, &[(dependency, *dev)]);
            assert_eq!(found.len(), 1, "{name} -> {dependency}");
            assert!(found[0].contains(dependency), "{found:?}");
        }
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        assert!(findings("catchment-extra", &[])[0].contains("catchment-extra"));
    }
}
