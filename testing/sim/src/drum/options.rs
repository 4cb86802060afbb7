//! The command: which runs, and how they are shown.
use super::row::{Row, Run};
use super::trial::Trial;
use super::world::Wire;
use crate::parallel;

/// Options of `bench drum-sim`.
#[derive(Debug, Clone, clap::Args)]
pub struct DrumOptions {
    /// One JSON object per line
    #[arg(long)]
    json: bool,
    /// Up to 1,024 hosts, in under 4 minutes; the default
    #[arg(long)]
    quick: bool,
    /// 4,096 hosts and more seeds too
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Hosts of one run in place of the usual ones
    #[arg(long)]
    hosts: Option<usize>,
    /// Round trip time of one run, in microseconds
    #[arg(long, default_value_t = 100, requires = "hosts")]
    rtt_us: u64,
    /// Fraction of messages lost in one run
    #[arg(long, default_value_t = 0.0, requires = "hosts")]
    loss: f64,
    /// Fraction of messages 100 ms late in one run
    #[arg(long, default_value_t = 0.0, requires = "hosts")]
    late: f64,
    /// Data carry the numbers of their edges too, in one run
    #[arg(long, requires = "hosts")]
    carries: bool,
    /// Fairness of one run
    #[arg(long, default_value_t = 1.0, requires = "hosts")]
    alpha: f64,
    /// The first of the seeds
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn trial(hosts: usize, rtt_us: u64, loss: f64, late: f64, seed: u64) -> Trial {
    let jitter_ns = (rtt_us * 1000 / 5).max(2000);
    // Doubled wherever something is lost.
    let wire =
        Wire { rtt_ns: rtt_us * 1000, jitter_ns, loss, double: loss / 5.0, late, carries: false };
    let watched = if loss > 0.1 || late > 0.0 { 60 } else { 40 };
    Trial { hosts, apps_per_host: 1000, active: 20, alpha: 1.0, wire, seed, watched }
}

impl DrumOptions {
    fn trials(&self) -> Vec<Trial> {
        let seed = self.seed;
        if let Some(hosts) = self.hosts {
            let one = trial(hosts, self.rtt_us, self.loss, self.late, seed);
            let wire = Wire { carries: self.carries, ..one.wire };
            return vec![Trial { alpha: self.alpha, wire, ..one }];
        }
        let mut trials = vec![
            trial(1024, 10, 0.0, 0.0, seed),
            trial(128, 1000, 0.05, 0.0, seed),
            trial(128, 100, 0.1, 0.0, seed),
            trial(128, 100, 0.3, 0.0, seed),
            trial(128, 100, 0.0, 0.01, seed),
            trial(128, 5000, 0.0, 0.0, seed),
        ];
        let carrying = [trials[2], trials[3]]
            .map(|trial| Trial { wire: Wire { carries: true, ..trial.wire }, ..trial });
        trials.extend(carrying);
        if self.full {
            trials.push(trial(4096, 100, 0.0, 0.0, seed));
            for seed in seed..seed + 5 {
                for loss in [0.0, 0.05, 0.1, 0.3] {
                    trials
                        .extend([10, 100, 1000, 5000].map(|rtt| trial(1024, rtt, loss, 0.0, seed)));
                }
                trials.push(trial(1024, 100, 0.0, 0.01, seed));
            }
        }
        trials
    }
}

/// Runs the hosts, and prints a row for each change.
///
/// # Errors
/// When a capacity was exceeded, or a problem could not be solved.
pub fn run(options: &DrumOptions) -> Result<(), String> {
    show(options, &Run::detect(options.full), "hosts of DRUM in virtual time".to_owned());
    let trials = options.trials();
    let mut result = Ok(());
    parallel::in_order(
        trials.len() as u64,
        |at| trials[at as usize].run(),
        |at, rows| {
            match rows {
                Ok(rows) => rows.iter().for_each(|row| {
                    show(options, row, row.line());
                    result = result.clone().and(judge(&trials[at as usize], row));
                }),
                Err(error) => result = Err(error),
            }
            true
        },
    );
    result
}

/// Says what a row misses, and how to run it again. Only a capacity that is exceeded is an error.
fn judge(trial: &Trial, row: &Row) -> Result<(), String> {
    for miss in row.misses() {
        let Trial { hosts, alpha, wire, seed, .. } = trial;
        eprintln!(
            "{}: {miss}: cargo xtask bench drum-sim --hosts {hosts} --rtt-us {} --loss {} --late {}{} --alpha {alpha} --seed {seed}",
            row.change,
            wire.rtt_ns / 1000,
            wire.loss,
            wire.late,
            if wire.carries { " --carries" } else { "" },
        );
    }
    if row.over_capacity_unit_s > 0.0 {
        return Err(format!("a capacity was exceeded: seed {}", row.seed));
    }
    Ok(())
}

fn show(options: &DrumOptions, row: &impl serde::Serialize, line: String) {
    if options.json {
        let json = serde_json::to_string(row);
        println!("{}", json.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")));
    } else {
        println!("{line}");
    }
}
