//! How the two sides of a measurement over a network find each other: over TCP.
use super::super::job::{Job, READY, Side};
use anyhow::{Context, Result};
use std::{
    net::{TcpListener, TcpStream},
    time::Duration,
};

/// Where the receiver listens: the port of RDMA's own measuring tools.
const PORT: u16 = 18515;
/// A side that says nothing has failed after this and the time of the measurement.
const PATIENCE: Duration = Duration::from_secs(20);

/// The connection to the other side.
pub(super) type Control = crate::control::Control<TcpStream>;

/// Meets the other side.
pub(super) fn connect(job: &Job) -> Result<Control> {
    let stream = match job.side {
        Side::Receiver => {
            let listener = TcpListener::bind((job.own(), PORT))?;
            println!("{READY}");
            listener.accept()?.0
        }
        Side::Sender => TcpStream::connect((job.peer(), PORT)).context("the other side")?,
    };
    stream.set_nodelay(true)?;
    let patience = PATIENCE + Duration::from_secs_f64(job.seconds);
    stream.set_read_timeout(Some(patience))?;
    Ok(Control::new(stream))
}
