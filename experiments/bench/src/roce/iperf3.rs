//! iperf3: one TCP stream, as everybody measures it.
use super::job::Job;
use super::row::Sample;
use anyhow::{Context, Result, ensure};
use catchment_netns::{Namespace, VethPair};
use catchment_perf::ChildProcess;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What iperf3 writes at a time by default.
pub(crate) const CHUNK_BYTES: usize = 128 << 10;
const PORT: &str = "5201";
/// An end that does not answer has failed after this.
const CONNECT_TIMEOUT_MS: &str = "5000";

pub(crate) fn is_installed() -> bool {
    let found = Command::new("iperf3").arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

pub(crate) fn measure(pair: &VethPair, job: &Job) -> Result<Sample> {
    let core = job.receiver_core.to_string();
    let mut server = start(
        &pair.right,
        "the iperf3 server",
        &["-s", "-1", "-p", PORT, "-A", &core, "--forceflush"],
    )?;
    server.wait_for(|line| line.contains("listening"))?;
    let cores = format!("{},{}", job.sender_core, job.receiver_core);
    let (seconds, to) = (job.seconds.ceil().to_string(), job.receiver.to_string());
    let client = start(
        &pair.left,
        "the iperf3 client",
        &[
            "-c", &to, "-p", PORT, "-t", &seconds, "-A", &cores, "-J", "--connect-timeout",
            CONNECT_TIMEOUT_MS,
        ],
    )?;
    let report = client.finish()?;
    server.finish()?;
    read(&report).with_context(|| format!("iperf3 printed {report}"))
}

/// Starts it in a namespace; it ends with this process, even if that is killed.
fn start(at: &Namespace, name: &'static str, words: &[&str]) -> Result<ChildProcess> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "nsenter"]);
    command.arg(format!("--net={}", at.path()));
    command.arg("iperf3").args(words);
    command.stdin(Stdio::null());
    Ok(ChildProcess::start(name, &mut command)?)
}

pub(crate) fn read(report: &str) -> Result<Sample> {
    let report: Value = serde_json::from_str(report)?;
    let end = &report["end"];
    let number = |at: &Value, what: &str| at.as_f64().with_context(|| format!("no {what}"));
    let received = &end["sum_received"];
    let bytes = number(&received["bytes"], "end.sum_received.bytes")?;
    let seconds = number(&received["seconds"], "end.sum_received.seconds")?;
    ensure!(bytes > 0.0 && seconds > 0.0, "nothing was transferred");
    let usage = &end["cpu_utilization_percent"];
    let cpu = |which: &str| {
        let percent = number(&usage[which], which)?;
        anyhow::Ok(percent / 100.0 * seconds / (bytes / 1e9))
    };
    Ok(Sample {
        bytes_per_s: Some(bytes / seconds),
        cpu_s_per_gb_sender: Some(cpu("host_total")?),
        cpu_s_per_gb_receiver: Some(cpu("remote_total")?),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_gives_rate_and_cpu_time() {
        let report = r#"{"end": {"sum_received": {"bytes": 4e9, "seconds": 2.0},
            "cpu_utilization_percent": {"host_total": 80.0, "remote_total": 40.0}}}"#;
        let sample = read(report).unwrap();
        assert_eq!(sample.bytes_per_s, Some(2e9));
        assert_eq!(sample.cpu_s_per_gb_sender, Some(0.4));
        assert_eq!(sample.cpu_s_per_gb_receiver, Some(0.2));
        let refused = read(r#"{"error": "unable to connect"}"#);
        assert!(refused.unwrap_err().to_string().contains("sum_received"));
    }
}
