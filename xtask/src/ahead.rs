//! Builds that later steps need, made where nothing else takes the processors: tests and the lab mostly wait.
use crate::proc;
use crate::run::{self, KillOnDrop};
use anyhow::{Context as _, Result};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Builds one after the other, in the background; dropping it ends them. What they print is not shown: the step that
/// needs a build makes it again, which takes no time if nothing was wrong, and says so otherwise.
pub(crate) struct Ahead {
    stop: Arc<AtomicBool>,
    builds: Option<JoinHandle<()>>,
}

impl Ahead {
    pub(crate) fn begin(commands: Vec<Command>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let builds = thread::spawn(move || {
            for command in commands {
                // It is said by the step that needs it.
                let Ok(mut build) = start(&command) else { return };
                let ended = proc::poll_until(run::LIMIT, || {
                    let is_stopped = stopped.load(Ordering::Relaxed);
                    Ok(if is_stopped { Some(false) } else { build.0.try_wait()?.map(|_| true) })
                });
                if !matches!(ended, Ok(Some(true))) {
                    return;
                }
            }
        });
        Self { stop, builds: Some(builds) }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(builds) = self.builds.take() {
            // The thread has nothing that can panic.
            let _ = builds.join();
        }
    }
}

fn start(command: &Command) -> Result<KillOnDrop> {
    let mut command = run::at_rest(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child =
        command.spawn().with_context(|| format!("cannot start `{}`", run::shown(&command)))?;
    Ok(KillOnDrop(child))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn pid(file: &std::path::Path) -> u32 {
        let pid =
            || Ok(std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()));
        proc::poll_until(Duration::from_secs(60), pid).unwrap().expect("it has begun")
    }

    #[test]
    fn builds_go_one_after_the_other_and_end_with_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first"), folder.path().join("second"));
        let failed = shell(&format!("echo $$ > {}; exit 1", first.display()));
        let hanging = shell(&format!(
            "test -s {} && echo $$ > {}; sleep 4323; :",
            first.display(),
            second.display()
        ));
        let ahead = Ahead::begin(vec![failed, hanging]);
        let pid = pid(&second);
        assert!(proc::alive(pid));
        drop(ahead);
        assert!(proc::gone_within(pid, Duration::from_secs(60)));
    }
}
