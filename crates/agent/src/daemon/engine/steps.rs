//! Where the engine's processor time goes: one of some turns with something to do is timed, step by step.
use crate::protocol::Processor;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A step of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// What threads of applications ask, and what was agreed with other hosts.
    Command,
    /// Requests come out of the rings, are checked and noted.
    Take,
    /// Whose chunk is next, and what each may be served.
    Schedule,
    /// A chunk goes to a queue pair of the device.
    Post,
    /// Completions of the device go to the applications.
    Complete,
}

const STEPS: usize = 5;
/// Of turns with something to do, one of so many is timed: so who has one request at a time waits for the clock once in so
/// many. A prime: what else is done once in some turns is not always in one of these.
const EVERY: u32 = 251;
/// Looks at the clock, to know what one takes.
const LOOKS: usize = 32;

/// Time of each step, in the turns that are timed.
#[derive(Debug)]
pub(super) struct Steps {
    /// Turns with something to do until one is timed.
    rest: u32,
    /// In a turn that is timed: when the last step ended.
    ended: Option<Instant>,
    turn: [Duration; STEPS],
    /// Of turns in which there was something to do.
    spent: [Duration; STEPS],
    /// What a look at the clock takes.
    clock: Duration,
}

/// Returns what a look at the clock takes.
fn clock() -> Duration {
    let look = |_| {
        let now = Instant::now();
        now.elapsed()
    };
    (0..LOOKS).map(look).min().unwrap_or_default()
}

/// Returns what a clock shows, in nanoseconds: processor time of this thread or of the process, or time.
pub(super) fn clock_ns(of: ClockId) -> u64 {
    let time = clock_gettime(of);
    let ns = time.tv_sec.cast_unsigned().saturating_mul(1_000_000_000);
    ns.saturating_add(time.tv_nsec.cast_unsigned())
}

impl Steps {
    pub(super) fn new() -> Self {
        let none = [Duration::ZERO; STEPS];
        Self { rest: 0, ended: None, turn: none, spent: none, clock: clock() }
    }

    /// Begins a turn.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.rest == 0 {
            self.start();
        }
    }

    #[cold]
    fn start(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Ends a step, which began when the one before ended.
    #[inline]
    pub(super) fn end(&mut self, step: Step) {
        if self.ended.is_some() {
            self.note(step);
        }
    }

    #[cold]
    fn note(&mut self, step: Step) {
        let now = Instant::now();
        if let Some(before) = self.ended.replace(now) {
            self.turn[step as usize] += (now - before).saturating_sub(self.clock);
        }
    }

    /// Ends a turn. One that found nothing to do was no more than a look, and the next one is timed in its place.
    #[inline]
    pub(super) fn end_turn(&mut self, is_busy: bool) {
        if self.rest == 0 {
            self.finish(is_busy);
        } else if is_busy {
            self.rest -= 1;
        }
    }

    #[cold]
    fn finish(&mut self, is_busy: bool) {
        self.ended = None;
        let turn = std::mem::take(&mut self.turn);
        if is_busy {
            self.rest = EVERY - 1;
            self.spent.iter_mut().zip(turn).for_each(|(spent, step)| *spent += step);
        }
    }

    /// Divides the processor time of the thread that calls, which is the engine's.
    pub(super) fn processor(&self) -> Processor {
        let process = clock_ns(ClockId::ProcessCPUTime);
        self.divide(clock_ns(ClockId::ThreadCPUTime), process)
    }

    /// Divides a time: what turns took that are like those that were timed, and no more than there is.
    fn divide(&self, engine_ns: u64, process_ns: u64) -> Processor {
        let all = self.spent.iter().sum::<Duration>() * EVERY;
        let scale = (engine_ns as f64 / (all.as_nanos() as f64).max(1.0)).min(1.0);
        let of = |step: Step| {
            let spent = self.spent[step as usize] * EVERY;
            (spent.as_nanos() as f64 * scale) as u64
        };
        let (command_ns, take_ns) = (of(Step::Command), of(Step::Take));
        let (schedule_ns, post_ns) = (of(Step::Schedule), of(Step::Post));
        let complete_ns = of(Step::Complete);
        let steps_ns = command_ns + take_ns + schedule_ns + post_ns + complete_ns;
        Processor {
            command_ns,
            take_ns,
            schedule_ns,
            post_ns,
            complete_ns,
            look_ns: engine_ns.saturating_sub(steps_ns),
            engine_ns,
            process_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    /// Turns of which the second step takes long, until several of them were timed.
    fn turns(steps: &mut Steps, is_busy: bool) {
        for _ in 0..4 * EVERY {
            steps.begin();
            steps.end(Step::Take);
            spin(Duration::from_micros(20));
            steps.end(Step::Post);
            steps.end_turn(is_busy);
        }
    }

    #[test]
    fn s5_26_all_of_the_time_is_divided_and_looks_are_what_is_left() {
        let mut steps = Steps::new();
        turns(&mut steps, false);
        let parts = |one: &Processor| {
            [one.command_ns, one.take_ns, one.schedule_ns, one.post_ns, one.complete_ns]
        };
        let idle = steps.divide(1_000_000, 2_000_000);
        assert_eq!((parts(&idle), idle.look_ns), ([0; 5], 1_000_000), "{idle:?}");
        turns(&mut steps, true);
        // 4 * 251 turns of 20 us are 20 ms at least.
        let busy = steps.divide(1_000_000_000_000, 2_000_000_000_000);
        assert!(busy.post_ns >= 19_000_000, "{busy:?}");
        assert_eq!(parts(&busy).iter().sum::<u64>() + busy.look_ns, busy.engine_ns);
        assert_eq!((busy.command_ns, busy.complete_ns), (0, 0), "{busy:?}");
        // No more than there is.
        let less = steps.divide(1_000_000, 2_000_000);
        assert!(parts(&less).iter().sum::<u64>() <= 1_000_000 && less.post_ns > 0, "{less:?}");
    }
}
