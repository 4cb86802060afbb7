//! The guest's side: starts programs for the host.
use super::frame::Frame;
use super::{Ended, Start};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time after the end of a program for the rest of its output: a process that it left behind may hold
/// its stdout open forever.
const OUTPUT_LIMIT: Duration = Duration::from_secs(2);

pub(crate) fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (connection, _) = listener.accept()?;
        thread::spawn(move || {
            if let Err(error) = run(connection) {
                eprintln!("LAB: a connection ended: {error}");
            }
        });
    }
}

fn run(connection: TcpStream) -> io::Result<()> {
    connection.set_nodelay(true)?;
    let mut orders = BufReader::new(connection.try_clone()?);
    let Some(Frame::Start(start)) = Frame::read(&mut orders)? else { return Ok(()) };
    let reports = Arc::new(Mutex::new(connection));
    let ended = match spawn(&start) {
        Ok(child) => watch(child, orders, &reports)?,
        Err(error) => Ended::NotStarted(format!("cannot start {:?}: {error}", start.words)),
    };
    report(&reports, &Frame::Ended(ended))
}

/// Starts the program in a process group of its own, so that signals also reach its children.
fn spawn(start: &Start) -> io::Result<Child> {
    let [program, arguments @ ..] = &start.words[..] else {
        return Err(io::Error::other("no program was named"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(start.environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .stdin(if start.has_input { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if !start.folder.is_empty() {
        command.current_dir(&start.folder);
    }
    command.spawn()
}

fn watch(mut child: Child, orders: BufReader<TcpStream>, reports: &Reports) -> io::Result<Ended> {
    let group = Group::of(&child);
    let (done, all_done) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        pass_on(stdout, Frame::Stdout, reports, &done);
    }
    if let Some(stderr) = child.stderr.take() {
        pass_on(stderr, Frame::Stderr, reports, &done);
    }
    drop(done);
    let (ordered, input) = (Arc::clone(&group), child.stdin.take());
    thread::spawn(move || obey(orders, &ordered, input));
    let status = child.wait();
    group.forget();
    // The channel closes when both outputs have ended.
    while all_done.recv_timeout(OUTPUT_LIMIT).is_ok() {}
    status.map(ended)
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Status(code),
        (None, signal) => Ended::Signal(signal.unwrap_or_default()),
    }
}

type Reports = Arc<Mutex<TcpStream>>;

fn report(reports: &Reports, frame: &Frame) -> io::Result<()> {
    let mut stream = reports.lock().unwrap_or_else(PoisonError::into_inner);
    frame.write(&mut *stream)?;
    stream.flush()
}

fn pass_on(
    mut from: impl Read + Send + 'static,
    kind: fn(Vec<u8>) -> Frame,
    reports: &Reports,
    done: &Sender<()>,
) {
    let (reports, done) = (Arc::clone(reports), done.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(bytes @ 1..) = from.read(&mut buffer) {
            if report(&reports, &kind(buffer[..bytes].to_vec())).is_err() {
                break;
            }
        }
        drop(done);
    });
}

/// Executes the orders of the host; kills the program when the host is gone.
fn obey(mut orders: BufReader<TcpStream>, group: &Group, mut input: Option<ChildStdin>) {
    loop {
        match Frame::read(&mut orders) {
            Ok(Some(Frame::Signal(number))) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    group.signal(signal);
                }
            }
            Ok(Some(Frame::Input(text))) => {
                // A program may have closed its input.
                let _ = input.as_mut().map(|input| input.write_all(text.as_bytes()));
            }
            Ok(_) | Err(_) => break,
        }
    }
    group.signal(Signal::KILL);
}

/// A process group, until its leader has been reaped.
struct Group(Mutex<Option<Pid>>);

impl Group {
    fn of(child: &Child) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Pid::from_child(child)))))
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended meanwhile.
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Forgets the group: once the program has ended, its number may be reused.
    fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
