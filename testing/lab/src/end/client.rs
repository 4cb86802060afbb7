//! The case's side of an end.

use super::{
    Answer, Card, Completed, Datagram, Kind, Measured, Order, Place, Request, Task, Trips, Work,
};
use crate::remote::process::Process;
use anyhow::{Context as _, Result, bail, ensure};
use std::time::Duration;

/// Longer than an end waits for anything itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// Requests of a stream on their way: as many as the queue has room for.
const OUTSTANDING: u64 = 64;

/// A running end.
pub struct End {
    process: Process,
    answers: usize,
    card: Card,
}

impl End {
    /// Takes an end that was started, and lets it make a queue pair.
    ///
    /// # Errors
    /// When it could not open its device, or make anything there.
    pub fn new(process: Process) -> Result<Self> {
        Self::of_kind(process, Kind::Connection)
    }

    /// The same with a queue pair and memory of this kind.
    ///
    /// # Errors
    /// When it could not open its device, or make anything there.
    pub fn of_kind(process: Process, kind: Kind) -> Result<Self> {
        let card = Card {
            endpoint: String::new(),
            addr: 0,
            rkey: 0,
        };
        let mut end = Self {
            process,
            answers: 0,
            card,
        };
        let answer = end.ask(&Order::Make(kind))?;
        let Answer::Card(card) = answer else {
            bail!("an end made {answer:?}");
        };
        end.card = card;
        Ok(end)
    }

    /// What its peer must know.
    #[must_use]
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// A place in its memory.
    #[must_use]
    pub fn place(&self, offset: usize) -> Place {
        Place {
            addr: self.card.addr + offset as u64,
            rkey: self.card.rkey,
        }
    }

    /// Connects it, with the usual patience.
    ///
    /// # Errors
    /// When its device refuses.
    pub fn connect(&mut self, peer: &Card) -> Result<()> {
        self.connect_with(peer, 7, 7)
    }

    /// Connects it; the numbers are those of [`Task::Connect`].
    ///
    /// # Errors
    /// When its device refuses.
    pub fn connect_with(&mut self, peer: &Card, retry_cnt: u8, rnr_retry: u8) -> Result<()> {
        self.tell(Task::Connect {
            endpoint: peer.endpoint.clone(),
            retry_cnt,
            rnr_retry,
        })
    }

    /// Fills a piece of its memory.
    ///
    /// # Errors
    /// When the end is gone, or the piece lies outside.
    pub fn fill(&mut self, offset: usize, bytes: usize, seed: u64) -> Result<()> {
        self.tell(Task::Fill {
            offset,
            bytes,
            seed,
        })
    }

    /// Fails unless a piece of its memory was filled so.
    ///
    /// # Errors
    /// With the first byte that is wrong.
    pub fn see(&mut self, offset: usize, bytes: usize, seed: u64) -> Result<()> {
        self.tell(Task::See {
            offset,
            bytes,
            seed,
        })
    }

    /// A number in its memory.
    ///
    /// # Errors
    /// When the end is gone, or the place lies outside.
    pub fn number(&mut self, offset: usize) -> Result<u64> {
        let answer = self.ask(&Order::Do(Task::Number { offset }))?;
        let Answer::Number(number) = answer else {
            bail!("an end said {answer:?} for a number");
        };
        Ok(number)
    }

    /// Posts signaled requests.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn post(&mut self, work: &[(Work, usize, usize)]) -> Result<()> {
        let request = |(at, (work, offset, bytes)): (usize, &(Work, usize, usize))| Request {
            wr_id: at as u64,
            work: *work,
            offset: *offset,
            bytes: *bytes,
            signaled: true,
        };
        let requests = work.iter().enumerate().map(request).collect();
        self.tell(Task::Send(requests))
    }

    /// Posts a request and waits until it has succeeded.
    ///
    /// # Errors
    /// When it fails, or does not complete.
    pub fn run(&mut self, work: Work, offset: usize, bytes: usize) -> Result<()> {
        self.post(&[(work, offset, bytes)])?;
        self.expect(false, "Success").map(drop)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn send_to(&mut self, datagram: Datagram) -> Result<()> {
        let answer = self.ask(&Order::Do(Task::SendTo(datagram)))?;
        let Answer::Completions(done) = &answer else {
            bail!("an end said {answer:?} for a datagram");
        };
        let done = done.iter().map(|done| done.status.as_str());
        ensure!(done.eq(["Success"]), "the datagram ended with {answer:?}");
        Ok(())
    }

    /// Where the datagram came from whose network header stands at this place.
    ///
    /// # Errors
    /// When there is none.
    pub fn source(&mut self, offset: usize) -> Result<String> {
        self.text(&Order::Do(Task::Source { offset }))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// When the device refuses.
    pub fn receive(&mut self, wr_id: u64, offset: usize, bytes: usize) -> Result<()> {
        self.tell(Task::Receive {
            wr_id,
            offset,
            bytes,
        })
    }

    /// The next completions.
    ///
    /// # Errors
    /// When they do not come.
    pub fn wait(&mut self, receives: bool, count: usize) -> Result<Vec<Completed>> {
        let answer = self.ask(&Order::Do(Task::Wait { receives, count }))?;
        let Answer::Completions(completions) = answer else {
            bail!("an end said {answer:?} for completions");
        };
        Ok(completions)
    }

    /// The next completion, which must have this status.
    ///
    /// # Errors
    /// When it has another, or does not come.
    pub fn expect(&mut self, receives: bool, status: &str) -> Result<Completed> {
        let done = self.wait(receives, 1)?.pop().context("no completion")?;
        ensure!(
            done.status == status,
            "expected a completion with {status}, got {done:?}"
        );
        Ok(done)
    }

    /// Streams WRITEs of so many bytes into the peer's memory, which begins at this place.
    ///
    /// # Errors
    /// When a request fails.
    pub fn stream(&mut self, place: Place, bytes: usize, time: Duration) -> Result<Measured> {
        let task = Task::Stream {
            place,
            bytes,
            outstanding: OUTSTANDING,
            millis: u64::try_from(time.as_millis())?,
        };
        let answer = self.ask(&Order::Do(task))?;
        let Answer::Measured(measured) = answer else {
            bail!("an end said {answer:?} for a measurement");
        };
        Ok(measured)
    }

    /// Small WRITEs to and fro with a peer: the time of one, and the switches of both ends.
    ///
    /// # Errors
    /// When a request fails, at this end or the other.
    pub fn ping_pong(&mut self, peer: &mut Self, rounds: u64) -> Result<Trips> {
        let task = |place, asks| {
            Order::Do(Task::PingPong {
                place,
                rounds,
                asks,
            })
        };
        let (ours, theirs) = (self.place(0), peer.place(0));
        peer.say(&task(ours, false))?;
        self.say(&task(theirs, true))?;
        let (took, answered) = (self.hear()?, peer.hear()?);
        let (Answer::Trips(took), Answer::Trips(theirs)) = (&took, &answered) else {
            bail!("ends said {took:?} and {answered:?} for times");
        };
        Ok(Trips {
            switches: took.switches + theirs.switches,
            ..*took
        })
    }

    /// How long a thread there takes to wake another one.
    ///
    /// # Errors
    /// When the end is gone.
    pub fn wake_up(&mut self) -> Result<Duration> {
        let answer = self.ask(&Order::WakeUp)?;
        let Answer::Number(took) = answer else {
            bail!("an end said {answer:?} for a time");
        };
        Ok(Duration::from_nanos(took))
    }

    /// The name of the state of its queue pair.
    ///
    /// # Errors
    /// When the end is gone.
    pub fn state(&mut self) -> Result<String> {
        self.text(&Order::Do(Task::State))
    }

    /// The next asynchronous event of its device.
    ///
    /// # Errors
    /// When none comes.
    pub fn event(&mut self) -> Result<String> {
        self.text(&Order::Event)
    }

    /// Deregisters its memory.
    ///
    /// # Errors
    /// When the end is gone.
    pub fn revoke(&mut self) -> Result<()> {
        self.tell(Task::Revoke)
    }

    /// Destroys its queue pair.
    ///
    /// # Errors
    /// When the end is gone.
    pub fn leave(&mut self) -> Result<()> {
        self.tell(Task::Leave)
    }

    /// The program itself, to signal it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn text(&mut self, order: &Order) -> Result<String> {
        let answer = self.ask(order)?;
        let Answer::Text(text) = answer else {
            bail!("an end said {answer:?} for words");
        };
        Ok(text)
    }

    fn tell(&mut self, task: Task) -> Result<()> {
        let answer = self.ask(&Order::Do(task))?;
        ensure!(answer == Answer::Done, "an end said {answer:?} for done");
        Ok(())
    }

    fn ask(&mut self, order: &Order) -> Result<Answer> {
        self.say(order)?;
        self.hear()
    }

    fn say(&mut self, order: &Order) -> Result<()> {
        self.process.tell(&serde_json::to_string(order)?)
    }

    /// The next answer.
    fn hear(&mut self) -> Result<Answer> {
        let number = self.answers;
        let line = self.process.wait_for("answer", ANSWER_LIMIT, |stdout, _| {
            let line = stdout.split_inclusive('\n').nth(number)?;
            line.strip_suffix('\n').map(str::to_owned)
        })?;
        self.answers += 1;
        let answer = serde_json::from_str(&line);
        let answer = answer.with_context(|| format!("an end said {line:?}"))?;
        if let Answer::Refused(why) = answer {
            bail!(why);
        }
        Ok(answer)
    }
}
