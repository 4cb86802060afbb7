//! The same events over TCP: a stream for each source, frames one after the other.
use super::talk::{
    Begun, Came, Log, Report, STAMP_BYTES, SourceJob, begin, events, note, noted, obey, say,
    say_json, sleep_until, stamp, wait_for_end,
};
use crate::sys;
use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

pub(super) fn collect(listen: &str, frame_bytes: usize) -> Result<()> {
    let log = Log::default();
    let listener = TcpListener::bind(listen)?;
    say(&listener.local_addr()?.to_string())?;
    let noted = Arc::clone(&log);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let noted = Arc::clone(&noted);
            // A stream that ends has nothing more to say.
            std::thread::spawn(move || take(stream, frame_bytes, &noted).ok());
        }
    });
    obey(&log, || Report {
        bytes: super::talk::taken(&log).len() as u64 * frame_bytes as u64,
        ..Report::default()
    })
}

fn take(mut stream: TcpStream, frame_bytes: usize, log: &Log) -> Result<()> {
    let mut frame = vec![0; frame_bytes];
    loop {
        stream.read_exact(&mut frame)?;
        let stamp = frame.first_chunk::<STAMP_BYTES>().context("a frame has its stamp")?;
        log.lock().unwrap_or_else(PoisonError::into_inner).push(Came::now(*stamp));
    }
}

pub(super) fn send(job: &SourceJob) -> Result<()> {
    let events = events(job)?;
    let mut stream = TcpStream::connect(&job.collector)?;
    let control = job.congestion.as_deref().context("a congestion control")?;
    rustix::net::sockopt::set_tcp_congestion(&stream, control)
        .with_context(|| format!("the kernel has no {control} here"))?;
    say("ready")?;
    let begin_ns = begin()?;
    let cpu_before_ns = sys::process_cpu_ns();
    let (device, frame_bytes) = (job.device, job.frame_bytes);
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&sent);
    let begun = Begun::default();
    let notes = Arc::clone(&begun);
    std::thread::spawn(move || -> Result<()> {
        let mut frame = vec![0x5a; frame_bytes];
        for (index, event) in events.iter().enumerate() {
            sleep_until(begin_ns + event.at_ns);
            note(&notes);
            for number in 0..event.frames {
                frame[..STAMP_BYTES].copy_from_slice(&stamp(device, index, number));
                stream.write_all(&frame)?;
                counted.fetch_add(frame_bytes as u64, Ordering::Relaxed);
            }
        }
        // The stream stays open until the process ends.
        loop {
            std::thread::park();
        }
    });
    wait_for_end()?;
    let cpu_ns = sys::process_cpu_ns() - cpu_before_ns;
    let bytes = sent.load(Ordering::Relaxed);
    say_json(&Report { cpu_ns, bytes, begun_ns: noted(&begun), ..Report::default() })?;
    std::process::exit(0);
}
