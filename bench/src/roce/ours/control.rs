//! What the two sides tell each other beside the measurement: lines of JSON over TCP.
use super::super::job::{Job, READY, Side};
use anyhow::{Context, Result};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

/// Where the receiver listens: the port of RDMA's own measuring tools.
const PORT: u16 = 18515;
/// A side that says nothing has failed after this and the time of the measurement.
const PATIENCE: Duration = Duration::from_secs(20);

/// The connection to the other side.
pub(super) struct Control {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Control {
    /// Meets the other side.
    pub(super) fn meet(job: &Job) -> Result<Control> {
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
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Control { stream, reader })
    }

    /// Tells the other side something.
    pub(super) fn say<T: Serialize>(&mut self, what: &T) -> Result<()> {
        let line = serde_json::to_string(what)? + "\n";
        Ok(self.stream.write_all(line.as_bytes())?)
    }

    /// Waits for what the other side says.
    pub(super) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line);
        read.context("waiting for the other side")?;
        serde_json::from_str(&line).with_context(|| format!("the other side said {line:?}"))
    }

    /// Waits until both sides are here.
    pub(super) fn meet_again(&mut self) -> Result<()> {
        self.say(&())?;
        self.hear()
    }
}
