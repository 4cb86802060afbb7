//! The workspace as Cargo sees it: its packages, their targets and their dependencies.
use crate::repo::Repo;
use crate::run::{self, Show};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::PathBuf;

#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Folder, relative to the root of the repository.
    pub(crate) folder: String,
    pub(crate) targets: Vec<Target>,
    pub(crate) dependencies: Vec<Dependency>,
}

impl Package {
    pub(crate) fn roots(&self) -> impl Iterator<Item = &String> {
        let kinds = ["lib", "bin", "proc-macro", "cdylib", "staticlib", "rlib"];
        let roots = self.targets.iter().filter(move |target| kinds.contains(&target.kind.as_str()));
        roots.map(|target| &target.root)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// As Cargo calls it: `lib`, `bin`, `test`, `example`, `bench`, `custom-build`.
    pub(crate) kind: String,
    pub(crate) root: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
}

pub(crate) fn packages(repo: &Repo) -> Result<Vec<Package>> {
    let value = read(repo)?;
    let top = format!("{}/", repo.root().canonicalize()?.display());
    Ok(list(&value["packages"]).iter().map(|package| parse(package, &top)).collect())
}

pub(crate) fn target_folder(repo: &Repo) -> Result<PathBuf> {
    Ok(PathBuf::from(text(&read(repo)?["target_directory"])))
}

fn read(repo: &Repo) -> Result<Value> {
    let args = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let mut command = run::cargo(repo.root(), &args);
    let finished = run::finish(&mut command, run::LIMIT, Show::Nothing)?;
    run::demand_success(&command, finished.status)?;
    serde_json::from_str(&finished.stdout).context("cargo metadata is not JSON")
}

fn parse(package: &Value, top: &str) -> Package {
    let relative = |path: &Value| {
        let path = text(path);
        path.strip_prefix(top).map(str::to_owned).unwrap_or(path)
    };
    let manifest = relative(&package["manifest_path"]);
    let target = |target: &Value| Target {
        kind: list(&target["kind"]).first().map(text).unwrap_or_default(),
        root: relative(&target["src_path"]),
    };
    Package {
        name: text(&package["name"]),
        folder: manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned(),
        targets: list(&package["targets"]).iter().map(target).collect(),
        dependencies: list(&package["dependencies"])
            .iter()
            .map(|edge| Dependency { name: text(&edge["name"]), dev: edge["kind"] == "dev" })
            .collect(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_read_with_its_edges() {
        let packages = packages(&Repo::find().unwrap()).unwrap();
        let transfer = packages.iter().find(|p| p.name == "catchment-transfer").unwrap();
        assert_eq!(transfer.folder, "crates/transfer");
        let roots: Vec<_> = transfer.roots().collect();
        assert_eq!(roots, ["crates/transfer/src/lib.rs"]);
        let verbs = Dependency { name: "catchment-verbs".into(), dev: false };
        assert!(transfer.dependencies.contains(&verbs), "{transfer:?}");
        assert!(transfer.dependencies.iter().any(|d| d.name == "catchment-provider-shm" && d.dev));
    }
}
