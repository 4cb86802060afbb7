//! The guest's first file system: busybox, kernel modules, the scripts that start, the agent.

use super::cpio::Archive;
use super::kernel::Kernel;
use super::modules;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;

const INIT: &str = include_str!("../../guest/init");
const NETWORK: &str = include_str!("../../guest/network");
const AGENT: &str = include_str!("../../guest/agent.py");

/// A busybox that needs no library: the guest has none at first.
const BUSYBOX: &str = "/bin/busybox";

pub(crate) fn build(kernel: &Kernel) -> Result<Vec<u8>> {
    let listed = read(&kernel.modules.join("modules.dep"))?;
    let order = modules::load_order(&String::from_utf8_lossy(&listed))?;
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.file("bin/busybox", &read(Path::new(BUSYBOX))?);
    archive.file("init", INIT.as_bytes());
    archive.file("network", NETWORK.as_bytes());
    archive.file("agent.py", AGENT.as_bytes());
    let mut names = String::new();
    for path in order {
        let name = path.rsplit('/').next().unwrap_or(&path);
        archive.file(&format!("modules/{name}"), &read(&kernel.modules.join(&path))?);
        names.push_str(name);
        names.push('\n');
    }
    archive.file("modules/order", names.as_bytes());
    Ok(archive.finish())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
