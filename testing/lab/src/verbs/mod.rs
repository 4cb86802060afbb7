//! The second part of the lab: our programs over libibverbs, on RDMA devices of the kernel.
//!
//! Three hosts stand at one switch: this one, which has no RDMA device and speaks RoCE in user
//! space, and one or two guests, each with a kernel and an RDMA device of its own. So what crosses
//! between any two crosses a network. A case says at which [`Site`] a program runs.

pub mod clip;
pub mod command;
pub mod datagrams;
pub mod faults;
pub mod messages;
pub mod operations;
pub mod suites;
pub mod transfers;

use crate::end::Kind;
use crate::end::client::End;
use crate::remote::process::{Finished, Output, Process};
use crate::remote::{Start, server};
use crate::vm::guest::{Guest, Machine};
use crate::vm::kernel::Kernel;
use crate::vm::network::{HOST, IpVersion, SEATS};
use anyhow::{Context as _, Result, ensure};
use clip::Clip;
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// After a case that failed the guests boot again, so that it cannot harm the next one. But not for
/// ever: when everything fails, one such error is as good as a hundred.
const BOOTS_MAX: u32 = 12;

/// A case of this part of the lab.
pub type Case = crate::report::Case<Lab>;

/// A host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// This one, in the lab's network namespace, without RDMA device.
    Host,
    /// The first guest.
    Left,
    /// The second guest.
    Right,
}

impl Site {
    /// Its address on the network for RoCE.
    #[must_use]
    pub fn address(self, version: IpVersion) -> IpAddr {
        let addresses = match self {
            Self::Host => HOST,
            Self::Left => SEATS[0].addresses,
            Self::Right => SEATS[1].addresses,
        };
        addresses.of(version)
    }

    /// What moves bytes there.
    #[must_use]
    pub fn provider(self) -> &'static str {
        match self {
            Self::Host => "roce",
            Self::Left | Self::Right => "ibverbs",
        }
    }
}

impl fmt::Display for Site {
    /// What it stands for in the name of a case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.provider())
    }
}

/// Programs that run in the guests as on this host.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This one.
    pub lab: PathBuf,
    /// The command.
    pub catchment: PathBuf,
    /// The conformance suite of the provider.
    pub conformance: PathBuf,
    /// The tests of what the provider says when something is wrong.
    pub faults: PathBuf,
    /// The tests of the mechanisms over the provider.
    pub mechanisms: PathBuf,
}

/// What a case works with.
pub struct Lab {
    kernel: Kernel,
    cache: PathBuf,
    programs: Programs,
    clip: Clip,
    folders: u32,
    /// For what programs of this host write.
    scratch: TempDir,
    guests: [Option<Guest>; 2],
    boots: u32,
    /// The server for programs of this host, and this process.
    host: (SocketAddr, Arc<OwnedFd>),
}

impl Lab {
    /// A lab whose guests boot when they are needed. The calling thread must live as long.
    ///
    /// # Errors
    /// When this host cannot start programs for it.
    pub fn new(kernel: Kernel, cache: PathBuf, programs: Programs) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        thread::spawn(move || server::serve(&listener));
        let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(Self {
            clip: Clip::make(&cache)?,
            kernel,
            cache,
            programs,
            folders: 0,
            scratch: tempfile::tempdir()?,
            guests: [None, None],
            boots: 0,
            host: (address, Arc::new(this_process)),
        })
    }

    /// Starts a program.
    ///
    /// # Errors
    /// When a guest is needed and does not come up.
    pub fn start(&mut self, site: Site, start: &Start) -> Result<Process> {
        let seat = match site {
            Site::Left => 0,
            Site::Right => 1,
            Site::Host => return self.start_here(start),
        };
        self.guest(seat)?.start(start, Output::Kept)
    }

    /// Runs a program, which must succeed.
    ///
    /// # Errors
    /// When it does not, or not in time.
    pub fn run(&mut self, site: Site, words: &[&str], limit: Duration) -> Result<Finished> {
        let start = Start::like_here(words.iter().copied());
        let finished = self.start(site, &start)?.wait(limit)?;
        finished
            .success()
            .with_context(|| format!("`{}` at {site:?}", words.join(" ")))
    }

    /// Starts an end over the provider of this site, at its address of this version.
    ///
    /// # Errors
    /// When the end cannot open its device.
    pub fn end(&mut self, site: Site, version: IpVersion) -> Result<End> {
        self.end_of_kind(site, version, Kind::Connection)
    }

    /// The same with a queue pair and memory of this kind.
    ///
    /// # Errors
    /// When the end cannot open its device, or the device has nothing of the kind.
    pub fn end_of_kind(&mut self, site: Site, version: IpVersion, kind: Kind) -> Result<End> {
        let lab = self.programs.lab.display().to_string();
        let device = site.address(version).to_string();
        let words = [&lab, "end", site.provider(), &device];
        let start = Start::like_here(words).listening();
        End::of_kind(self.start(site, &start)?, kind)
            .with_context(|| format!("the end at {site:?}"))
    }

    /// Ends the guests; they boot when they are needed.
    fn forget_guests(&mut self) {
        for guest in &self.guests {
            if let Some(guest) = guest.as_ref().filter(|guest| guest.has_ended()) {
                eprintln!("a guest ended; its console says:\n{}", guest.console());
            }
        }
        self.guests = [None, None];
    }

    /// A file that every site can read.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// A new folder for frames, at this site.
    fn folder(&mut self, site: Site) -> PathBuf {
        self.folders += 1;
        let parent = match site {
            // What guests write lies in their memory.
            Site::Left | Site::Right => Path::new("/run"),
            Site::Host => self.scratch.path(),
        };
        parent.join(format!("out-{}", self.folders))
    }

    fn start_here(&self, start: &Start) -> Result<Process> {
        let (address, this_process) = &self.host;
        // Whatever ends this process ends its programs.
        let with_us = ["setpriv", "--pdeathsig", "KILL"].map(str::to_owned);
        let start = Start {
            words: with_us.into_iter().chain(start.words.clone()).collect(),
            ..start.clone()
        };
        Process::start(*address, Arc::clone(this_process), &start, Output::Kept)
    }

    /// A guest that runs.
    fn guest(&mut self, seat: usize) -> Result<&mut Guest> {
        let place = self.guests.get_mut(seat).context("no such guest")?;
        if place.as_ref().is_none_or(Guest::has_ended) {
            ensure!(
                self.boots < BOOTS_MAX,
                "the guests have booted {BOOTS_MAX} times"
            );
            self.boots += 1;
            // One that ended gives its network devices back before the next one takes them.
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

/// All cases. Of a test program, only tests that are wanted.
///
/// # Errors
/// When a test program does not say what tests it has.
pub fn all(programs: &Programs, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    suites::add(&mut cases, programs, is_wanted)?;
    operations::add(&mut cases);
    datagrams::add(&mut cases);
    transfers::add(&mut cases);
    faults::add(&mut cases);
    messages::add(&mut cases);
    let cases = cases.into_iter();
    Ok(cases.map(|case| case.or_else(Lab::forget_guests)).collect())
}
