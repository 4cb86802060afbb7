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

/// The mechanisms that the provider has.
fn protocols() -> impl Iterator<Item = Protocol> {
    let direct = crate::context().caps().direct;
    let in_place = [Protocol::SbInPlace, Protocol::SwFairTailInPlace];
    Protocol::ALL.into_iter().filter(move |one| direct || !in_place.contains(one))
}

/// The copy modes that the provider has.
fn modes() -> Vec<CopyMode> {
    if crate::context().caps().direct {
        vec![CopyMode::InPlace, CopyMode::Copy]
    } else {
        vec![CopyMode::Copy]
    }
}

/// The forms that the provider has.
fn forms() -> Vec<Form> {
    let mut forms = vec![Form::WriteImm, Form::Selective, Form::Tail];
    forms.extend(crate::context().caps().direct.then_some(Form::TailInPlace));
    forms
}

fn shape(blocks: u32, payload_bytes: u32) -> Shape {
    Shape { blocks, payload_bytes }
}

fn sw_fair(blocks: u32, payload_bytes: u32, form: Form) -> SwFair {
    SwFair::new(shape(blocks, payload_bytes), form)
}

fn sw_paper(blocks: u32, payload_bytes: u32) -> SwPaper {
    SwPaper::new(shape(blocks, payload_bytes))
}

/// What every mechanism must do. `$all` makes all its variants in a shape; `$random` has the payload
/// bytes and the number of random blocks; `$sizes` are rings that go round twice.
macro_rules! suite {
    ($mechanism:ident, $all:expr, random: $random:expr, sizes: $sizes:expr) => {
        mod $mechanism {
            use super::*;

            #[test]
            fn moves_random_blocks() {
                let (bytes, count) = $random;
                let all = $all(shape(32, bytes)).into_iter();
                all.for_each(|one| {
                    random_blocks(pair(&one), scaled(count), WaitPolicy::Yield, false)
                });
            }

            #[test]
            fn works_with_any_number_of_blocks() {
                for blocks in $sizes {
                    let turns = scaled(3_000).max(2 * u64::from(blocks));
                    $all(shape(blocks, 100))
                        .into_iter()
                        .for_each(|one| random_blocks(pair(&one), turns, WaitPolicy::Yield, false));
                }
            }

            #[test]
            fn releases_in_any_order() {
                let all = $all(shape(16, 64)).into_iter();
                all.for_each(|one| any_order(pair(&one), scaled(20_000)));
                $all(shape(4, 64)).into_iter().for_each(|one| kept_block(pair(&one)));
            }

            #[test]
            fn waits_for_a_slow_receiver() {
                $all(shape(3, 64)).into_iter().for_each(|one| slow_receiver(pair(&one)));
            }
        }
    };
}

suite!(
    status_byte,
    |shape| modes().into_iter().map(move |mode| StatusByte::new(shape, mode)),
    random: (3000, 100_000),
    sizes: [1, 3, 65]
);
suite!(
    sw_fair,
    |shape| forms().into_iter().map(move |form| SwFair::new(shape, form)),
    random: (3000, 100_000),
    sizes: [1, 2, 3, 5, 64, 65, 600]
);
suite!(
    sw_paper,
    |shape| [SwPaper::new(shape)],
    random: (3000, 100_000),
    sizes: [1, 2, 3, 5, 64, 600]
);
suite!(
    papers_status_byte,
    |shape| [PaperStatusByte::new(shape)],
    random: (1000, 20_000),
    sizes: [1, 3, 65]
);
suite!(
    rendezvous,
    |shape| [Rendezvous::new(shape)],
    random: (3000, 100_000),
    sizes: [1, 2, 3, 5, 64, 600]
);

#[test]
fn s1_4_sw_paper_moves_random_blocks_with_a_thread_for_acknowledgements() {
    random_blocks(pair(&sw_paper(3, 3000)), scaled(5_000), WaitPolicy::Yield, true);
}
