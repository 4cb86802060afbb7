//! The arrows between crates go one way; any other edge is an error.

use super::Finding;
use crate::metadata::{Dependency, Package};

pub(crate) const RULE: &str = "edge";

struct Allowed {
    package: &'static str,
    normal: &'static [&'static str],
    dev: &'static [&'static str],
}

const ABI: &str = "catchment-ibverbs-abi";
const TYPES: &str = "catchment-verbs-types";
const VERBS: &str = "catchment-verbs";
const SHM: &str = "catchment-provider-shm";
const ROCE: &str = "catchment-roce";
const IBVERBS: &str = "catchment-provider-ibverbs";
const PROVIDER_ROCE: &str = "catchment-provider-roce";
const NETNS: &str = "catchment-netns";
const PERF: &str = "catchment-perf";
const TRANSFER: &str = "catchment-transfer";
const MEDIA: &str = "catchment-media";
const OBSERVE: &str = "catchment-observe";
const DOCTOR: &str = "catchment-doctor";
const SESSION: &str = "catchment-session";
const CHANNEL: &str = "catchment-channel";
const PROBE: &str = "catchment-probe";
const MECHANISMS: &str = "catchment-mechanisms";
const LIBRARY: &str = "catchment";
const SIM: &str = "catchment-sim";
const CONFORMANCE: &str = "catchment-conformance";

pub(super) fn may_use(package: &str, other: &str) -> bool {
    let row = GRAPH.iter().find(|row| row.package == package);
    row.is_some_and(|row| {
        let mut uses = row.normal.iter();
        uses.any(|used| *used == other || may_use(used, other))
    })
}

/// The whole graph. A new crate needs a row here and one in ARCHITECTURE.md.
const GRAPH: &[Allowed] = &[
    Allowed { package: TYPES, normal: &[], dev: &[] },
    Allowed { package: VERBS, normal: &[TYPES], dev: &[] },
    Allowed { package: SHM, normal: &[VERBS], dev: &[CONFORMANCE] },
    Allowed { package: ROCE, normal: &[TYPES], dev: &[SIM] },
    Allowed { package: ABI, normal: &[], dev: &[] },
    Allowed { package: IBVERBS, normal: &[ABI, VERBS], dev: &[CONFORMANCE, NETNS] },
    Allowed { package: PROVIDER_ROCE, normal: &[ROCE, VERBS], dev: &[CONFORMANCE, NETNS] },
    Allowed { package: TRANSFER, normal: &[VERBS], dev: &[IBVERBS, PROBE, PROVIDER_ROCE, SHM] },
    Allowed {
        package: CHANNEL,
        normal: &[TRANSFER, VERBS],
        dev: &[IBVERBS, PROBE, PROVIDER_ROCE, SHM],
    },
    Allowed { package: PROBE, normal: &[VERBS], dev: &[] },
    Allowed {
        package: MECHANISMS,
        normal: &[CHANNEL, PROBE, TRANSFER, VERBS],
        dev: &[IBVERBS, PROBE, PROVIDER_ROCE, SHM],
    },
    Allowed {
        package: "catchment-duplex",
        normal: &[CHANNEL, VERBS],
        dev: &[PROBE, PROVIDER_ROCE, SHM, SIM],
    },
    Allowed { package: MEDIA, normal: &[], dev: &[NETNS] },
    Allowed { package: OBSERVE, normal: &[MEDIA], dev: &[NETNS] },
    Allowed { package: PERF, normal: &[TRANSFER, VERBS], dev: &[SHM] },
    Allowed { package: SESSION, normal: &[VERBS], dev: &[] },
    Allowed {
        package: LIBRARY,
        normal: &[MEDIA, OBSERVE, PERF, SESSION, TRANSFER, SHM, IBVERBS, PROVIDER_ROCE, VERBS],
        dev: &[NETNS, SIM],
    },
    Allowed { package: DOCTOR, normal: &[LIBRARY, SHM, IBVERBS, PROVIDER_ROCE, VERBS], dev: &[] },
    Allowed { package: CONFORMANCE, normal: &[VERBS], dev: &[] },
    Allowed {
        package: "catchment-lab",
        normal: &[CONFORMANCE, IBVERBS, PERF, PROVIDER_ROCE, ROCE, SIM, VERBS],
        dev: &[],
    },
    Allowed { package: SIM, normal: &[ROCE, VERBS], dev: &[CHANNEL, CONFORMANCE, PROBE, TRANSFER] },
    Allowed { package: NETNS, normal: &[], dev: &[] },
    Allowed { package: "catchment-cli", normal: &[DOCTOR, LIBRARY], dev: &[NETNS] },
    Allowed { package: "catchment-fuzz", normal: &[ROCE, SESSION, VERBS], dev: &[] },
    Allowed {
        package: "catchment-bench",
        normal: &[
            LIBRARY,
            MECHANISMS,
            NETNS,
            PERF,
            PROBE,
            PROVIDER_ROCE,
            ROCE,
            SHM,
            SIM,
            TRANSFER,
            VERBS,
        ],
        dev: &[],
    },
    Allowed { package: "xtask", normal: &[], dev: &[] },
];

pub(crate) fn check(packages: &[Package]) -> Vec<Finding> {
    packages.iter().flat_map(|package| check_package(package, packages)).collect()
}

fn check_package(package: &Package, all: &[Package]) -> Vec<Finding> {
    let Some(allowed) = GRAPH.iter().find(|row| row.package == package.name) else {
        let what = format!(
            "no rule says what {} may depend on: add it to GRAPH in xtask/src/tidy/edges.rs",
            package.name
        );
        return vec![finding(package, what)];
    };
    let ours = |name: &str| all.iter().any(|other| other.name == name);
    let wrong = package.dependencies.iter().filter(|d| ours(&d.name) && !permits(allowed, d));
    wrong.map(|dependency| finding(package, describe(package, dependency))).collect()
}

fn permits(allowed: &Allowed, dependency: &Dependency) -> bool {
    let name = dependency.name.as_str();
    allowed.normal.contains(&name) || (dependency.dev && allowed.dev.contains(&name))
}

fn describe(package: &Package, dependency: &Dependency) -> String {
    let kind = if dependency.dev { "dev-dependency" } else { "dependency" };
    format!("{} may not have the {kind} {}", package.name, dependency.name)
}

fn finding(package: &Package, what: String) -> Finding {
    Finding { path: format!("{}/Cargo.toml", package.folder), line: 0, rule: RULE, what }
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
        let mut all: Vec<_> = GRAPH.iter().map(|row| package(row.package, &[])).collect();
        all.retain(|other| other.name != name);
        all.push(package(name, dependencies));
        check(&all).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn the_edges_of_the_design_are_accepted() {
        let good: &[(&str, &[(&str, bool)])] = &[
            ("catchment-cli", &[("catchment", false), ("clap", false)]),
            ("catchment", &[(TRANSFER, false), (SHM, false), (VERBS, false)]),
            (TRANSFER, &[(VERBS, false), (SHM, true), ("loom", true)]),
            (SHM, &[(VERBS, false), (CONFORMANCE, true)]),
            ("catchment-sim", &[(ROCE, false)]),
        ];
        for (name, dependencies) in good {
            assert_eq!(findings(name, dependencies), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn any_other_edge_is_refused() {
        let bad: &[(&str, &str, bool)] = &[
            ("catchment-cli", VERBS, false),
            ("catchment-cli", SHM, false),
            (VERBS, SHM, false),
            (VERBS, TRANSFER, true),
            (TRANSFER, SHM, false),
            (TRANSFER, "catchment", true),
            (SHM, TRANSFER, true),
            (ROCE, VERBS, false),
            (VERBS, ROCE, false),
            ("catchment", "catchment-cli", false),
            ("catchment", CONFORMANCE, false),
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
