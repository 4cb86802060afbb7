//! The guest's initramfs: busybox, kernel modules, the init scripts, the agent.
use super::kernel::{Kernel, text};
use super::shell;
use anyhow::{Context as _, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const SCRIPTS: &[(&str, &str)] = &[
    ("init", include_str!("../../guest/init")),
    ("network", include_str!("../../guest/network")),
    ("agent.py", include_str!("../../guest/agent.py")),
];

/// A statically linked busybox: the initramfs has no libraries.
const BUSYBOX: &str = "/bin/busybox";

/// The modules that the guest uses, without their dependencies. The checksums come before `rdma_rxe`
/// and `nf_tables`, which fail without them.
const MODULES: &str = "virtio_pci virtio_net 9pnet_virtio 9p overlay crc32_generic ib_uverbs \
    rdma_ucm rdma_rxe crc32c_generic nf_tables nft_meta_bridge nft_objref nft_limit sch_prio \
    sch_netem bridge veth";

/// The built-in initramfs of the kernel has `/dev/console`.
const PACK: &str = "(cd \"$0\" && find . | busybox cpio -o -H newc) > \"$1\"";

/// Writes the archive for a guest of `kernel`.
pub(crate) fn write(kernel: &Kernel, to: &Path) -> Result<()> {
    let root = tempfile::tempdir()?;
    let root = root.path();
    fs::create_dir_all(root.join("bin"))?;
    fs::create_dir_all(root.join("modules"))?;
    copy(BUSYBOX, &root.join("bin/busybox"))?;
    for (name, script) in SCRIPTS {
        fs::write(root.join(name), script)?;
        fs::set_permissions(root.join(name), Permissions::from_mode(0o755))?;
    }
    let mut names = Vec::new();
    for path in modules(kernel)? {
        let name = path.rsplit('/').next().unwrap_or(&path).to_owned();
        if !names.contains(&name) {
            copy(&path, &root.join("modules").join(&name))?;
            names.push(name);
        }
    }
    fs::write(root.join("modules/order"), names.join("\n") + "\n")?;
    shell::output(&["sh", "-c", PACK, text(root)?, text(to)?]).map(drop)
}

fn copy(from: &str, to: &Path) -> Result<u64> {
    fs::copy(from, to).with_context(|| format!("cannot copy {from}"))
}

/// Returns the files of all modules, in load order.
fn modules(kernel: &Kernel) -> Result<Vec<String>> {
    let folder = kernel.modules.canonicalize()?;
    let version = folder.file_name().unwrap_or_default().to_string_lossy();
    let base = folder.ancestors().nth(3).context("the modules are not in lib/modules")?;
    let ask = ["modprobe", "-C", "/dev/null", "-d", text(base)?, "-S", &version];
    let words: Vec<_> = ask.into_iter().chain(["-a", "--show-depends"]).collect();
    let listed = shell::output(&words.into_iter().chain(MODULES.split(' ')).collect::<Vec<_>>())?;
    let paths = listed.lines().filter_map(|line| line.strip_prefix("insmod "));
    Ok(paths.map(|path| path.trim_end().to_owned()).collect())
}
