//! Error messages when something is missing or wrong: they name what was found and what to do.
use super::command::LIMIT;
use super::operations::{self, Pair};
use crate::end::{Kind, Order, Work};
use crate::lab::{Case, Lab, Site};
use crate::remote::{Ended, Start};
use crate::vm::network::IpVersion;
use crate::vm::shell;
use anyhow::{Result, ensure};

/// A script for the first guest that breaks something, runs a program, and repairs it; then words that
/// its output must contain. `$LAB end` opens a device as all programs do and executes orders, of which
/// `$MAKE` is one; `$CATCHMENT` is the command.
struct Message {
    name: &'static str,
    script: &'static str,
    words: &'static [&'static str],
}

const MESSAGES: &[Message] = &[
    Message {
        name: "wrong device",
        script: "$LAB end ibverbs mlx5_7",
        words: &["mlx5_7", "rxe0", "rxv0", "rxv1"],
    },
    Message {
        name: "no device on this interface",
        script: "rdma link delete rxe0; $LAB end ibverbs 10.77.0.2; \
                 rdma link add rxe0 type rxe netdev roce0",
        words: &["no RDMA device is on roce0, the interface with 10.77.0.2", "rxv0 on v0"],
    },
    Message {
        name: "port down",
        script: "ip link set port0 down; $LAB end ibverbs 10.77.0.2; ip link set port0 up",
        words: &["rxe0 port 1, which has 10.77.0.2, is", "the cable", "`ip link`"],
    },
    Message {
        name: "memlock too small",
        script: "echo \"$MAKE\" | setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
                 prlimit --memlock=65536 $LAB end ibverbs 10.77.0.2",
        words: &["memlock", "ulimit -l"],
    },
    Message {
        name: "address of another network namespace",
        script: "ip netns add other; ip netns exec other $LAB end ibverbs 10.77.0.2; \
                 ip netns delete other",
        words: &["10.77.0.2 is GID", "of rxe0 port 1", "in another network namespace"],
    },
    Message {
        name: "device of another network namespace",
        script: "ip netns add other; ip netns exec other $LAB end ibverbs rxe0; \
                 ip netns delete other",
        words: &["rxe0 port 1 has no RoCE v2 GID", "of this network namespace"],
    },
    Message {
        name: "no libibverbs",
        script: "unshare --mount sh -c 'for file in /usr/lib/*/libibverbs.so.1*; do \
                 mount --bind /dev/null $file; done; $LAB end ibverbs rxe0'",
        words: &["libibverbs cannot be loaded", "apt install"],
    },
    Message {
        name: "no device file, as in a container",
        script: "unshare --mount sh -c 'mount -t tmpfs none /dev/infiniband; $LAB end ibverbs rxe0'",
        words: &["rxe0 has no device file /dev/infiniband/uverbs", "--device"],
    },
    Message {
        name: "no permission for the device file",
        script: "chmod 000 /dev/infiniband/*; setpriv --bounding-set=-dac_override \
                 --inh-caps=-dac_override $LAB end ibverbs rxe0; chmod 666 /dev/infiniband/*",
        words: &["no permission for /dev/infiniband/uverbs", "rxe0"],
    },
    Message {
        name: "doctor finds the devices",
        script: "$CATCHMENT doctor",
        words: &["rxe0", "rxv0", "rxv1", "10.77.0.2", "ibverbs works"],
    },
    Message {
        name: "doctor finds a port that is down",
        script: "ip link set port0 down; $CATCHMENT doctor; ip link set port0 up",
        words: &["note device rxe0: port 1 DOWN", "a port that is ACTIVE (ip link set dev"],
    },
    Message {
        name: "devices lists them",
        script: "$CATCHMENT devices",
        words: &["ibverbs", "rxe0", "roce0", "10.77.0.2"],
    },
    Message {
        name: "explain names device and way",
        script: "$CATCHMENT explain 10.77.0.3",
        words: &["rxe0", "10.77.0.2", "4791"],
    },
];

pub(crate) fn add(cases: &mut Vec<Case>) {
    for message in MESSAGES {
        let name = format!("messages/{}", message.name);
        cases.push(Case::new(name, move |lab: &mut Lab| said(lab, message)));
    }
    for (name, run) in [
        ("peer gone", peer_gone as fn(&mut Lab) -> Result<()>),
        ("revoked key", revoked),
        ("no receive", no_receive),
    ] {
        cases.push(Case::new(format!("messages/{name}"), run));
    }
}

fn said(lab: &mut Lab, message: &Message) -> Result<()> {
    // Device and port return by themselves, a moment after their repair.
    let words = ["sh", "-c", message.script];
    let catchment = lab.programs.catchment.display().to_string();
    let start = Start::like_here(words)
        .with("LAB", &shell::this_program()?.display().to_string())
        .with("CATCHMENT", &catchment)
        .with("MAKE", &serde_json::to_string(&Order::Make(Kind::Connection))?)
        .with("RUST_BACKTRACE", "0");
    let finished = lab.start(Site::Left, &start)?.wait(LIMIT)?;
    ensure!(matches!(finished.ended, Ended::Status(_)), "{}", finished.ended);
    let text = format!("{}{}", finished.stdout, finished.stderr);
    // Line breaks and column widths do not matter.
    demand_words(&text.split_whitespace().collect::<Vec<_>>().join(" "), message.words)
}

fn demand_words(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in: {text}");
    }
    Ok(())
}

/// The events checked below are those of the first guest's device.
const LEFT_TO_HOST: (Site, Site) = (Site::Left, Site::Host);

fn peer_gone(lab: &mut Lab) -> Result<()> {
    let Pair { mut asking, mut asked } = Pair::new(lab, LEFT_TO_HOST, IpVersion::V4)?;
    asked.connect(&asking.card)?;
    asking.connect_with(&asked.card, 2, 7)?;
    let place = asked.place(0);
    asking.run(Work::Write(place), 0, 64)?;
    drop(asked);
    asking.post(&[(Work::Write(place), 0, 64)])?;
    asking.expect(false, "TransportRetryExceeded")?;
    demand_words(
        &asking.event()?,
        &["10.77.0.1", "process has ended", "4791", "the first request is acknowledged"],
    )
}

fn revoked(lab: &mut Lab) -> Result<()> {
    let mut asking = operations::revoked_key(Pair::new(lab, LEFT_TO_HOST, IpVersion::V4)?)?;
    demand_words(&asking.event()?, &["10.77.0.1", "rkey is revoked"])
}

fn no_receive(lab: &mut Lab) -> Result<()> {
    let mut asking = operations::no_receive(Pair::new(lab, LEFT_TO_HOST, IpVersion::V4)?)?;
    demand_words(&asking.event()?, &["10.77.0.1", "posts receives"])
}
