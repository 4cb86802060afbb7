//! Attack programs: processes of their own, which know only what they are told in their arguments.
mod floods;
mod packets;
mod sessions;
mod shared_memory;

use crate::host::process::pass;
use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

type Program = fn(&Args) -> Result<Value>;

const PROGRAMS: &[(&str, Program)] = &[
    ("burn", burn),
    ("connections", floods::connections),
    ("garbage", floods::garbage),
    ("slow_readers", floods::slow_readers),
    ("unfinished_requests", floods::unfinished_requests),
    ("hello", sessions::hello),
    ("sessions", sessions::sessions),
    ("sample", sessions::sample),
    ("raw", sessions::raw),
    ("strangers", shared_memory::strangers),
    ("foreign_ring", shared_memory::foreign_ring),
    ("shm_flood", shared_memory::flood),
    ("watches", shared_memory::watches),
    ("inbox", shared_memory::inbox),
    ("shm_versions", shared_memory::versions),
    ("blind_writes", packets::blind_writes),
    ("leave_a_gap", packets::leave_a_gap),
    ("naks", packets::naks),
    ("cnps", packets::cnps),
];

/// What a program is told.
pub(crate) struct Args(Value);

impl Args {
    fn text(&self, name: &str) -> Result<&str> {
        self.0[name].as_str().with_context(|| format!("{name} is missing"))
    }

    fn number(&self, name: &str) -> Result<u64> {
        self.0[name].as_u64().with_context(|| format!("{name} is missing"))
    }

    fn real(&self, name: &str) -> Result<f64> {
        self.0[name].as_f64().with_context(|| format!("{name} is missing"))
    }

    fn value(&self, name: &str) -> &Value {
        &self.0[name]
    }

    fn address(&self) -> Result<SocketAddr> {
        Ok(self.text("address")?.parse()?)
    }

    fn time(&self) -> Result<Duration> {
        Ok(Duration::from_secs_f64(self.real("seconds")?))
    }
}

/// Plays a program and prints what it found, with the processor time that it took.
pub(crate) fn play(name: &str, args: &str) -> Result<()> {
    // Floods take as many descriptors as they may.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let known = PROGRAMS.iter().find(|(known, _)| *known == name);
    let (_, program) = known.with_context(|| format!("no attack program is called {name:?}"))?;
    let mut found = program(&Args(serde_json::from_str(args)?))?;
    found["event"] = json!("attack");
    found["cpu_s"] = json!(cpu().as_secs_f64());
    println!("{found}");
    Ok(())
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Takes a share of a core, and nothing else.
fn burn(args: &Args) -> Result<Value> {
    let (share, time, start) = (args.real("share")?, args.time()?, Instant::now());
    while start.elapsed() < time {
        if cpu().as_secs_f64() > share * start.elapsed().as_secs_f64() {
            pass(Duration::from_millis(1));
        }
    }
    Ok(json!({}))
}
