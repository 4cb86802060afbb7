//! The measurements as their users run them, on the smallest cells.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
mod agent;
mod control;
mod duplex;
mod mechanisms;
mod page;
mod papers;
mod roce;
mod status;
mod transfer;
mod wan;

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_catchment-bench"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    bench(arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of JSON that a measurement printed, which must have ended well.
fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", errors(output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |line| serde_json::from_str(line).unwrap();
    text.lines().map(line).collect()
}

/// The rows that `papers` left of an experiment: numbers and truth values as such, empty cells as null.
fn rows(folder: &Folder, experiment: &str) -> Vec<Value> {
    let path = folder.0.join(format!("papers/{experiment}.csv"));
    let mut rows = csv::Reader::from_path(path).unwrap();
    let row = |row: Result<serde_json::Map<String, Value>, _>| {
        let mut row = row.unwrap();
        row.values_mut().filter(|cell| **cell == "").for_each(|cell| *cell = Value::Null);
        Value::Object(row)
    };
    rows.deserialize().map(row).collect()
}

/// A folder that is gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("catchment-bench-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
