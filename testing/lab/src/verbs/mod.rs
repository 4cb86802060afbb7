//! The second part of the lab: our programs over libibverbs, on RDMA devices of the kernel.
pub(crate) mod clip;
mod command;
mod datagrams;
mod faults;
mod messages;
mod operations;
mod suites;
mod transfers;

use crate::lab::{Case, Programs};
use anyhow::Result;

pub(crate) fn all(programs: &Programs, is_wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    suites::add(&mut cases, programs, is_wanted)?;
    operations::add(&mut cases);
    datagrams::add(&mut cases);
    transfers::add(&mut cases);
    faults::add(&mut cases);
    messages::add(&mut cases);
    Ok(cases)
}
