//! One session without devices: up to the proof that packets pass, and no further.
use super::ExplainError;
use catchment::observe::SessionSnapshot;
use catchment::providers::Offers;
use catchment::session::io::{Connection, Handler, Lost, drive};
use catchment::session::message::{FailedPath, Hello, SessionPath, Welcome};
use catchment::session::refusal::{Refusal, RefusalCode};
use catchment::session::source_side::{
    Ended, Side as _, SourceEvent, SourceSide, SourceSideConfig,
};
use catchment::source::probe::{
    Connecting, LinkError, Prepared, SEND_WRS, check_welcome, unusable,
};
use std::time::{Duration, Instant};

#[derive(Clone)]
pub(super) struct Proven {
    pub(super) session: SessionSnapshot,
    pub(super) took: Duration,
}

struct Refuted {
    /// The path MTU that was too large, if that is all.
    path_mtu: Option<u32>,
    reason: String,
}

pub(super) enum Attempt {
    Proven(Proven),
    Failed(FailedPath),
    Refused(Refusal),
}

pub(super) struct Visit {
    offers: Offers,
    peer: String,
    prepared: Option<(Prepared, Welcome)>,
    /// The running proof, which returns how long it took.
    proving: Option<Connecting<Duration>>,
    path: Option<SessionPath>,
    /// What the proof showed: the session and how long it took, or why not.
    outcome: Option<Result<Proven, Refuted>>,
    /// Why the connection is gone, where that says more than the end of the session.
    broken: Option<String>,
}

impl Handler for Visit {
    type Side = SourceSide;
    type Wake = Result<Duration, LinkError>;

    async fn on_event(&mut self, side: &mut SourceSide, event: SourceEvent) -> Result<(), Refusal> {
        match event {
            SourceEvent::Welcomed(welcome) => self.on_welcome(side, welcome),
            SourceEvent::Ready => self.on_ready(),
            SourceEvent::Sink(_) | SourceEvent::Delivered(_) => Ok(()),
        }
    }

    async fn woken(&mut self) -> Result<Duration, LinkError> {
        Connecting::done(&mut self.proving).await
    }

    fn on_wake(&mut self, side: &mut SourceSide, proven: Result<Duration, LinkError>) {
        let Some(proving) = self.proving.take() else { return };
        match proven {
            Ok(took) => {
                let session = proving.session.clone();
                self.outcome = Some(Ok(Proven { session, took }));
                if let Err(error) = side.goodbye(Vec::new()) {
                    tracing::debug!(%error, "cannot say goodbye");
                }
            }
            Err(error) => {
                side.refuse(self.fail(&error));
            }
        }
    }

    fn lost(&mut self, lost: Lost) {
        if lost.is_final() || matches!(lost, Lost::Send(_)) {
            self.broken = Some(lost.to_string());
        }
    }
}

impl Visit {
    /// Holds the session that begins with `hello`, which has no devices, and returns what it showed.
    pub(super) async fn make(
        mut connection: Connection,
        offers: Offers,
        config: SourceSideConfig,
        hello: Hello,
    ) -> Result<Attempt, ExplainError> {
        let mut side = SourceSide::new(Instant::now(), config, hello);
        let mut visit = Self {
            offers,
            peer: connection.peer().to_string(),
            prepared: None,
            proving: None,
            path: None,
            outcome: None,
            broken: None,
        };
        let ended = drive(&mut side, &mut connection, &mut visit).await;
        match visit.broken.take() {
            Some(reason) => Err(ExplainError::Broken(reason)),
            None => visit.judge(&ended),
        }
    }

    fn on_welcome(&mut self, side: &mut SourceSide, welcome: Welcome) -> Result<(), Refusal> {
        check_welcome(&welcome)?;
        self.path = Some(welcome.path.clone());
        let Some(context) = self.offers.context(&welcome.path) else {
            return Err(unusable(&"a provider that was not offered"));
        };
        let prepared = match Prepared::new(context, SEND_WRS) {
            Ok(prepared) => prepared,
            Err(error) => return Err(self.fail(&error)),
        };
        let connect = side.connect(Instant::now(), prepared.endpoint(), Vec::new());
        self.prepared = Some((prepared, welcome));
        connect.map_err(|error| unusable(&error))
    }

    fn on_ready(&mut self) -> Result<(), Refusal> {
        let Some((prepared, welcome)) = self.prepared.take() else {
            return Err(unusable(&"Ready without a queue pair"));
        };
        let peer = self.peer.clone();
        let prove = |mut prepared: Prepared, target| {
            let begun = Instant::now();
            prepared.reach(&target).map(|()| begun.elapsed())
        };
        self.proving = Some(Connecting::begin(prepared, &welcome, peer, prove)?);
        Ok(())
    }

    fn fail(&mut self, error: &LinkError) -> Refusal {
        self.outcome =
            Some(Err(Refuted { path_mtu: error.too_large(), reason: error.to_string() }));
        error.refusal()
    }

    fn judge(&self, ended: &Ended) -> Result<Attempt, ExplainError> {
        let failed = |path_mtu, reason: &str| {
            let path = self.path.as_ref()?;
            Some(Attempt::Failed(path.failed(path_mtu, reason)))
        };
        let attempt = match (&self.outcome, ended.peer_refusal()) {
            (Some(Ok(proven)), _) => Some(Attempt::Proven(proven.clone())),
            (_, Some(refusal)) if refusal.code == RefusalCode::PathFailed => {
                failed(None, &refusal.reason)
            }
            (_, Some(refusal)) => Some(Attempt::Refused(refusal.clone())),
            (Some(Err(refuted)), None) => failed(refuted.path_mtu, &refuted.reason),
            (None, None) => None,
        };
        attempt.ok_or_else(|| ExplainError::Broken(ended.to_string()))
    }
}
