//! The whole way of a message over shared memory makes no system call (S3.7): not the program's thread, none
//! of the three of a link, at neither end.
//!
//! A process connects two links that poll, and then forbids all its threads every call but two (seccomp,
//! with its filter on all threads at once): the kernel kills the process at the first other one. The two
//! are what a thread calls that meets another one in the middle of something: futex of a lock that both
//! want, such as the two threads that post to one queue pair, and sched_yield of a queue whose other side
//! was interrupted. The kernel counts how often a thread slept there: hardly ever.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    unsafe_code,
    reason = "a test fails by panicking, and seccomp(2) has no safe form"
)]
use catchment_channel::{ChannelShape, Tag};
use catchment_duplex::{Control, Link, LinkOptions, Waiting};
use catchment_probe::child::{Child, line_to_say, role, say};
use catchment_provider_shm::ShmProvider;
use catchment_verbs::Provider;
use std::mem::offset_of;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

/// Each way; the window turns many times.
const MESSAGES: u64 = 1000;
const WARM_UP: u64 = 128;
const BLOCKS: u32 = 64;
const BYTES: usize = 1024;
const PATIENCE: Duration = Duration::from_secs(300);
const SAID: &str = "all messages went over";

fn pair() -> [Link; 2] {
    let (client, server) = UnixStream::pair().unwrap();
    let options = LinkOptions {
        waiting: Waiting::Poll,
        patience: PATIENCE,
        ..LinkOptions::new(ChannelShape::new(BLOCKS, BYTES as u32))
    };
    let open = || ShmProvider::new().open("shm0").unwrap();
    std::thread::scope(|scope| {
        let server =
            scope.spawn(|| Link::accept(Control::unix(server).unwrap(), open(), &options).unwrap());
        let client = Link::connect(Control::unix(client).unwrap(), open(), &options).unwrap();
        [client, server.join().unwrap()]
    })
}

/// Sends and receives so many messages, as many at a time as the window has room for; false if it fails.
fn talk(link: &mut Link, messages: u64) -> bool {
    let (mut sent, mut came) = (0, 0);
    let mut payload = [0; BYTES];
    while came < messages {
        while sent < messages && sent - came < u64::from(BLOCKS) / 2 {
            payload.fill(sent as u8);
            if link.send(Tag { stream: 0, packet: sent }, &payload, PATIENCE).is_err() {
                return false;
            }
            sent += 1;
        }
        let Ok(Some(message)) = link.receive(PATIENCE) else { return false };
        let mut last = [0];
        let is_whole = message.payload().read_at(BYTES - 1, &mut last).is_ok();
        if !is_whole || last[0] != came as u8 || message.tag().packet != came {
            return false;
        }
        came += 1;
    }
    true
}

/// From now on the kernel kills this process at any call by whatever thread, but futex, sched_yield, and
/// write to standard output, where it says what became of the messages.
fn forbid_system_calls() {
    const STDOUT: u32 = 1;
    let statement =
        |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at as u32);
    let skip_unless = |value: u32, lines: u8| {
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, lines, value)
    };
    let end = |what| statement(libc::BPF_RET | libc::BPF_K, 0, 0, what);
    let (number, first) =
        (offset_of!(libc::seccomp_data, nr), offset_of!(libc::seccomp_data, args));
    let mut filter = [
        load(number),
        skip_unless(libc::SYS_futex as u32, 1),
        end(libc::SECCOMP_RET_ALLOW),
        skip_unless(libc::SYS_sched_yield as u32, 1),
        end(libc::SECCOMP_RET_ALLOW),
        skip_unless(libc::SYS_write as u32, 3),
        // The lower half of the descriptor.
        load(first + if cfg!(target_endian = "big") { 4 } else { 0 }),
        skip_unless(STDOUT, 1),
        end(libc::SECCOMP_RET_ALLOW),
        end(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    rustix::thread::set_no_new_privs(true).unwrap();
    // SAFETY: the program and its statements live until the call has returned; the kernel copies them.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// How often the threads of a process have slept.
fn sleeps(process: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let of_task = |task: io::Result<fs::DirEntry>| {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    tasks.map(of_task).sum()
}

/// Not a test by itself: the process that gets killed.
#[test]
fn strict_process() {
    let Some(role) = role() else { return };
    let [mut client, mut server] = pair();
    let begins = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&begins);
    std::thread::spawn(move || {
        assert!(talk(&mut server, WARM_UP), "before it counts");
        begun.store(true, Ordering::SeqCst);
        let _ = talk(&mut server, MESSAGES);
        // Not even ending is allowed.
        loop {
            std::hint::spin_loop();
        }
    });
    assert!(talk(&mut client, WARM_UP), "before it counts");
    while !begins.load(Ordering::SeqCst) {
        std::hint::spin_loop();
    }
    say(&format!("slept {}", sleeps(std::process::id())));
    forbid_system_calls();
    if role == "careless" {
        let _ = rustix::process::getppid();
    }
    let said = if talk(&mut client, MESSAGES) { SAID } else { "refused" };
    let _ = rustix::io::write(std::io::stdout(), &line_to_say(said));
    loop {
        std::hint::spin_loop();
    }
}

/// Returns how often a thread slept while all messages arrived; nothing if they did not.
fn slept(role: &str) -> Option<u64> {
    let mut child = Child::start("strict_process", role);
    let before: u64 = child.says("slept ").parse().unwrap();
    let all = child.listen().is_some_and(|said| said == SAID);
    all.then(|| sleeps(child.id()) - before)
}

#[test]
fn s3_7_no_thread_makes_a_system_call_for_a_message() {
    let slept_for_locks = slept("careful").expect("a thread made a system call");
    println!("{slept_for_locks} sleeps for {} messages", 2 * MESSAGES);
    assert!(slept_for_locks < 2 * MESSAGES / 20, "{slept_for_locks} sleeps");
    // One call is noticed.
    assert_eq!(slept("careless"), None);
}
