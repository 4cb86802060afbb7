//! What cases work with: hosts at one switch, and programs that run on each.
//!
//! There are up to three: this host, which has no RDMA device and speaks RoCE in user space, and one or
//! two guests, each with a kernel and an RDMA device of its own. Whatever passes between two of them
//! crosses a network. A case names the [`Site`] at which a program runs. Guests boot when first needed
//! and serve all cases of a run.
use crate::end::Kind;
use crate::end::client::End;
use crate::peer::wire::Wire;
use crate::remote::process::{Finished, Output, Process};
use crate::remote::{Start, server};
use crate::report;
use crate::verbs::clip::Clip;
use crate::vm::guest::{Guest, Machine};
use crate::vm::kernel::Kernel;
use crate::vm::network::{HOST, IpVersion, SEATS};
use crate::vm::shell;
use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, thread};
use tempfile::TempDir;

/// The guests reboot after a failed case, so that it cannot affect the next one. The number is limited:
/// if everything fails, more failures add nothing.
const BOOTS_MAX: u32 = 12;

pub(crate) type Case = report::Case<Lab>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{}", self.provider())]
pub(crate) enum Site {
    /// This host, in the lab's network namespace, without an RDMA device.
    Host,
    Left,
    Right,
}

impl Site {
    pub(crate) fn address(self, version: IpVersion) -> IpAddr {
        let addresses = match self {
            Self::Host => HOST,
            Self::Left => SEATS[0].addresses,
            Self::Right => SEATS[1].addresses,
        };
        addresses.of(version)
    }

    pub(crate) fn provider(self) -> &'static str {
        match self {
            Self::Host => "roce",
            Self::Left | Self::Right => "ibverbs",
        }
    }
}

/// Programs that run in the guests and on this host; `rxe` needs none of them.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Programs {
    /// The `catchment` command
    #[arg(long, value_name = "FILE")]
    pub(crate) catchment: PathBuf,
    /// The conformance suite of the ibverbs provider
    #[arg(long, value_name = "FILE")]
    pub(crate) conformance: PathBuf,
    /// The tests of the error messages of the ibverbs provider
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: PathBuf,
    /// The tests of sender and receiver over ibverbs
    #[arg(long, value_name = "FILE")]
    pub(crate) status_byte: PathBuf,
    /// The tests of the duplex channel over ibverbs
    #[arg(long, value_name = "FILE")]
    pub(crate) channel: PathBuf,
    /// The tests of the mechanisms to compare with over ibverbs
    #[arg(long, value_name = "FILE")]
    pub(crate) mechanisms: PathBuf,
    /// The conformance suite through an agent over ibverbs
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: PathBuf,
    /// The conformance suite through two agents over ibverbs
    #[arg(long, value_name = "FILE")]
    pub(crate) agents: PathBuf,
}

pub(crate) struct Lab {
    kernel: Kernel,
    cache: PathBuf,
    pub(crate) programs: Programs,
    clip: Option<Clip>,
    folders: u32,
    scratch: TempDir,
    guests: [Option<Guest>; 2],
    boots: u32,
    /// The server that starts programs on this host, and this process.
    host: (SocketAddr, Arc<OwnedFd>),
    peer: Option<Peer>,
    /// Packets checked by peers that are gone.
    checked: u64,
}

/// What a case needs to be the kernel's peer itself: `guest/agent.py` in the first guest, and our end
/// of the wire for each version of IP.
struct Peer {
    agent: End,
    /// By version.
    wires: [Wire; 2],
}

impl Peer {
    fn checked(&self) -> u64 {
        self.wires.iter().map(|wire| wire.received).sum()
    }
}

impl Lab {
    /// Makes a lab, whose guests boot when needed. The calling thread must outlive it.
    pub(crate) fn new(kernel: Kernel, cache: PathBuf, programs: Programs) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        thread::spawn(move || server::serve(&listener));
        let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(Self {
            clip: None,
            kernel,
            cache,
            programs,
            folders: 0,
            scratch: tempfile::tempdir()?,
            guests: [None, None],
            boots: 0,
            host: (address, Arc::new(this_process)),
            peer: None,
            checked: 0,
        })
    }

    pub(crate) fn peer(&mut self, version: IpVersion) -> Result<(&Guest, &mut End, &mut Wire)> {
        if self.peer.is_none() {
            self.peer = Some(Peer {
                agent: End::new(self.guest(0)?.start(&Start::agent(), Output::Kept)?),
                wires: [Wire::open(IpVersion::V4)?, Wire::open(IpVersion::V6)?],
            });
        }
        let (Some(guest), Some(peer)) = (&self.guests[0], &mut self.peer) else {
            bail!("no guest");
        };
        Ok((guest, &mut peer.agent, &mut peer.wires[version as usize]))
    }

    fn forget_peer(&mut self) {
        self.checked += self.peer.take().as_ref().map_or(0, Peer::checked);
    }

    pub(crate) fn packets_checked(&self) -> u64 {
        self.checked + self.peer.as_ref().map_or(0, Peer::checked)
    }

    pub(crate) fn clip(&mut self) -> Result<&Clip> {
        if self.clip.is_none() {
            self.clip = Some(Clip::make(&self.cache)?);
        }
        self.clip.as_ref().context("no clip")
    }

    pub(crate) fn start(&mut self, site: Site, start: &Start) -> Result<Process> {
        self.forget_peer();
        let seat = match site {
            Site::Left => 0,
            Site::Right => 1,
            Site::Host => return self.start_here(start),
        };
        self.guest(seat)?.start(start, Output::Kept)
    }

    pub(crate) fn run(&mut self, site: Site, words: &[&str], limit: Duration) -> Result<Finished> {
        let start = Start::like_here(words.iter().copied());
        let finished = self.start(site, &start)?.wait(limit)?;
        finished.success().with_context(|| format!("`{}` at {site:?}", words.join(" ")))
    }

    pub(crate) fn end(&mut self, site: Site, version: IpVersion) -> Result<End> {
        self.end_of_kind(site, version, Kind::Connection)
    }

    pub(crate) fn end_of_kind(
        &mut self,
        site: Site,
        version: IpVersion,
        kind: Kind,
    ) -> Result<End> {
        let lab = shell::this_program()?.display().to_string();
        let device = site.address(version).to_string();
        let words = [&lab, "end", site.provider(), &device];
        let start = Start::like_here(words).with_input();
        let mut end = End::new(self.start(site, &start)?);
        let made = end.make(kind);
        made.with_context(|| format!("the end at {site:?}"))?;
        Ok(end)
    }

    /// Ends the guests; they boot again when needed.
    pub(crate) fn forget_guests(&mut self) {
        self.forget_peer();
        for guest in &self.guests {
            if let Some(guest) = guest.as_ref().filter(|guest| guest.has_ended()) {
                eprintln!("a guest ended; its console:\n{}", guest.console());
            }
        }
        self.guests = [None, None];
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    pub(crate) fn folder(&mut self, site: Site) -> PathBuf {
        self.folders += 1;
        let parent = match site {
            // A guest keeps what it writes in memory.
            Site::Left | Site::Right => Path::new("/run"),
            Site::Host => self.scratch.path(),
        };
        parent.join(format!("out-{}", self.folders))
    }

    fn start_here(&self, start: &Start) -> Result<Process> {
        let (address, this_process) = &self.host;
        // The program ends with this process, however that ends.
        let with_us = ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned);
        let start = Start {
            words: with_us.into_iter().chain(start.words.clone()).collect(),
            ..start.clone()
        };
        Process::start(*address, Arc::clone(this_process), &start, Output::Kept)
    }

    pub(crate) fn guest(&mut self, seat: usize) -> Result<&mut Guest> {
        let place = self.guests.get_mut(seat).context("no such guest")?;
        if place.as_ref().is_none_or(Guest::has_ended) {
            ensure!(
                self.boots < BOOTS_MAX,
                "the guests have booted {BOOTS_MAX} times, which is the limit"
            );
            self.boots += 1;
            // Release the network devices of a guest that ended before the next one takes them.
            *place = None;
            let machine = Machine::usual(&self.cache, SEATS[seat])?;
            let guest = Guest::boot(&self.kernel, &machine)?;
            let boot = guest.boot.as_secs_f64();
            eprintln!("guest {} is up after {boot:.1} s", seat + 1);
            *place = Some(guest);
        }
        place.as_mut().context("no such guest")
    }
}
