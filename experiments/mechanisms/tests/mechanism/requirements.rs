//! Requirements with numbers: what is posted, how small queues may be, how threads wait.
use super::suite::*;
use super::*;
use catchment_probe::trace::{Kind, Posted, Requests, Trace};
use catchment_verbs::{CqError, PostFailure};
use std::sync::Arc;
use std::time::Duration;

const SHAPE: Shape = Shape { blocks: 3, payload_bytes: 64 };
/// Blocks moved in lockstep.
const BLOCKS: u64 = 3_000;

type EndsOf<M> = Ends<<M as Mechanism>::Sender, <M as Mechanism>::Receiver>;

/// Both ends of a mechanism, and what each posts.
fn traced_ends<M: Mechanism>(mechanism: &M) -> (EndsOf<M>, [Arc<Trace>; 2]) {
    let [(source, out), (collector, back)] = ports(mechanism).map(|port| traced(port, 16));
    (join(mechanism, [source, collector]), [out, back])
}

/// Moves [`BLOCKS`] in lockstep and returns what both ends posted for them.
fn posted<M: Mechanism>(mechanism: &M) -> ([Requests; 2], [Counts; 2]) {
    let (mut ends, traces) = traced_ends(mechanism);
    lockstep(&mut ends, 0..BLOCKS);
    let counts = [ends.sender.counts(), ends.receiver.counts()];
    (traces.map(|trace| trace.requests()), counts)
}

/// Three messages for each block: where it may go, the block, that it is there.
#[test]
fn s1_24_rendezvous_has_three_interactions() {
    let ([out, back], counts) = posted(&Rendezvous::new(SHAPE));
    assert_eq!((out.writes, out.sends), (BLOCKS, BLOCKS));
    assert_eq!((out.reads, out.write_imms), (0, 0));
    // Slots are announced ahead: those of the last blocks already for the next ones.
    let ahead = u64::from(SHAPE.blocks);
    assert!((BLOCKS..=BLOCKS + ahead).contains(&back.sends), "{back:?}");
    assert_eq!(back.messages(), back.sends);
    assert_eq!(counts[0].interactions, 2 * BLOCKS);
    assert_eq!(counts[1].interactions, back.sends);
    let all = counts[0].interactions + counts[1].interactions;
    assert_eq!(all / BLOCKS, 3);
}

/// A WRITE with an immediate, and an acknowledgement for each block.
#[test]
fn s1_4_sw_paper_has_two_interactions() {
    let ([out, back], counts) = posted(&SwPaper::new(SHAPE));
    assert_eq!((out.write_imms, out.messages()), (BLOCKS, BLOCKS));
    assert_eq!((out.signaled, out.calls), (BLOCKS, BLOCKS));
    assert_eq!(back.sends, BLOCKS);
    assert_eq!(back.writes, back.signaled, "empty ones, to free the queue");
    assert!(back.writes <= BLOCKS / 60);
    assert_eq!(counts[0].interactions + counts[1].interactions, 2 * BLOCKS);
    // One by one.
    assert_eq!(back.receives, BLOCKS + u64::from(SHAPE.blocks));
    assert_eq!(back.receive_calls, back.receives);
    // The last acknowledgements may not have been taken.
    assert!((BLOCKS..=BLOCKS + 3).contains(&out.receives), "{out:?}");
}

#[test]
fn s1_4_the_immediates_of_sw_paper_name_position_and_length() {
    let (mut ends, [out, _]) = traced_ends(&SwPaper::new(SHAPE));
    lockstep(&mut ends, 0..4);
    let first: Vec<_> = out.first().iter().map(|p| (p.kind, p.imm)).collect();
    assert_eq!(first, [0, 1, 2, 0].map(|position| (Kind::WriteImm, Some(position << 30 | 64))));
}

/// The status bytes: a WRITE of the block and one of its status, and a READ for every N blocks.
#[test]
fn s1_12_s1_14_the_papers_status_byte_has_one_interaction_and_a_bit() {
    let (mut ends, traces) = traced_ends(&PaperStatusByte::new(SHAPE));
    lockstep(&mut ends, 0..BLOCKS);
    let counts = [ends.sender.counts(), ends.receiver.counts()];
    demand_linked_writes(&traces[0].first());
    let [out, back] = traces.map(|trace| trace.requests());
    assert_eq!(out.writes, 2 * BLOCKS);
    assert!(out.reads >= BLOCKS / 3 - 1);
    assert_eq!(counts[0].interactions, BLOCKS + out.reads);
    assert_eq!(out.calls, BLOCKS + out.reads, "two linked WRITEs are one call");
    assert_eq!(out.signaled, out.calls);
    assert_eq!((back.messages(), back.receives), (0, 0));
    assert_eq!(counts[1].interactions, 0);
}

/// A call posts the block, unsignaled, and behind it one byte, inline and signaled; or it is a READ.
fn demand_linked_writes(first: &[Posted]) {
    let mut calls =
        first.chunk_by(|a, b| a.call == b.call).filter(|call| call[0].kind == Kind::Write);
    // The last call may be cut off where the trace ends.
    for call in calls.by_ref().take(5) {
        let [block, status] = call else { panic!("{call:?}") };
        assert_eq!((block.kind, block.signaled, block.bytes), (Kind::Write, false, 3 + 64));
        assert_eq!((status.kind, status.signaled, status.bytes), (Kind::Write, true, 1));
        assert!(status.is_inline && !block.is_inline, "{call:?}");
    }
    assert!(calls.next().is_some(), "{first:?}");
}

/// One WRITE a block, and a credit for every N/4 blocks or when there is nothing to do.
#[test]
fn sw_fair_posts_one_request_a_block_and_receives_in_lists() {
    for form in [Form::WriteImm, Form::Selective, Form::Tail] {
        let shape = Shape { blocks: 16, payload_bytes: 64 };
        let ([out, back], counts) = posted(&SwFair::new(shape, form));
        assert_eq!(out.messages(), BLOCKS);
        assert_eq!(out.calls, BLOCKS);
        assert!(out.signaled <= BLOCKS / 8 + 1, "{out:?}");
        assert_eq!(back.messages(), back.writes, "nothing but credits");
        assert!(back.writes <= BLOCKS, "{back:?}");
        assert_eq!(counts[1].interactions, back.writes);
        let has_imm = form != Form::Tail;
        let receives = if has_imm { BLOCKS + 16 } else { 0 };
        assert!(back.receives >= receives && back.receives <= receives + 8);
        if has_imm {
            assert_eq!(back.receive_calls - 24, (back.receives - 24) / 8);
        }
    }
}

/// Blocks that have all arrived before the receiver polls come back with a quarter of the credits.
#[test]
fn sw_fair_gives_credit_for_a_quarter_of_the_window() {
    for form in [Form::WriteImm, Form::Selective, Form::Tail] {
        let shape = Shape { blocks: 16, payload_bytes: 64 };
        let (Ends { mut sender, mut receiver, .. }, [_, back]) =
            traced_ends(&SwFair::new(shape, form));
        for packet in 0..16 {
            let claim = sender.claim(0, 64).unwrap();
            sender.commit(claim, packet).unwrap();
        }
        let mut wait = Patience::new(WaitPolicy::Yield);
        let all: Vec<_> = (0..16).map(|_| take(&mut receiver, &mut wait)).collect();
        // While it waited for the first it was idle.
        let before = back.requests().writes;
        all.into_iter().for_each(drop);
        assert_eq!(back.requests().writes - before, 4, "{form:?}");
    }
}

/// S1.20, Figures 16 and 17: these sizes and no larger ones, for many blocks.
#[test]
fn s1_20_sw_paper_works_with_the_queues_of_the_paper() {
    let sw = SwPaper::new(SHAPE);
    let (source, collector) = (sw.sender_needs().unwrap(), sw.receiver_needs().unwrap());
    assert_eq!((source.queues.max_recv_wr, source.queues.recv_cqe), (3, 3));
    assert_eq!(source.queues.send_cqe, 3);
    assert_eq!(source.queues.completion_queues(), 2);
    let receiver = collector.queues;
    assert_eq!((receiver.max_recv_wr, receiver.send_cqe), (3, 3));
    assert_eq!(receiver.completion_queues(), 1);
    assert!(crate::context().caps().strict_capacity);
    let ends = ports(&sw);
    for port in &ends {
        // What the provider gave, not what was asked for.
        assert_eq!((port.send_cq.capacity(), port.recv_cq.capacity()), (3, 3));
    }
    let blocks = scaled(5_000);
    random_blocks(pair(&sw), blocks, WaitPolicy::Yield, true);
    lockstep(&mut join(&sw, ends), 0..blocks);
    did("S1.20", blocks, "random blocks of sw-paper, and as many in lockstep");
}

/// S1.20, Figures 16 and 17: send queue 2 and completion queue 1 at the sender; the receiver posts
/// nothing, and its queue pair has the one place that verbs demand.
#[test]
fn s1_20_the_papers_status_byte_works_with_the_queues_of_the_paper() {
    let sb = PaperStatusByte::new(SHAPE);
    let queues = |needs: EndNeeds| {
        let queues = needs.queues;
        [queues.max_send_wr, queues.max_recv_wr, queues.send_cqe, queues.recv_cqe]
    };
    assert_eq!(queues(sb.sender_needs().unwrap()), [2, 0, 1, 0]);
    assert_eq!(queues(sb.receiver_needs().unwrap()), [1, 0, 1, 0]);
    let blocks = scaled(5_000);
    lockstep(&mut pair(&sb), 0..blocks);
    did("S1.20", blocks, "blocks of sb-paper in lockstep");
    if !crate::context().caps().strict_capacity {
        return;
    }
    let ports = changed(&sb, |source, _| source.queues.max_send_wr = 1);
    let Ends { mut sender, receiver: _receiver, .. } = join(&sb, ports);
    let claim = sender.claim(0, 64).unwrap();
    let EndError::Post(error) = sender.commit(claim, 0).unwrap_err() else {
        panic!("another error")
    };
    assert_eq!((error.index, error.reason), (1, PostFailure::QueueFull(1)));
}

/// The ends of a mechanism whose needs were changed.
fn changed<M: Mechanism>(
    mechanism: &M,
    change: impl Fn(&mut EndNeeds, &mut EndNeeds),
) -> [Port; 2] {
    let (mut source, mut collector) =
        (mechanism.sender_needs().unwrap(), mechanism.receiver_needs().unwrap());
    change(&mut source, &mut collector);
    [open(&host(), &source), open(&host(), &collector)]
}

#[test]
fn s1_20_one_receive_less_is_refused_with_the_capacity() {
    let sw = SwPaper::new(SHAPE);
    for at_sender in [true, false] {
        let mut ports = changed(&sw, |source, collector| {
            let end = if at_sender { source } else { collector };
            end.queues.max_recv_wr = 2;
        });
        let [out, back] = connect(&mut ports);
        let [source, collector] = ports;
        let error = match at_sender {
            true => sw.sender(source, &back).err().unwrap(),
            false => sw.receiver(collector, &out).err().unwrap(),
        };
        let SetupError::Receives(error) = error else { panic!("{error}") };
        assert_eq!(error.reason, PostFailure::QueueFull(2));
    }
}

fn fill(sender: &mut SwPaperSender, blocks: u64) -> Result<(), EndError> {
    for packet in 0..blocks {
        match sender.claim(0, 64) {
            Ok(claim) => sender.commit(claim, packet)?,
            Err(ClaimError::End(error)) => return Err(error),
            Err(error) => panic!("{error}"),
        }
    }
    Ok(())
}

#[test]
fn s1_20_one_send_less_is_refused_with_the_capacity() {
    let sw = SwPaper::new(SHAPE);
    let ports = changed(&sw, |source, _| source.queues.max_send_wr = 2);
    let Ends { mut sender, receiver: _receiver, .. } = join(&sw, ports);
    let EndError::Post(error) = fill(&mut sender, 3).unwrap_err() else { panic!("another error") };
    assert_eq!(error.reason, PostFailure::QueueFull(2));
}

/// Blocks that complete at the receiver and are not polled.
#[test]
fn s1_20_one_completion_less_overruns_at_the_receiver() {
    overruns(
        |_, collector| &mut collector.queues.send_cqe,
        |_, receiver, blocks, _| {
            let mut kept = Vec::new();
            (0..=blocks).find_map(|_| receiver.take().map(|block| kept.extend(block)).err())
        },
    );
}

/// Sends that complete and are not polled.
#[test]
fn s1_20_one_completion_less_overruns_at_the_sender() {
    overruns(
        |source, _| &mut source.queues.send_cqe,
        |sender, _, blocks, _| (0..=blocks).find_map(|_| sender.progress().err()),
    );
}

/// Acknowledgements that arrive and are not polled.
#[test]
fn s1_20_one_completion_less_overruns_at_the_thread_for_acknowledgements() {
    overruns(
        |source, _| &mut source.queues.recv_cqe,
        |sender, receiver, blocks, pause| {
            let mut wait = Patience::new(WaitPolicy::Yield);
            (0..blocks).for_each(|_| drop(take(receiver, &mut wait)));
            pause();
            (0..=blocks).find_map(|_| sender.progress().err())
        },
    );
}

/// The window of the paper, or the next larger one for which the provider has a completion queue of
/// exactly one entry less: RDMA devices round up, and a queue that got longer takes what was to be
/// too much. What it got is what [`Cq::capacity`] says.
fn window() -> u32 {
    let context = crate::context();
    let exact = |entries| context.create_cq(entries, None).unwrap().capacity() == entries;
    let found = (SHAPE.blocks..2 * 64).find(|blocks| exact(blocks - 1));
    found.expect("a completion queue of which one entry less is exactly one less")
}

/// Polls once per completion and once more, and returns the error. It may pause before each poll.
type Poll = fn(&mut SwPaperSender, &mut SwPaperReceiver, u32, &dyn Fn()) -> Option<EndError>;

/// Fills all blocks, waits until they have completed, and checks for the error. No thread may poll
/// meanwhile, so how long that takes is unknown: it waits longer each time.
fn overruns(
    entries: impl for<'a> Fn(&'a mut EndNeeds, &'a mut EndNeeds) -> &'a mut u32,
    poll: Poll,
) {
    let blocks = window();
    let sw = SwPaper::new(Shape { blocks, ..SHAPE });
    let error = (4..14).find_map(|power| {
        let ports = changed(&sw, |source, collector| *entries(source, collector) -= 1);
        let Ends { mut sender, mut receiver, .. } = join(&sw, ports);
        fill(&mut sender, blocks.into()).unwrap();
        // Until the provider has moved what is posted, which only polling would show.
        let pause = || std::thread::sleep(Duration::from_millis(1 << power));
        pause();
        let error = poll(&mut sender, &mut receiver, blocks, &pause);
        if error.is_some() {
            // Linux 6.1 keeps a reference to a queue pair of Soft-RoCE that overran as a receiver,
            // and its destruction waits 50 s for that: let the end of the process do it.
            std::mem::forget((sender, receiver));
        }
        error
    });
    assert_eq!(error, Some(EndError::Cq(CqError::Overrun(blocks - 1))));
}

#[test]
fn s1_16_every_mechanism_waits_by_every_policy() {
    struct Moving(WaitPolicy);
    impl Visit for Moving {
        type Out = ();

        fn visit<M: Mechanism>(self, mechanism: M) {
            random_blocks(pair(&mechanism), 60, self.0, false);
        }
    }
    for policy in [
        WaitPolicy::Spin,
        WaitPolicy::Yield,
        WaitPolicy::Sleep(Duration::from_micros(20)),
        WaitPolicy::Doorbell { spin_polls: 4 },
    ] {
        protocols().for_each(|protocol| protocol.with(SHAPE, Moving(policy)));
        random_blocks(pair(&SwPaper::new(SHAPE)), 60, policy, true);
    }
}
