//! How the results are shown: lines, and a page.
use super::goals::Goal;
use super::row;
use super::row::Row;
use crate::host::Environment;
use crate::{output, table};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const HEAD: &str = "\
# Software RoCE between two network namespaces

Written by `cargo xtask bench roce --markdown docs/results/roce.md`. Do not edit.

How it is measured:

- Two network namespaces joined by a veth pair, MTU 9000, IPv6 unless the command says otherwise. Each
  side is a process of its own, fresh for each measurement, with all its threads on one core: the
  sender of the data on the first, the receiver on the second. What is compared takes turns, round by
  round. The kernel does the receiving side's network work of a veth pair mostly in the sender.
- `ours`: verbs over software RoCE with its default options, engine thread on. 1 MiB operations from
  and to regions of 64 MiB, 16 outstanding, programs sleep on a completion channel. `write-rate`: 64
  bytes, up to 1024 outstanding. READ: the receiver of the data asks for it.
- `bare-udp`: the same packets, sockets, ICRC, one copy at the receiver, acknowledgements; no queue
  pair, no timer, no retransmission.
- `iperf3`: one TCP stream, which sends the same 128 KiB again and again, and receives into the same
  128 KiB: both stay in the cache. `tcp`: one TCP stream, 1 MiB at a time, from and to 64 MiB, as ours.
  `write-again`: ours, from and to the same 128 KiB, as iperf3.
- `write-latency`: half of a round trip of 64 bytes, one at a time; who waits yields between two
  looks. With `engine thread`, and with `receiving thread` of bare UDP, the program looks at its memory,
  into which another thread of its side, on the same core, puts what comes. With `inline polling` the
  program does the engine's work while it polls, and bare UDP looks for the packet itself. Bare UDP
  acknowledges nothing here; an acknowledgement to each packet, as RC demands, would cost it a fifth.
- CPU: getrusage of each process while it measures, engine included.
- `pkts/send`, `pkts/recv`: packets in one message to and from the kernel (GSO, GRO). `lost`: packets
  that were sent again, or did not arrive.
- Numbers are medians over the rounds, in brackets the range from the 5th to the 95th percentile.
  Goals are the median of the ratios of each round.

";

pub(crate) fn print(
    environment: &Environment,
    rows: &[Row],
    goals: &[Goal],
    json: bool,
) -> Result<()> {
    if json {
        output::json(&serde_json::json!({ "environment": environment }))?;
    } else {
        output::line(&environment.line())?;
        output::line(table::aligned(&row::lines(rows)).trim_end())?;
    }
    for row in rows.iter().filter(|_| json) {
        output::json(row)?;
    }
    for goal in goals {
        output::either(json, goal, Goal::line)?;
    }
    Ok(())
}

pub(crate) fn write(
    path: &Path,
    environment: &Environment,
    rows: &[Row],
    goals: &[Goal],
) -> Result<()> {
    let command: Vec<String> = std::env::args().skip(1).collect();
    let goals = goals.iter();
    let goals: String = goals
        .map(|goal| format!("| {} | {:.2} | {} |\n", goal.goal, goal.ratio, goal.verdict()))
        .collect();
    let page = format!(
        "{HEAD}This run:\n\n- Machine: {}.\n- Day: {}, {}, commit {}.\n\
         - Command: `catchment-bench {}`.\n- Rounds: {}.\n\n\
         ## Goals\n\n| goal | ratio | |\n|---|---|---|\n{goals}\n## Figures\n\n{}",
        environment.line(),
        environment.date,
        environment.rustc,
        environment.commit,
        command.join(" "),
        rows.first().map_or(0, |row| row.rounds),
        table::markdown(&row::lines(rows)),
    );
    fs::write(path, page).with_context(|| format!("writing {}", path.display()))
}
