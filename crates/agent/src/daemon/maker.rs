//! A thread that makes and connects queue pairs which no application waits for: the shared ones, and that of a
//! connection that stops sharing. To connect one takes a while, and keeps neither requests nor rounds waiting.
use super::engine::Command;
use super::inbox::{INBOX, Inbox};
use super::own::OwnQp;
use super::shared_qp::CHUNKS;
use crate::entry::{MAX_INLINE_BYTES, MAX_SGES};
use crate::peer::message::Slots;
use crate::peer::{Change, Local, Make, Sharing, SlotNews, SlotQp, Verdict};
use catchment_verbs::{
    Access, Context, Cq, Endpoint, Pd, Qp, QpInit, QpTransition, RtrAttr, RtsAttr, VerbsError,
    event,
};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use tokio::sync::mpsc::UnboundedSender;

/// What shared queue pairs are made of.
#[derive(Clone)]
pub(super) struct Parts {
    pub(super) pd: Arc<dyn Pd>,
    pub(super) cq: Arc<dyn Cq>,
}

/// See the module. It ends with who asks it.
pub(super) struct Maker {
    thread: Option<JoinHandle<()>>,
}

impl Drop for Maker {
    fn drop(&mut self) {
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that makes queue pairs panicked");
        }
    }
}

/// What the thread has.
pub(super) struct Work {
    pub(super) context: Arc<dyn Context>,
    pub(super) parts: Option<Parts>,
    pub(super) commands: Sender<Command>,
    pub(super) bell: Arc<OwnedFd>,
    pub(super) news: UnboundedSender<Change>,
    /// Ends of shared queue pairs that are not in use.
    pub(super) ends: BTreeMap<(u32, u32), (Box<dyn Qp>, Inbox)>,
    /// Slots that are not in use.
    pub(super) slots: BTreeMap<(u32, u32), SlotQp>,
}

impl Maker {
    pub(super) fn start(asked: Receiver<Make>, mut work: Work) -> std::io::Result<Self> {
        let thread = std::thread::Builder::new().name("agent-maker".to_owned());
        let thread = thread.spawn(move || asked.into_iter().for_each(|make| work.make(make)))?;
        Ok(Self { thread: Some(thread) })
    }
}

/// Connects an end with the other.
fn connect(qp: &mut dyn Qp, remote: &str) -> Result<(), String> {
    let remote: Endpoint = remote.parse().map_err(|_| "the other end is none".to_owned())?;
    let text = |error: catchment_verbs::ModifyError| error.to_string();
    qp.modify(QpTransition::ToRtr(RtrAttr::new(remote))).map_err(text)?;
    qp.modify(QpTransition::ToRts(RtsAttr::default())).map_err(text)
}

impl Work {
    fn make(&mut self, make: Make) {
        match make {
            Make::Offer(host, number) => self.begin(host, number, |_| Ok(())),
            Make::Accept(host, number, remote) => {
                self.begin(host, number, |qp| connect(qp, &remote));
            }
            Make::Finish(host, number, remote) => self.finish(host, number, &remote),
            Make::Use(host, number) => {
                if let Some((qp, inbox)) = self.ends.remove(&(host, number)) {
                    self.tell(Command::SharedQp(host, number, qp, inbox));
                }
            }
            Make::Forget(host, number) => {
                if self.ends.remove(&(host, number)).is_some() {
                    self.say(Sharing::Lost { host, number });
                } else {
                    // Behind the command by which it got there.
                    self.tell(Command::Verdict(Verdict::SharedQpLost(host, number)));
                }
            }
            Make::Receive(at) => {
                self.change(at, OwnQp::receive);
                self.say(Sharing::Receives { qpn: at.qpn, life: at.life });
            }
            Make::Send(at) => self.change(at, OwnQp::send),
            Make::OpenSlots(host, number) => self.open_slots(host, number),
            Make::ConnectSlots(host, number, theirs) => {
                self.connect_slots(host, number, &theirs);
            }
            Make::ForgetSlots(host, number) => drop(self.slots.remove(&(host, number))),
            Make::EndSlots(ended) => drop(ended),
        }
    }

    fn tell(&self, command: Command) {
        let _ = self.commands.send(command);
        event::ring(&*self.bell);
    }

    fn say(&self, news: Sharing) {
        let _ = self.news.send(Change::Shared(news));
    }

    fn lost(&self, host: u32, number: u32, reason: &str) {
        tracing::warn!(host, number, reason, "no shared queue pair");
        self.say(Sharing::Lost { host, number });
    }

    /// Makes an end.
    fn begin(
        &mut self,
        host: u32,
        number: u32,
        connect: impl FnOnce(&mut dyn Qp) -> Result<(), String>,
    ) {
        let made = self.create().map_err(|error| error.to_string());
        let made = made.and_then(|(mut qp, inbox)| connect(&mut *qp).map(|()| (qp, inbox)));
        match made {
            Ok(end) => {
                let endpoint = end.0.endpoint().to_string();
                self.ends.insert((host, number), end);
                self.say(Sharing::Made { host, number, endpoint });
            }
            Err(reason) => self.lost(host, number, &reason),
        }
    }

    fn create(&self) -> Result<(Box<dyn Qp>, Inbox), VerbsError> {
        let nothing = || VerbsError::Invalid("this agent shares no queue pairs".to_owned());
        let Parts { pd, cq } = self.parts.as_ref().ok_or_else(nothing)?;
        let init = QpInit {
            max_sge: MAX_SGES as u32,
            max_inline_bytes: MAX_INLINE_BYTES as u32,
            ..QpInit::rc(cq, CHUNKS, INBOX)
        };
        let mut qp = pd.create_qp(init)?;
        let access = Access::REMOTE;
        let changed = qp.modify(QpTransition::ToInit { access });
        changed.map_err(|error| VerbsError::Invalid(error.to_string()))?;
        let inbox = Inbox::new(&**pd, &mut *qp)?;
        Ok((qp, inbox))
    }

    fn finish(&mut self, host: u32, number: u32, remote: &str) {
        let Some((mut qp, inbox)) = self.ends.remove(&(host, number)) else { return };
        match connect(&mut *qp, remote) {
            Ok(()) => {
                self.tell(Command::SharedQp(host, number, qp, inbox));
                self.say(Sharing::Finished { host, number });
            }
            Err(reason) => self.lost(host, number, &reason),
        }
    }

    /// Changes the queue pair of its own of a connection, if there still is one.
    fn change(&self, at: Local, change: impl FnOnce(&mut OwnQp)) {
        let (reply, lent) = channel();
        let Local { key, queue_pair, qpn, life } = at;
        self.tell(Command::Lend(key, queue_pair, reply));
        if let Ok(Some(mut qp)) = lent.recv() {
            if qp.qpn() == qpn && qp.shares_with().is_some_and(|(_, known)| known == life) {
                change(&mut qp);
            }
            self.tell(Command::Return(key, queue_pair, qp, None));
        }
    }

    fn say_of_slots(&self, news: SlotNews) {
        let _ = self.news.send(Change::Slots(news));
    }

    fn open_slots(&mut self, host: u32, number: u32) {
        let made = match SlotQp::make(&*self.context) {
            Ok(made) => made,
            Err(error) => {
                tracing::warn!(host, %error, "no slots: rounds go by the session");
                return self.say_of_slots(SlotNews::Failed(host, number));
            }
        };
        let announcement = made.as_ref().map(|slots| slots.announcement(number));
        self.slots.extend(made.map(|slots| ((host, number), slots)));
        self.say_of_slots(SlotNews::Made(host, number, announcement));
    }

    fn connect_slots(&mut self, host: u32, number: u32, theirs: &Slots) {
        let Some(mut slots) = self.slots.remove(&(host, number)) else { return };
        self.say_of_slots(match slots.connect(theirs) {
            Ok(()) => SlotNews::Connected(host, number, slots),
            Err(reason) => {
                tracing::warn!(host, reason, "slots are not connected: rounds go by the session");
                SlotNews::Failed(host, number)
            }
        });
    }
}
