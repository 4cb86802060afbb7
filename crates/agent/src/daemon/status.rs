//! How the agent stands, for whoever asks.
use super::Shared;
use super::engine::Command;
use crate::peer::Change;
use crate::protocol::{self, Peer, Reply, Rounds, Standing};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long who asks may leave answers unread.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells how the agent stands, in as many messages as it takes: those of many applications fit no socket at once.
pub(super) fn tell(shared: &Shared, fd: &OwnedFd) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let told = shared.ask(Command::Status);
    let told = told.map(|(all, processor, decided_ns)| (all, Some(processor), decided_ns));
    let (mut applications, processor, decided_ns) = told.unwrap_or_default();
    while applications.len() > protocol::ACCOUNTS {
        let rest = applications.split_off(protocol::ACCOUNTS);
        let first = std::mem::replace(&mut applications, rest);
        let told = Reply::Accounts { applications: first };
        protocol::send_in_turn(fd.as_fd(), &told, deadline)?;
    }
    let (peers, rounds) = ask_about_peers(shared).unzip();
    let standing = Standing {
        alpha: shared.policy().alpha,
        applications,
        peers: peers.unwrap_or_default(),
        rounds,
        processor,
        decided_ns,
        services: shared.services.offered(),
    };
    let status = Reply::Status(Box::new(standing));
    protocol::send_in_turn(fd.as_fd(), &status, deadline)
}

/// Asks who keeps the sessions with other agents; `None` where there is nobody.
fn ask_about_peers(shared: &Shared) -> Option<(Vec<Peer>, Rounds)> {
    let (reply, answer) = channel();
    shared.news.as_ref()?.send(Change::Status(reply)).ok()?;
    answer.recv().ok()
}
