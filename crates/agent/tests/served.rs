//! What applications of one agent get, and are told of it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod suite;

use catchment_agent::policy::Policy;
use catchment_agent::{Agent, status};
use catchment_conformance::{Options, connected, wait_one};
use catchment_verbs::{Payload, RecvWr, SendOp, SendWr, Success, WcOpcode};
use suite::open;

/// However short the chunks are: who receives a WRITE with immediate is told how long all of it is, once all is there.
#[test]
fn a_write_with_immediate_tells_of_all_its_bytes() {
    const BYTES: usize = 1 << 20;
    let name = format!("imm-{}", std::process::id());
    let text = format!(
        r#"{{"name": "{name}", "chunk_bytes": 4096, "window_bytes": 8192, "applications": [{{"name": "a"}}, {{"name": "b"}}]}}"#
    );
    let _agent = Agent::start(Policy::parse(&text).unwrap()).unwrap();
    let options = Options { bytes: BYTES, ..Options::default() };
    let (mut a, mut b) = connected((open(&name, "a"), &options), (open(&name, "b"), &options));
    a.put(0, &vec![7; BYTES]);
    for bytes in [1, 4096, 4097, 8192, BYTES] {
        b.qp.post_recv(&[RecvWr { wr_id: 9, sges: &[] }]).unwrap();
        let write = SendOp::WriteImm(b.remote(0), 3);
        let sges = [a.sge(0, bytes)];
        a.qp.post_send(&[SendWr::new(1, write, Payload::Sges(&sges))]).unwrap();
        let received = wait_one(&*b.recv_cq).result;
        let expected = Success::plain(WcOpcode::RecvWriteImm, bytes as u64).with_imm(Some(3));
        assert_eq!(received, Ok(expected));
        assert!(b.get(0, bytes) == vec![7; bytes]);
        assert!(wait_one(&*a.send_cq).result.is_ok());
        b.put(0, &vec![0; bytes]);
    }
}

/// Who may have no more than so much has all of it in the end, on a host without others too: the agent wakes when more may go.
#[test]
fn an_application_with_a_maximum_is_served_to_the_end() {
    const BYTES: usize = 1 << 20;
    let name = format!("most-{}", std::process::id());
    let text = format!(
        r#"{{"name": "{name}", "applications": [{{"name": "a", "max_bytes_per_s": 50000000, "cgroup": "/"}}, {{"name": "b"}}]}}"#
    );
    let _agent = Agent::start(Policy::parse(&text).unwrap()).unwrap();
    let options = Options { bytes: BYTES, ..Options::default() };
    let (mut a, b) = connected((open(&name, "a"), &options), (open(&name, "b"), &options));
    for n in 0..8 {
        let sges = [a.sge(0, BYTES)];
        a.qp.post_send(&[SendWr::new(n, SendOp::Write(b.remote(0)), Payload::Sges(&sges))])
            .unwrap();
        assert!(wait_one(&*a.send_cq).result.is_ok());
    }
    let account = |name: &str, agent| {
        status(agent).unwrap().into_iter().find(|account| account.application == name).unwrap()
    };
    assert_eq!(account("a", &name).most_bytes_per_s, Some(5e7));
    // Most of the time one waits for more to be let go.
    assert!(account("a", &name).waited_ns > 0);
    assert_eq!(account("b", &name).waited_ns, 0);
    assert_eq!(account("b", &name).most_bytes_per_s, None);
}
