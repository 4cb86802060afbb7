//! `catchment doctor`: what works on this machine, and what to fix.
use crate::args::DoctorArgs;
use crate::cert::client_security;
use crate::failure::{Code, Failure};
use crate::output::{self, units};
use catchment_doctor::checks::{Check, Doctor, Examined, Level, Works};
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Serialize)]
struct DoctorJson<'a> {
    problems: usize,
    notes: usize,
    providers: &'a [Works],
    checks: &'a [Check],
}

pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let security = client_security(&args.security)?;
    let controller = args.controller.clone().map(|address| (address, security));
    let (roce, ibverbs) = (args.devices.roce(), args.devices.ibverbs());
    let doctor = Doctor { roce, ibverbs, controller };
    let examined = doctor.examine();
    if args.json {
        output::print_json(&DoctorJson {
            problems: examined.count(Level::Problem),
            notes: examined.count(Level::Note),
            providers: &examined.works,
            checks: &examined.checks,
        })?;
    } else {
        output::print(&text(&examined))?;
    }
    match examined.count(Level::Problem) {
        0 => Ok(()),
        _ => Err(Failure::Silent(Code::Failed as u8)),
    }
}

fn text(examined: &Examined) -> String {
    let mut text = String::new();
    for check in &examined.checks {
        let level = match check.level {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "PROBLEM",
        };
        let _ = writeln!(text, "{level:<8}{:<13}{}", check.name, check.seen);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(text, "{:21}-> {remedy}", "");
        }
    }
    text.push('\n');
    for works in &examined.works {
        let verdict = if works.works { "works" } else { "not here" };
        let _ = writeln!(text, "{:<8}{verdict:<9}{}", works.name, works.how);
    }
    let _ = writeln!(
        text,
        "\n{}, {}",
        units::counted(examined.count(Level::Problem) as u64, "problem"),
        units::counted(examined.count(Level::Note) as u64, "note")
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_what_was_seen() {
        let check = |level, remedy: Option<&str>| Check {
            name: "memlock",
            level,
            seen: "this process may lock 8 MiB".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let examined = Examined {
            checks: vec![
                check(Level::Ok, None),
                check(Level::Problem, Some("ulimit -l unlimited")),
            ],
            works: vec![Works { name: "shm", works: true, how: "it does".to_owned() }],
        };
        assert_eq!(
            text(&examined),
            "ok      memlock      this process may lock 8 MiB\n\
             PROBLEM memlock      this process may lock 8 MiB\n\
             \x20                    -> ulimit -l unlimited\n\
             \n\
             shm     works    it does\n\
             \n\
             1 problem, no note\n"
        );
    }
}
