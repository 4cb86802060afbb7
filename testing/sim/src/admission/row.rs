//! What a row of any kind has, and how rows are shown and held against goals.
use std::cell::RefCell;

/// A row, as JSON and for people.
pub(super) trait Shown: serde::Serialize {
    fn line(&self) -> String;

    /// Returns the goals that are set for this row.
    fn goals(&self) -> Vec<Goal> {
        Vec::new()
    }
}

/// What must hold for a number.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct Goal {
    goal: String,
    value: Option<f64>,
    #[serde(skip)]
    held: bool,
}

impl Goal {
    pub(super) fn least(name: impl std::fmt::Display, value: Option<f64>, least: f64) -> Self {
        let held = value.is_some_and(|value| value >= least);
        Self { goal: format!("{name} >= {least}"), value, held }
    }

    pub(super) fn most(name: impl std::fmt::Display, value: Option<f64>, most: f64) -> Self {
        let held = value.is_some_and(|value| value <= most);
        Self { goal: format!("{name} <= {most}"), value, held }
    }

    #[cfg(test)]
    pub(super) const fn held(&self) -> bool {
        self.held
    }
}

/// What the issue wants and nothing here can measure yet.
const NOT_MEASURED: [&str; 1] = ["added: small (no source has a bucket yet)"];

/// The last row.
#[derive(Debug, serde::Serialize)]
struct GoalsRow {
    what: &'static str,
    held: usize,
    of: usize,
    missed: Vec<Goal>,
    not_measured: [&'static str; 1],
}

/// Shows rows and remembers which goals they hold.
#[derive(Debug)]
pub(super) struct Report {
    json: bool,
    goals: RefCell<Vec<Goal>>,
}

impl Report {
    pub(super) const fn new(json: bool) -> Self {
        Self { json, goals: RefCell::new(Vec::new()) }
    }

    pub(super) fn demand(&self, goal: Goal) {
        self.goals.borrow_mut().push(goal);
    }

    pub(super) fn show(&self, row: &impl Shown) {
        self.goals.borrow_mut().extend(row.goals());
        if self.json {
            let json = serde_json::to_string(row);
            println!("{}", json.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")));
        } else {
            println!("{}", row.line());
        }
    }

    /// Shows which goals were held.
    pub(super) fn end(self) {
        let goals = self.goals.take();
        let missed: Vec<Goal> = goals.iter().filter(|goal| !goal.held).cloned().collect();
        let (of, held) = (goals.len(), goals.len() - missed.len());
        self.show(&GoalsRow { what: "goals", held, of, missed, not_measured: NOT_MEASURED });
    }
}

impl Shown for GoalsRow {
    fn line(&self) -> String {
        let value = |goal: &Goal| goal.value.map_or("none".to_owned(), |value| value.to_string());
        let missed = self.missed.iter().map(|one| format!("\n  {}: {}", one.goal, value(one)));
        format!("{} of {} goals held{}", self.held, self.of, missed.collect::<String>())
    }
}

/// The first row: the machine that numbers belong to.
#[derive(Debug, serde::Serialize)]
pub(super) struct RunRow {
    what: &'static str,
    commit: Option<String>,
    machine: Option<String>,
    cores: usize,
    /// Processes that wanted to run, one-minute mean.
    load: Option<f64>,
    mode: &'static str,
    build: &'static str,
}

impl RunRow {
    pub(super) fn detect(quick: bool) -> Self {
        let load = std::fs::read_to_string("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let mut git = std::process::Command::new("git");
        let commit = git.args(["rev-parse", "--short=12", "HEAD"]).output().ok();
        let commit = commit.filter(|output| output.status.success());
        Self {
            what: "run",
            commit: commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            machine: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load,
            mode: if quick { "quick" } else { "full" },
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

impl Shown for RunRow {
    fn line(&self) -> String {
        let unknown = || "unknown".to_owned();
        format!(
            "{} build of {} on {}, {} cores, load {}",
            self.build,
            self.commit.clone().unwrap_or_else(unknown),
            self.machine.clone().unwrap_or_else(unknown),
            self.cores,
            self.load.map_or_else(unknown, |load| load.to_string())
        )
    }
}
