//! Where the guest spends its processor time while bytes move: samples of perf(1), by kind.
use super::{Subject, Table};
use crate::remote::Start;
use crate::remote::process::Output;
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

pub(super) const KINDS: [&str; 5] =
    ["ICRC", "copies", "zeroing of fresh memory", "else in the kernel", "else in user space"];

/// Parts of names of functions of the first kinds, whatever calls them. In Rust, the module counts.
const WORDS: [&[&str]; 3] = [
    &["crc32", "icrc", "wire3crc", "wire::crc", "io4fold", "io::fold", "shash_update"],
    &["memcpy", "memmove", "copy_user", "copy_page"],
    &["memset", "clear_page", "clear_user"],
];
const KERNEL: usize = 3;
const USER: usize = 4;

/// How long samples are taken; perf begins some seconds after its start, when the stream is running.
const SAMPLED: Duration = Duration::from_secs(3);
const STREAM: Duration = Duration::from_secs(12);
const SAMPLES_MIN: u64 = 200;
const DATA: &str = "/tmp/perf.data";
const LIMIT: Duration = Duration::from_secs(120);

/// Shares of the processor time, by kind; their sum is 1.
pub(crate) type Shares = [f64; KINDS.len()];

impl Table {
    pub(crate) fn profile(&self, subject: Subject) -> Result<Shares> {
        let (_passive, mut active) = self.sides(subject, STREAM)?;
        let seconds = SAMPLED.as_secs();
        let record =
            format!("perf record -q -N -B -a -e cpu-clock -F 499 -o {DATA} sleep {seconds}");
        let record = record.split(' ');
        let mut perf = self.guest.start(&Start::like_here(record), Output::Kept)?;
        perf.wait(LIMIT)?.success().context("perf record")?;
        active.wait(LIMIT)?.success().context("the active side")?;
        let script = ["perf", "script", "-i", DATA, "-F", "comm,ip,sym,dso"];
        let output = self.guest.run(&script, LIMIT)?.stdout;
        shares(&output)
    }
}

/// Computes shares from lines of `perf script`: thread name, address, function, file in brackets.
fn shares(output: &str) -> Result<Shares> {
    let mut counts = [0u64; KINDS.len()];
    for kind in output.lines().filter_map(kind) {
        counts[kind] += 1;
    }
    let all: u64 = counts.iter().sum();
    ensure!(all >= SAMPLES_MIN, "perf took {all} samples: {output:.400}");
    Ok(counts.map(|count| count as f64 / all as f64))
}

/// Returns the kind of a sample; none if the processor was idle or working for perf.
fn kind(line: &str) -> Option<usize> {
    let (thread, rest) = line.trim().split_once(char::is_whitespace)?;
    let idle = thread == "swapper" && rest.contains("safe_halt");
    if idle || thread.starts_with("perf") {
        return None;
    }
    let (function, file) = rest.rsplit_once('(')?;
    let named = |words: &&[&str]| words.iter().any(|word| function.contains(word));
    let other = if file.contains("kernel") || file.contains(".ko") || file.starts_with('[') {
        KERNEL
    } else {
        USER
    };
    Some(WORDS.iter().position(named).unwrap_or(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_kinds() {
        let cases = [
            ("roce-engine 55d7 catchment_roce::wire::crc::look_up (/t/catchment-lab)", Some(0)),
            ("x 1f _ZN14catchment_roce4wire3crc7look_up17h1E (/t/catchment-lab)", Some(0)),
            ("catchment-lab ffff crc32_body ([kernel.kallsyms])", Some(0)),
            ("roce-engine ffff copy_user_generic_string ([kernel.kallsyms])", Some(1)),
            ("roce-engine 7f00 __memmove_avx_unaligned (/lib/libc.so.6)", Some(1)),
            ("x ffff clear_page_rep ([kernel.kallsyms])", Some(2)),
            ("swapper ffff net_rx_action ([kernel.kallsyms])", Some(KERNEL)),
            ("x ffff rxe_responder ([rdma_rxe])", Some(KERNEL)),
            ("x 55d7 [unknown] (/t/catchment-lab)", Some(USER)),
            ("swapper ffff native_safe_halt ([kernel.kallsyms])", None),
            ("perf ffff memcpy ([kernel.kallsyms])", None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(kind(line), expected, "{line}");
        }
        assert!(shares(cases[0].0).is_err(), "one sample is none");
        let many = format!("{}\n{}\n", cases[0].0, cases[3].0);
        assert_eq!(shares(&many.repeat(200)).unwrap()[..2], [0.5, 0.5]);
    }
}
