//! The link against closed forms.
use super::*;
use crate::Chance;

/// A frame whose first bytes are its number.
fn frame(number: u64, bytes: usize) -> Frame {
    let mut content = vec![0; bytes.max(8)];
    content[..8].copy_from_slice(&number.to_le_bytes());
    Frame::new(content)
}

fn number(frame: &Frame) -> u64 {
    u64::from_le_bytes(frame.bytes()[..8].try_into().unwrap())
}

fn link(config: LinkConfig) -> Link {
    Link::new(config, Random::new(7))
}

/// Offers `count` frames, each when the previous one has left, and returns their fates.
fn offer_all(link: &mut Link, count: u64, bytes: usize) -> (Vec<Fate>, Vec<Arrival>) {
    let mut arrivals = Vec::new();
    let fates = (0..count).map(|number| {
        let now = link.drained_to(0);
        link.offer(now, frame(number, bytes), &mut arrivals)
    });
    (fates.collect(), arrivals)
}

const CARRIED: Fate =
    Fate::Carried { held_back: false, doubled: false, corrupted: false, marked: false };

#[test]
fn a_frame_takes_its_serialisation_time_and_the_delay() {
    let mut link = link(LinkConfig {
        rate_bps: Some(1_000_000_000),
        delay: Duration::from_millis(5),
        ..LinkConfig::default()
    });
    let mut arrivals = Vec::new();
    let now = Duration::from_millis(1);
    assert_eq!(link.offer(now, frame(0, 1250), &mut arrivals), CARRIED);
    // 1250 bytes are 10,000 bits: 10 us at 1 Gbit/s.
    assert_eq!(arrivals[0].at, Duration::from_micros(1_000 + 10 + 5_000));
}

#[test]
fn serialisation_time_is_rounded_up_to_nanoseconds() {
    let config = |rate_bps| LinkConfig { rate_bps, ..LinkConfig::default() };
    assert_eq!(config(Some(3)).transmit_time(3), Duration::from_secs(8));
    let ns = config(Some(3_000_000_000)).transmit_time(1).as_nanos();
    assert_eq!(ns, 3, "8 bits at 3 bits per ns are 2.67 ns");
    assert_eq!(config(None).transmit_time(1 << 40), Duration::ZERO);
}

/// 4,176 bytes at 40.78125 Gbit/s take 819.2 ns. Rounded up each, a link that is asked for all that it carries would not carry
/// a thousandth of it.
#[test]
fn what_follows_each_other_is_rounded_once() {
    let rate_bps = Some(40_781_250_000);
    let mut link = link(LinkConfig { rate_bps, ..LinkConfig::default() });
    let mut arrivals = Vec::new();
    for number in 0..1000 {
        link.offer(Duration::ZERO, frame(number, 4176), &mut arrivals);
    }
    assert_eq!(arrivals[0].at, Duration::from_nanos(820));
    assert_eq!(arrivals[999].at, Duration::from_nanos(819_200));
}

#[test]
fn frames_of_a_burst_wait_for_those_before_them() {
    let mut link = link(LinkConfig { rate_bps: Some(8_000_000), ..LinkConfig::default() });
    let mut arrivals = Vec::new();
    for at in 0..10 {
        link.offer(Duration::ZERO, frame(at, 100), &mut arrivals);
    }
    // 100 bytes at 1 byte per us: the n-th frame leaves after (n + 1) * 100 us.
    let expected = (1..=10).map(|n| Duration::from_micros(100 * n));
    assert!(arrivals.iter().map(|arrival| arrival.at).eq(expected));
    assert_eq!(link.backlog_bytes(Duration::from_micros(0)), 1000);
    assert_eq!(link.backlog_bytes(Duration::from_micros(99)), 1000);
    assert_eq!(link.backlog_bytes(Duration::from_micros(100)), 900);
    assert_eq!(link.drained_to(300), Duration::from_micros(700));
    assert_eq!(link.drained_to(299), Duration::from_micros(800));
    assert_eq!(link.backlog_bytes(Duration::from_micros(1000)), 0);
    assert_eq!(link.drained_to(0), Duration::ZERO);
}

#[test]
fn a_queue_takes_what_fits_and_drops_the_tail() {
    let mut link = link(LinkConfig {
        rate_bps: Some(8_000_000),
        queue_bytes: Some(1000),
        ..LinkConfig::default()
    });
    let mut arrivals = Vec::new();
    let mut offer =
        |at_us, bytes| link.offer(Duration::from_micros(at_us), frame(0, bytes), &mut arrivals);
    for _ in 0..10 {
        assert_eq!(offer(0, 100), CARRIED);
    }
    assert_eq!(offer(0, 100), Fate::QueueFull);
    assert_eq!(offer(99, 8), Fate::QueueFull);
    assert_eq!(offer(100, 100), CARRIED, "the first one has left");
    assert_eq!(offer(100, 8), Fate::QueueFull);
    assert_eq!(arrivals.len(), 11);
    assert_eq!(link.counters.queue_full, 3);
    // The longest wait is for a full queue.
    assert_eq!(arrivals[10].at, Duration::from_micros(100 + 1000));
}

#[test]
fn an_overloaded_queue_passes_the_rate_of_the_link() {
    let mut link = link(LinkConfig {
        rate_bps: Some(100_000_000),
        queue_bytes: Some(20_000),
        ..LinkConfig::default()
    });
    let mut arrivals = Vec::new();
    // 1000 bytes every 50 us are 160 Mbit/s.
    for at in 0..20_000 {
        link.offer(Duration::from_micros(50 * at), frame(at, 1000), &mut arrivals);
    }
    // 1 s at 100 Mbit/s is 12,500 frames; the queue holds 20 more.
    assert!(arrivals.len().abs_diff(12_500) <= 21, "{}", arrivals.len());
    assert_eq!(link.counters.sent + link.counters.queue_full, 20_000);
}

#[test]
fn a_frame_longer_than_the_mtu_is_dropped() {
    let mut link = link(LinkConfig { mtu: Some(1500), ..LinkConfig::default() });
    let mut arrivals = Vec::new();
    assert_eq!(link.offer(Duration::ZERO, frame(0, 1501), &mut arrivals), Fate::TooLong);
    assert_eq!(link.offer(Duration::ZERO, frame(0, 1500), &mut arrivals), CARRIED);
    assert_eq!((arrivals.len(), link.counters.too_long), (1, 1));
}

#[test]
fn chosen_frames_are_lost_and_no_others() {
    let mut link = link(LinkConfig { loss: Loss::Chosen(vec![5, 0, 9]), ..LinkConfig::default() });
    let (fates, arrivals) = offer_all(&mut link, 12, 100);
    let lost: Vec<_> = (0..12).filter(|at| fates[*at] == Fate::Lost).collect();
    assert_eq!(lost, [0, 5, 9]);
    let arrived: Vec<_> = arrivals.iter().map(|arrival| number(&arrival.frame)).collect();
    assert_eq!(arrived, [1, 2, 3, 4, 6, 7, 8, 10, 11]);
}

/// Lengths of the runs of lost frames.
fn bursts(fates: &[Fate]) -> Vec<usize> {
    let runs = fates.split(|fate| *fate != Fate::Lost);
    runs.map(<[Fate]>::len).filter(|length| *length > 0).collect()
}

#[test]
fn random_loss_is_within_binomial_bounds() {
    for loss in [0.001, 0.01, 0.05, 0.5] {
        let mut link =
            link(LinkConfig { loss: Loss::Random(Chance::of(loss)), ..LinkConfig::default() });
        let count = 200_000;
        offer_all(&mut link, count, 8);
        let (expected, lost) = (count as f64 * loss, link.counters.lost as f64);
        let deviation = (expected * (1.0 - loss)).sqrt();
        assert!((lost - expected).abs() < 5.0 * deviation, "{lost} of {expected}");
    }
}

#[test]
fn bursts_lose_the_fraction_in_the_lengths_they_say() {
    let lengths = [BurstLength::Fixed(1), BurstLength::Fixed(8), BurstLength::Mean(8.0)];
    for (fraction, length) in [0.01, 0.05, 0.3].into_iter().flat_map(|f| lengths.map(|l| (f, l))) {
        let mut link =
            link(LinkConfig { loss: Loss::Bursts { fraction, length }, ..LinkConfig::default() });
        let count = 400_000;
        let (fates, _) = offer_all(&mut link, count, 8);
        let lost = link.counters.lost as f64 / count as f64;
        assert!((lost / fraction - 1.0).abs() < 0.1, "{lost} for {fraction} {length:?}");
        let bursts = bursts(&fates);
        if let BurstLength::Fixed(frames) = length {
            // Bursts may touch; the last one may be cut off.
            let whole = &bursts[..bursts.len() - 1];
            assert!(whole.iter().all(|burst| burst.is_multiple_of(frames as usize)));
        } else {
            // A burst follows at once on another with chance q: runs are longer by 1 / (1 - q).
            let q = fraction / (fraction + 8.0 * (1.0 - fraction));
            let mean = bursts.iter().sum::<usize>() as f64 / bursts.len() as f64;
            assert!((mean * (1.0 - q) / 8.0 - 1.0).abs() < 0.1, "{mean} at {fraction}");
        }
    }
}

#[test]
fn a_frame_that_is_held_back_is_overtaken_by_as_many_as_the_delay_lets() {
    let mut link = link(LinkConfig {
        rate_bps: Some(8_000_000),
        reorder: Delay { chance: Chance::of(0.1), most: Duration::from_micros(350) },
        ..LinkConfig::default()
    });
    let (_, mut arrivals) = offer_all(&mut link, 10_000, 100);
    arrivals.sort_by_key(|arrival| arrival.at);
    let order: Vec<_> = arrivals.iter().map(|arrival| number(&arrival.frame)).collect();
    assert_eq!(order.len(), 10_000);
    let late = |at: usize| order[at + 1..].iter().take(10).filter(|n| **n < order[at]).count();
    let overtaking = (0..order.len()).filter(|at| late(*at) > 0).count();
    assert!(overtaking > 500, "{overtaking}");
    let furthest = order.iter().enumerate().map(|(at, n)| at as i64 - *n as i64).max();
    assert_eq!(furthest, Some(3), "350 us are three frames of 100 us");
    assert!((800..1200).contains(&link.counters.held_back));
}

#[test]
fn a_doubled_frame_arrives_twice_and_whole() {
    let mut link = link(LinkConfig {
        duplicate: Delay { chance: Chance::of(0.25), most: Duration::from_micros(10) },
        ..LinkConfig::default()
    });
    let (_, arrivals) = offer_all(&mut link, 4000, 64);
    let doubled = link.counters.doubled;
    assert!((850..1150).contains(&doubled), "{doubled}");
    assert_eq!(arrivals.len() as u64, 4000 + doubled);
    assert!(arrivals.iter().all(|a| a.frame == frame(number(&a.frame), 64)));
    assert!(arrivals.iter().all(|a| a.at <= Duration::from_micros(10)));
}

#[test]
fn corruption_inverts_between_one_and_the_most_bits() {
    let mut link = link(LinkConfig {
        corrupt: Corruption { chance: Chance::ALWAYS, bits_most: 3 },
        ..LinkConfig::default()
    });
    let mut arrivals = Vec::new();
    let mut seen = [0; 4];
    for at in 0..3000 {
        arrivals.clear();
        link.offer(Duration::ZERO, frame(at, 40), &mut arrivals);
        let pairs = arrivals[0].frame.bytes().iter().zip(frame(at, 40).bytes().to_vec());
        let wrong: u32 = pairs.map(|(a, b)| (a ^ b).count_ones()).sum();
        seen[wrong as usize] += 1;
    }
    assert_eq!(seen[0], 0);
    assert!(seen[1..].iter().all(|count| (850..1150).contains(count)), "{seen:?}");
}

#[test]
fn the_same_seed_makes_the_same_faults() {
    let config = LinkConfig {
        rate_bps: Some(10_000_000),
        loss: Loss::Bursts { fraction: 0.1, length: BurstLength::Mean(3.0) },
        reorder: Delay { chance: Chance::of(0.2), most: Duration::from_millis(1) },
        corrupt: Corruption { chance: Chance::of(0.1), bits_most: 9 },
        ..LinkConfig::default()
    };
    let run = |seed| {
        let mut link = Link::new(config.clone(), Random::new(seed));
        offer_all(&mut link, 500, 90)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// Returns an IPv6 packet with these ECN bits.
fn packet(ecn: u8, bytes: usize) -> Frame {
    let mut content = vec![0; bytes];
    content[0] = 0x60;
    let mut frame = Frame::new(content);
    frame.set_ecn(ecn);
    frame
}

#[test]
fn frames_that_find_too_much_before_them_are_marked() {
    let mut link = link(LinkConfig {
        rate_bps: Some(8_000_000),
        mark_above: Some(200),
        ..LinkConfig::default()
    });
    let mut arrivals = Vec::new();
    let mut offer = |at_us, ecn| {
        let now = Duration::from_micros(at_us);
        link.offer(now, packet(ecn, 100), &mut arrivals)
    };
    let marked = |fate| matches!(fate, Fate::Carried { marked: true, .. });
    // Nothing, 100 and 200 bytes wait; then 300.
    let fates = [(); 4].map(|()| offer(0, crate::ECN_CAPABLE));
    assert_eq!(fates.map(marked), [false, false, false, true]);
    // A transport that is not ECN-capable gets no marks.
    assert!(!marked(offer(0, 0)));
    // Of 500 bytes, 200 are left after 300 us.
    assert!(!marked(offer(300, crate::ECN_CAPABLE)));
    assert!(marked(offer(300, crate::ECN_CAPABLE)));
    let seen: Vec<u8> = arrivals.iter().map(|arrival| arrival.frame.ecn()).collect();
    assert_eq!(seen, [2, 2, 2, 3, 0, 2, 3]);
    assert_eq!(link.counters.marked, 2);
}

#[test]
fn what_is_no_ipv6_packet_has_no_ecn_bits() {
    for content in [vec![], vec![0x60], vec![0x45, 0xff, 0]] {
        let mut frame = Frame::new(content.clone());
        frame.set_ecn(crate::CONGESTION_EXPERIENCED);
        assert!(!frame.mark());
        assert_eq!((frame.ecn(), frame.bytes()), (0, &content[..]));
    }
}
