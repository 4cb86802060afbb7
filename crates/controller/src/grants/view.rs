//! How the thread that grants stands, for people and programs.
use super::{Grants, Known};
use crate::config::{Class, Link};
use crate::status::{
    BeforeStatus, ClassStatus, DatagramStatus, LinkStatus, RateStatus, SourceStatus, Status,
    StreamStatus, TransferState, TransferStatus,
};
use catchment_control::admission::controller_side::{ClassView, RateView, SourceView};
use catchment_control::admission::{ClassId, Doing, Explanation, LinkId, SourceId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::PoisonError;

impl Known {
    fn names(&self) -> Vec<String> {
        self.names.lines().map(str::to_owned).collect()
    }
}

impl Grants {
    pub(super) fn status(&self) -> Status {
        let controller = self.side.controller();
        let link = |(at, link): (u16, &Link)| LinkStatus {
            name: link.name.clone(),
            capacity_bps: link.capacity_bps,
            working_bps: controller
                .capacity_bps(LinkId(at))
                .map_or(link.capacity_bps, |(_, bps)| bps),
            granted_bps: controller.in_force_bps(LinkId(at)).unwrap_or(0)
                + controller.periodic_bps(LinkId(at)).unwrap_or(0),
        };
        let views = self.side.classes();
        let class = |(class, view): (&Class, _)| {
            let ClassView { waiting, granted, on_time, late, dropped } = view;
            ClassStatus { name: class.name.clone(), waiting, granted, on_time, late, dropped }
        };
        let counts = self.side.counts();
        Status {
            term: self.term,
            uptime_s: (self.began.elapsed().as_secs_f64() * 10.0).round() / 10.0,
            lease_ms: self.settings.lease_ns / 1_000_000,
            superseded: self.superseded,
            links: (0..).zip(&self.settings.links).map(link).collect(),
            classes: self.settings.classes.iter().zip(views).map(class).collect(),
            sources: self.sources(),
            datagrams: DatagramStatus {
                opened: counts.opened,
                sent: counts.sent,
                hints: counts.hints,
                malformed: counts.malformed,
                unknown: counts.unknown,
                forged: counts.forged,
                replayed: counts.replayed,
            },
        }
    }

    fn sources(&self) -> Vec<SourceStatus> {
        let by_number: BTreeMap<u32, &Known> =
            self.known.values().map(|known| (known.number, known)).collect();
        let source = |view: SourceView| {
            let known = by_number.get(&view.source.0);
            let (rates, rates_bps) = self.side.rates(view.source);
            SourceStatus {
                source: view.source.0,
                carried: self.is_carried(view.address),
                address: view.address.map(|address| address.to_string()),
                certificate: known
                    .and_then(|known| known.certificate.as_deref().map(str::to_owned)),
                devices: known.map_or(Vec::new(), |known| known.names()),
                waiting: view.waiting,
                granted_bps: view.granted_bps + rates_bps,
                rates,
                rates_bps,
                silent_ms: view.silent_ns / 1_000_000,
            }
        };
        self.side.views().map(source).collect()
    }

    fn is_carried(&self, address: Option<SocketAddr>) -> bool {
        let carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        address.is_some_and(|address| carried.contains(&address))
    }

    /// Returns what the streams of a name wait for, one of each source that has it.
    pub(super) fn explain(&self, device: &str) -> Vec<StreamStatus> {
        let mut streams = Vec::new();
        for known in self.known.values() {
            let Some(place) = known.names.lines().position(|name| name == device) else {
                continue;
            };
            let source = SourceId(known.number);
            let class = self.side.class(source, place);
            let class = class.and_then(|ClassId(at)| self.settings.classes.get(usize::from(at)));
            let view = self.side.views().find(|view| view.source == source);
            let transfer = self.side.explain(source, place);
            let notes = known.notes.iter().filter(|(at, _)| *at == place);
            streams.push(StreamStatus {
                source: known.number,
                carried: self.is_carried(view.and_then(|view| view.address)),
                address: view.and_then(|view| view.address).map(|address| address.to_string()),
                certificate: known.certificate.as_deref().map(str::to_owned),
                device: device.to_owned(),
                class: class.map(|class| class.name.clone()).unwrap_or_default(),
                notes: notes.map(|(_, note)| note.clone()).collect(),
                silent_ms: view.map_or(0, |view| view.silent_ns / 1_000_000),
                rate: self.side.rate(source, place).map(|view| {
                    let RateView { wanted_bps, rate_bps, could_bps } = view;
                    RateStatus { wanted_bps, rate_bps, could_bps }
                }),
                transfer: transfer.map(|transfer| self.transfer(&transfer)),
            });
        }
        streams.sort_by_key(|stream| stream.source);
        streams
    }

    fn transfer(&self, told: &Explanation) -> TransferStatus {
        let ms = |ns: f64| (ns / 1e4).round() / 100.0;
        let class = |ClassId(at): ClassId| {
            self.settings.classes.get(usize::from(at)).map(|class| class.name.clone())
        };
        let before = told.before.iter().map(|(id, before)| BeforeStatus {
            class: class(*id).unwrap_or_default(),
            transfers: before.transfers,
            bytes: before.bytes,
        });
        let link = self.settings.links.get(usize::from(told.link.0));
        TransferStatus {
            state: match told.doing {
                Doing::Waiting => TransferState::Waiting,
                Doing::Granted => TransferState::Granted,
                Doing::Stopping => TransferState::Stopping,
            },
            age_ms: ms(told.age_ns as f64),
            left_bytes: told.left_bytes,
            rate_bps: told.rate_bps,
            link: link.map(|link| link.name.clone()).unwrap_or_default(),
            link_granted_bps: told.load_bps,
            link_capacity_bps: told.capacity_bps,
            before: before.collect(),
            starts_in_ms: ms(told.starts_in_ns as f64),
            spare_ms: ms(told.spare_ns as f64),
            is_demoted: told.is_demoted,
            is_over_share: told.is_surplus,
            is_lowered: told.is_lowered,
        }
    }
}
