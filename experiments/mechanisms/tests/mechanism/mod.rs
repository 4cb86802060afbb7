//! One suite for every mechanism, over the provider that the test file names.
mod death;
pub mod ends;
mod hostile;
mod many;
mod requirements;
mod suite;

use catchment_mechanisms::paper::PaperStatusByte;
use catchment_mechanisms::rendezvous::Rendezvous;
use catchment_mechanisms::window::fair::*;
use catchment_mechanisms::window::paper::*;
use catchment_mechanisms::*;
use catchment_transfer::WaitPolicy;
use suite::*;

fn status_byte(blocks: u32, payload_bytes: u32, way: Way) -> StatusByte {
    let shape = Shape {
        blocks,
        payload_bytes,
    };
    StatusByte::new(shape, way)
}

/// The ways that the provider has.
fn ways() -> Vec<Way> {
    if crate::context().caps().direct {
        vec![Way::InPlace, Way::Copy]
    } else {
        vec![Way::Copy]
    }
}

#[test]
fn status_byte_moves_random_blocks() {
    for way in ways() {
        random_blocks(&status_byte(32, 3000, way), scaled(100_000));
    }
}

#[test]
fn status_byte_releases_in_any_order() {
    for way in ways() {
        any_order(&status_byte(16, 64, way), scaled(20_000));
        kept_block(&status_byte(4, 64, way));
    }
}

#[test]
fn status_byte_waits_for_a_slow_receiver() {
    for way in ways() {
        slow_receiver(&status_byte(3, 64, way));
    }
}

fn sw_fair(blocks: u32, payload_bytes: u32, form: Form) -> SwFair {
    let shape = Shape {
        blocks,
        payload_bytes,
    };
    SwFair::new(shape, form)
}

/// Blocks enough for a ring of so many to go round twice.
fn some_turns(blocks: u32) -> u64 {
    scaled(3_000).max(2 * u64::from(blocks))
}

/// The forms that the provider has.
fn forms() -> Vec<Form> {
    let mut forms = vec![Form::WriteImm, Form::Selective, Form::Tail];
    forms.extend(crate::context().caps().direct.then_some(Form::TailInPlace));
    forms
}

#[test]
fn sw_fair_moves_random_blocks() {
    for form in forms() {
        random_blocks(&sw_fair(32, 3000, form), scaled(100_000));
    }
}

#[test]
fn sw_fair_with_any_number_of_slots() {
    for form in forms() {
        for blocks in [1, 2, 3, 5, 64, 65, 600] {
            random_blocks(&sw_fair(blocks, 100, form), some_turns(blocks));
        }
    }
}

#[test]
fn sw_fair_releases_in_any_order() {
    for form in forms() {
        any_order(&sw_fair(16, 64, form), scaled(20_000));
        kept_block(&sw_fair(4, 64, form));
    }
}

#[test]
fn sw_fair_waits_for_a_slow_receiver() {
    for form in forms() {
        slow_receiver(&sw_fair(3, 64, form));
    }
}

fn sw_paper(blocks: u32, payload_bytes: u32) -> SwPaper {
    SwPaper::new(Shape {
        blocks,
        payload_bytes,
    })
}

#[test]
fn s1_4_sw_paper_moves_random_blocks() {
    random_blocks(&sw_paper(32, 3000), scaled(100_000));
    with_helper(&sw_paper(3, 3000), scaled(5_000), WaitPolicy::Yield);
}

#[test]
fn sw_paper_with_any_number_of_blocks() {
    for blocks in [1, 2, 3, 5, 64, 600] {
        random_blocks(&sw_paper(blocks, 100), some_turns(blocks));
    }
}

#[test]
fn sw_paper_releases_in_any_order() {
    any_order(&sw_paper(16, 64), scaled(20_000));
    kept_block(&sw_paper(4, 64));
}

#[test]
fn sw_paper_waits_for_a_slow_receiver() {
    slow_receiver(&sw_paper(3, 64));
}

fn paper_status_byte(blocks: u32, payload_bytes: u32) -> PaperStatusByte {
    PaperStatusByte::new(Shape {
        blocks,
        payload_bytes,
    })
}

#[test]
fn papers_status_byte_moves_random_blocks() {
    random_blocks(&paper_status_byte(32, 1000), scaled(20_000));
}

#[test]
fn papers_status_byte_releases_in_any_order() {
    any_order(&paper_status_byte(16, 64), scaled(20_000));
    kept_block(&paper_status_byte(4, 64));
}

#[test]
fn papers_status_byte_waits_for_a_slow_receiver() {
    slow_receiver(&paper_status_byte(3, 64));
}

fn rendezvous(blocks: u32, payload_bytes: u32) -> Rendezvous {
    Rendezvous::new(Shape {
        blocks,
        payload_bytes,
    })
}

#[test]
fn rendezvous_moves_random_blocks() {
    random_blocks(&rendezvous(32, 3000), scaled(100_000));
}

#[test]
fn rendezvous_with_any_number_of_slots() {
    for blocks in [1, 2, 3, 5, 64, 600] {
        random_blocks(&rendezvous(blocks, 100), some_turns(blocks));
    }
}

#[test]
fn rendezvous_releases_in_any_order() {
    any_order(&rendezvous(16, 64), scaled(20_000));
    kept_block(&rendezvous(4, 64));
}

#[test]
fn rendezvous_waits_for_a_slow_receiver() {
    slow_receiver(&rendezvous(3, 64));
}
