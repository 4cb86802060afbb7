//! Which kernel modules a guest needs, in the order in which they load.

use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

/// The modules that the guest uses; what they need is found in `modules.dep`.
///
/// The checksums come before `rdma_rxe` and `nf_tables`, which fail without them.
const WANTED: &[&str] = &[
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "overlay",
    "crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
    "crc32c_generic",
    "nf_tables",
    "nft_meta_bridge",
    "nft_objref",
    "nft_limit",
    "sch_prio",
    "sch_netem",
    "bridge",
    "veth",
];

/// The paths of all modules to load, relative to the folder of `modules.dep`, in order.
pub(crate) fn load_order(modules_dep: &str) -> Result<Vec<String>> {
    let table = parse(modules_dep);
    let mut order = Vec::new();
    for name in WANTED {
        let (path, needs) =
            table.get(*name).with_context(|| format!("this kernel has no module {name}"))?;
        // The file lists first what is loaded last.
        for path in needs.iter().rev().chain(std::iter::once(path)) {
            if !order.contains(path) {
                order.push(path.clone());
            }
        }
    }
    Ok(order)
}

fn parse(modules_dep: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let lines = modules_dep.lines().filter_map(|line| line.split_once(':'));
    let entries = lines.map(|(path, needs)| {
        let needs = needs.split_whitespace().map(str::to_owned).collect();
        (name_of(path), (path.to_owned(), needs))
    });
    entries.collect()
}

/// The kernel writes names with underscores, files may have hyphens.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_loads_before_it_and_once() {
        let mut text = String::new();
        for name in WANTED {
            let needs = match *name {
                "rdma_rxe" => "kernel/b/ib_core.ko kernel/a/udp-tunnel.ko",
                "ib_uverbs" => "kernel/b/ib_core.ko",
                _ => "",
            };
            text.push_str(&format!("kernel/x/{}.ko: {needs}\n", name.replace('_', "-")));
        }
        let order = load_order(&text).unwrap();
        let at = |path: &str| order.iter().position(|entry| entry == path).unwrap();
        assert!(at("kernel/b/ib_core.ko") < at("kernel/x/ib-uverbs.ko"));
        assert!(at("kernel/a/udp-tunnel.ko") < at("kernel/x/rdma-rxe.ko"));
        assert_eq!(order.len(), WANTED.len() + 2);
    }

    #[test]
    fn a_module_that_the_kernel_lacks_is_named() {
        let error = load_order("kernel/x/overlay.ko:\n").unwrap_err().to_string();
        assert!(error.contains("virtio_pci"), "{error}");
    }
}
