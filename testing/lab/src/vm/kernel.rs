//! The guest's kernel: Debian's, downloaded and unpacked, not installed.
use super::shell;
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};

const META_PACKAGE: &str = "linux-image-amd64";

#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    /// The folder that holds `kernel/` with the modules and `modules.dep`.
    pub(crate) modules: PathBuf,
}

impl Kernel {
    pub(crate) fn provide(cache: &Path) -> Result<Self> {
        let folder = cache.join("kernel");
        if !folder.is_dir() {
            download(&folder)
                .context("cannot provide the kernel of the guest: is there a network?")?;
        }
        Self::in_folder(&folder).with_context(|| {
            format!(
                "the kernel in {0} is not usable: remove {0} to download it again",
                folder.display()
            )
        })
    }

    fn in_folder(folder: &Path) -> Result<Self> {
        let modules = only_entry(&folder.join("lib/modules"), "")?;
        ensure!(modules.join("modules.dep").is_file(), "there is no modules.dep");
        let image = only_entry(&folder.join("boot"), "vmlinuz-")?;
        Ok(Self { image, modules })
    }
}

/// Downloads and unpacks into a folder beside `folder`, which appears only when complete.
fn download(folder: &Path) -> Result<()> {
    let parts = folder.with_extension("part");
    if parts.exists() {
        fs::remove_dir_all(&parts).with_context(|| parts.display().to_string())?;
    }
    fs::create_dir_all(&parts).with_context(|| parts.display().to_string())?;
    let package = current_package()?;
    eprintln!("downloading {package} (70 MB)");
    fetch(&package, &parts)?;
    let archive = only_entry(&parts, "linux-image-")?;
    shell::output(&["dpkg", "-x", text(&archive)?, text(&parts)?])?;
    fs::remove_file(&archive).with_context(|| archive.display().to_string())?;
    let modules = only_entry(&parts.join("lib/modules"), "")?;
    let version = modules.file_name().unwrap_or_default().to_string_lossy();
    shell::output(&["depmod", "-b", text(&parts)?, &version])?;
    fs::rename(&parts, folder).with_context(|| folder.display().to_string())
}

/// `apt-get download` writes into the folder it runs in, and only there.
fn fetch(package: &str, folder: &Path) -> Result<()> {
    let script = "cd \"$0\" && apt-get -qq -o APT::Sandbox::User=root download \"$1\"";
    shell::output(&["sh", "-c", script, text(folder)?, package])?;
    Ok(())
}

/// Returns the name of the package with the kernel. Updates the package lists first if they are empty,
/// as in a fresh container.
fn current_package() -> Result<String> {
    if let Some(package) = candidate()? {
        return Ok(package);
    }
    shell::output(&["apt-get", "update", "-qq"])?;
    let Some(package) = candidate()? else {
        bail!("apt knows no {META_PACKAGE}: the lab needs the packages of Debian 12 or newer")
    };
    Ok(package)
}

fn candidate() -> Result<Option<String>> {
    let listed = shell::output(&["apt-cache", "depends", META_PACKAGE])?;
    Ok(dependency(&listed))
}

fn dependency(listed: &str) -> Option<String> {
    let names = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let mut kernels = names.filter(|name| name.starts_with("linux-image-"));
    kernels.next().map(str::to_owned)
}

fn only_entry(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.file_name().unwrap_or_default().to_string_lossy().starts_with(prefix))
        .collect();
    match (paths.pop(), paths.pop()) {
        (Some(path), None) => Ok(path),
        (None, _) => bail!("{} has no {prefix}*", folder.display()),
        (Some(_), Some(_)) => bail!("{} has several {prefix}*", folder.display()),
    }
}

pub(super) fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_found_among_the_dependencies() {
        let listed = "linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Suggests: x\n";
        assert_eq!(dependency(listed).as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(dependency("linux-image-amd64\n"), None);
    }
}
