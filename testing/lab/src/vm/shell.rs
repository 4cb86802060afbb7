//! Programs of the host, run to their end.
use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the running program")
}

pub(crate) fn output(words: &[&str]) -> Result<String> {
    let (program, arguments) = words.split_first().context("no program was named")?;
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).output().with_context(|| {
            format!("cannot start {program}: `cargo xtask lab rxe` installs what it needs")
        })?;
    ensure!(
        output.status.success(),
        "`{}` failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_back_and_failures_say_why() {
        assert_eq!(output(&["echo", "one"]).unwrap(), "one\n");
        let error = output(&["sh", "-c", "echo gone >&2; exit 4"]).unwrap_err();
        assert!(error.to_string().ends_with("failed: gone"), "{error}");
        let error = output(&["no-such-program"]).unwrap_err().to_string();
        assert!(error.contains("cannot start no-such-program"), "{error}");
    }
}
