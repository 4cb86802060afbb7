//! Builds that later steps need, made where nothing else takes the processors: tests and the lab mostly wait.
use crate::run::{self, KillOnDrop};
use anyhow::{Context as _, Result};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How often a build is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(200);

/// Builds one after the other, in the background; dropping it ends them. What they print is not shown: the step that
/// needs a build makes it again, which takes no time if nothing was wrong, and says so otherwise.
pub(crate) struct Ahead {
    /// Its end is the end of the builds.
    stop: Option<mpsc::Sender<()>>,
    builds: Option<JoinHandle<()>>,
}

impl Ahead {
    pub(crate) fn begin(commands: Vec<Command>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let builds = thread::spawn(move || {
            for command in commands {
                // It is said by the step that needs it.
                let Ok(mut build) = start(&command) else { return };
                while matches!(build.0.try_wait(), Ok(None)) {
                    if stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Disconnected) {
                        return;
                    }
                }
            }
        });
        Self { stop: Some(stop), builds: Some(builds) }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        drop(self.stop.take());
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
    use crate::proc;

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
