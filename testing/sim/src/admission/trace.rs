//! Events of sources: drawn from a seed, or read from a file.
use catchment_probe::random::Random;

/// Payload of a frame.
pub(super) const FRAME_BYTES: u64 = 3840 * 2160 * 3;
/// Sources on one link of 20 Gbit/s; the first is urgent.
pub(super) const SOURCES: u32 = 12;

/// Something that a device wants to send as a whole.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Event {
    /// When it was generated.
    pub at_ns: u64,
    pub device: u32,
    /// 0 is urgent, 1 is tolerant.
    pub class: u8,
    pub frames: u64,
}

impl Event {
    pub(super) const fn bytes(&self) -> u64 {
        self.frames * FRAME_BYTES
    }
}

/// What the urgent tenth is a tenth of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mix {
    /// Of the events.
    Events,
    /// Of the bytes.
    Bytes,
}

/// How much is offered, to what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) load: f64,
    pub(super) mix: Mix,
    pub(super) capacity_bps: u64,
    /// The first is urgent.
    pub(super) devices: u32,
    /// The number of the first device.
    pub(super) first: u32,
    pub(super) horizon_ns: u64,
}

const URGENT: f64 = 0.1;
const TOLERANT_FRAMES: u64 = 15;

/// Draws the events of `offer`, in the order of their times.
pub(super) fn draw(offer: &Offer, random: &mut Random) -> Vec<Event> {
    let bytes_per_second = offer.load * offer.capacity_bps as f64 / 8.0;
    let (frame, event) = (FRAME_BYTES as f64, (TOLERANT_FRAMES * FRAME_BYTES) as f64);
    let (urgent_rate, tolerant_rate) = match offer.mix {
        Mix::Bytes => {
            (URGENT * bytes_per_second / frame, (1.0 - URGENT) * bytes_per_second / event)
        }
        Mix::Events => {
            let events = bytes_per_second / (URGENT * frame + (1.0 - URGENT) * event);
            (URGENT * events, (1.0 - URGENT) * events)
        }
    };
    let mut events = Vec::new();
    for index in 0..offer.devices {
        let urgent = index == 0;
        let rate = if urgent { urgent_rate } else { tolerant_rate / f64::from(offer.devices - 1) };
        let (class, frames) = if urgent { (0, 1) } else { (1, TOLERANT_FRAMES) };
        let device = offer.first + index;
        for at_ns in poisson(rate, offer.horizon_ns, random) {
            events.push(Event { at_ns, device, class, frames });
        }
    }
    events.sort_unstable();
    events
}

/// Draws the times of a Poisson process of `rate` a second.
pub(super) fn poisson(rate: f64, horizon_ns: u64, random: &mut Random) -> Vec<u64> {
    let mut times = Vec::new();
    if rate <= 0.0 {
        return times;
    }
    let mut at_ns = 0;
    loop {
        at_ns += (exponential(random) / rate * 1e9) as u64;
        if at_ns > horizon_ns {
            return times;
        }
        times.push(at_ns);
    }
}

/// Draws from the exponential distribution of mean 1 by comparisons alone (von Neumann 1951), so that it
/// is the same number on every machine, whatever its logarithm.
fn exponential(random: &mut Random) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = random.next_u64();
        let (mut last, mut count) = (first, 1);
        loop {
            let next = random.next_u64();
            if next >= last {
                break;
            }
            (last, count) = (next, count + 1);
        }
        if count % 2 == 1 {
            return whole + (first >> 11) as f64 / (1_u64 << 53) as f64;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_distribution_has_its_mean_and_its_tail() {
        let mut random = Random::new(1);
        let draws: Vec<f64> = (0..100_000).map(|_| exponential(&mut random)).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let beyond = draws.iter().filter(|draw| **draw > 2.0).count() as f64 / 1e5;
        assert!((mean - 1.0).abs() < 0.015, "{mean}");
        assert!((beyond - (-2.0_f64).exp()).abs() < 0.005, "{beyond}");
    }

    #[test]
    fn s2_2_an_urgent_event_is_a_frame_and_a_tolerant_one_fifteen() {
        assert_eq!(FRAME_BYTES, 3840 * 2160 * 3);
        let (capacity_bps, horizon_ns) = (20_000_000_000, 100_000_000_000);
        let (devices, first, mix) = (SOURCES, 0, Mix::Events);
        let offer = Offer { load: 0.5, mix, capacity_bps, devices, first, horizon_ns };
        let events = draw(&offer, &mut Random::new(7));
        for event in &events {
            let (class, frames) = if event.device == 0 { (0, 1) } else { (1, 15) };
            assert_eq!((event.class, event.frames), (class, frames), "{event:?}");
            assert_eq!(event.bytes(), frames * 24_883_200);
        }
        let of = |device| events.iter().filter(move |event| event.device == device).count();
        assert!((0..SOURCES).all(|device| of(device) > 0), "12 sources");
    }

    /// 12 sources, by events and by bytes (S2.16).
    #[test]
    fn s2_1_the_offered_load_is_what_was_asked_within_2_percent() {
        for mix in [Mix::Events, Mix::Bytes] {
            let horizon_ns = 30_000_000_000_000;
            let (capacity_bps, devices, first) = (20_000_000_000, SOURCES, 0);
            let offer = Offer { load: 0.5, mix, capacity_bps, devices, first, horizon_ns };
            let events = draw(&offer, &mut Random::new(3));
            let bytes: u64 = events.iter().map(Event::bytes).sum();
            let load = bytes as f64 * 8.0 / 20e9 / 30_000.0;
            assert!(events.len() > 100_000, "{}", events.len());
            assert!((load / 0.5 - 1.0).abs() < 0.02, "{load}");
            let urgent = events.iter().filter(|event| event.class == 0);
            let part = match mix {
                Mix::Events => urgent.count() as f64 / events.len() as f64,
                Mix::Bytes => urgent.map(Event::bytes).sum::<u64>() as f64 / bytes as f64,
            };
            assert!((part - 0.1).abs() < 0.004, "{part}");
        }
    }
}
