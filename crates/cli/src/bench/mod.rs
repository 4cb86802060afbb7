//! `catchment bench`: measures a path in the manner of perftest.
mod child;
mod rows;

use crate::args::{
    Bench, BenchArgs, Measuring, ProviderArgs, ServerArgs, ServerAt, TestArgs, TransferArgs,
};
use crate::failure::{Code, Failure};
use crate::output::{self, say};
use crate::{hint, stop};
use anyhow::anyhow;
use catchment::perf::{
    BlockMechanism, BlockPlan, Client, Figure, PerfError, Plan, Row, STATUS_BYTE, Server, Setup,
    Test, Waiting, find_mechanism,
};
use catchment::roce::RoceOptions;
use catchment::session::message::SessionPath;
use child::OwnServer;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ServerEvent {
    Listening { address: SocketAddr },
    Served { client: SocketAddr, plans: u64 },
    Failed { error: String },
}

#[derive(Debug, Serialize)]
struct PathJson<'a> {
    test: &'a str,
    server: &'a str,
    client_provider: &'a str,
    server_provider: &'a str,
    path_mtu: Option<u32>,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct RowJson<'a> {
    test: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mechanism: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u32>,
    #[serde(flatten)]
    row: Row,
}

/// A program that measures.
#[derive(Debug)]
pub struct Program {
    /// The word of the program's command line that [`BenchArgs`] stand behind.
    pub command: &'static str,
    /// What can move blocks.
    pub mechanisms: &'static [&'static dyn BlockMechanism],
    /// What to do for a mechanism that is not among them.
    pub hint: &'static str,
}

impl Program {
    /// The `catchment` command.
    pub(crate) const CATCHMENT: Self = Self {
        command: "bench",
        mechanisms: STATUS_BYTE,
        hint: "windows, rendezvous and other mechanisms to compare with are measured by \
               `cargo xtask bench mechanisms`",
    };

    fn setup(&self, providers: &ProviderArgs, waiting: Waiting) -> Result<Setup, Failure> {
        let roce = RoceOptions {
            // A client that polls all the time does the work itself, as the perftest programs do.
            inline_polling: waiting == Waiting::Yield,
            ..providers.roce()
        };
        Ok(Setup { providers: providers.set()?.with(roce), mechanisms: self.mechanisms })
    }
}

pub(crate) fn run(args: &BenchArgs, program: &Program) -> Result<(), Failure> {
    match (&args.what, args.what.test()) {
        (_, Some((which, args))) => test(which, args, program),
        (Bench::Server(args), _) => serve(args, program),
        (Bench::Transfer(args), _) => transfer(args, program),
        (_, None) => Ok(()),
    }
}

fn serve(args: &ServerArgs, program: &Program) -> Result<(), Failure> {
    // The engine's thread works unless a client polls.
    let setup = program.setup(&args.providers, Waiting::Yield)?;
    let listen = args.listen.into();
    if hint::is_remote(&listen) && !args.insecure {
        let error = anyhow!(
            "whoever reaches {listen} could measure with this host, and nobody proves who they are"
        );
        return Err(Failure::new(Code::Usage, error)
            .hint("allow it with --insecure, or listen on 127.0.0.1"));
    }
    let server = Server::bind(args.listen, setup).map_err(failure)?;
    let address = server.local_address().map_err(failure)?;
    hint::warn_insecure(&address.into(), args.insecure);
    stop::watch(args.until_stdin_closes, || std::process::exit(0))?;
    print_event(args, &ServerEvent::Listening { address })?;
    loop {
        let event = match server.serve() {
            Ok(served) => ServerEvent::Served { client: served.client, plans: served.plans },
            Err(error) => ServerEvent::Failed { error: error.to_string() },
        };
        print_event(args, &event)?;
        if args.once {
            return Ok(());
        }
    }
}

fn print_event(args: &ServerArgs, event: &ServerEvent) -> Result<(), Failure> {
    if args.json {
        return output::print_json(event);
    }
    output::print(&match event {
        ServerEvent::Listening { address } => format!("waiting for a client at {address}\n"),
        ServerEvent::Served { client, plans } => format!("{client}: {plans} measurements\n"),
        ServerEvent::Failed { error } => format!("a client failed: {error}\n"),
    })
}

fn test(test: Test, args: &TestArgs, program: &Program) -> Result<(), Failure> {
    let heading = rows::heading(test.figure, args.measuring.report_gbits);
    let head = (test.name(), test.figure, heading);
    let plans = args.plans(test).into_iter().map(Work::Requests).collect();
    measure(program, head, &args.measuring, plans, false)
}

fn transfer(args: &TransferArgs, program: &Program) -> Result<(), Failure> {
    let figure = args.figure();
    let head = ("transfer", figure, rows::block_heading(figure, args.measuring.report_gbits));
    let names: Vec<&str> = program.mechanisms.iter().map(|one| one.name()).collect();
    let plans = args.plans(&names).into_iter().map(Work::Blocks).collect();
    measure(program, head, &args.measuring, plans, args.is_about_all())
}

/// What is measured: requests, or blocks.
enum Work {
    Requests(Plan),
    Blocks(BlockPlan),
}

impl Work {
    fn check(&self, program: &Program) -> Result<(), Failure> {
        let plan = match self {
            Self::Requests(plan) => return plan.check().map_err(failure),
            Self::Blocks(plan) => plan,
        };
        let known = program.mechanisms.iter().any(|one| one.name() == plan.mechanism);
        match find_mechanism(plan, program.mechanisms).map_err(failure) {
            Err(failure) if !known => Err(failure.hint(program.hint)),
            checked => checked.map(drop),
        }
    }

    fn measure(&self, client: &mut Client) -> Result<Row, PerfError> {
        match self {
            Self::Requests(plan) => client.measure(plan),
            Self::Blocks(plan) => client.measure_blocks(plan),
        }
    }

    fn print(&self, test: &str, row: Row, common: &Measuring) -> Result<(), Failure> {
        let (mechanism, blocks) = match self {
            Self::Requests(_) => (None, None),
            Self::Blocks(plan) => (Some(plan.mechanism.as_str()), Some(plan.blocks)),
        };
        if common.json {
            return output::print_json(&RowJson { test, mechanism, blocks, row });
        }
        output::print(&match self {
            Self::Requests(_) => rows::line(&row, common.report_gbits),
            Self::Blocks(plan) => rows::block_line(plan, &row, common.report_gbits),
        })
    }
}

/// Carries out plans one after the other. With `leaves_out`, those that this path does not support are
/// named and skipped.
fn measure(
    program: &Program,
    (test, figure, heading): (&str, Figure, String),
    common: &Measuring,
    plans: Vec<Work>,
    leaves_out: bool,
) -> Result<(), Failure> {
    plans.iter().try_for_each(|plan| plan.check(program))?;
    let mut connected = Connected::to(common, common.waiting(figure), program)?;
    connected.begin(test, common)?;
    if !common.json {
        output::print(&heading)?;
    }
    for plan in plans {
        let row = match plan.measure(&mut connected.client) {
            Err(error @ PerfError::Plan(_)) if leaves_out => {
                say!("left out: {error}");
                continue;
            }
            row => row.map_err(failure)?,
        };
        plan.print(test, row, common)?;
    }
    Ok(())
}

struct Connected {
    client: Client,
    server: String,
    _own: Option<OwnServer>,
}

impl Connected {
    fn to(args: &Measuring, waiting: Waiting, program: &Program) -> Result<Self, Failure> {
        let setup = program.setup(&args.providers, waiting)?;
        let (own, at) = match &args.connect {
            Some(at) => (None, at.clone()),
            None => {
                args.providers.check_fault_within_host()?;
                let own = OwnServer::start(&args.providers, program)?;
                let at = ServerAt { host: own.address.ip().to_string(), port: own.address.port() };
                (Some(own), at)
            }
        };
        let server = match own {
            Some(_) => "another process of this machine".to_owned(),
            None => format!("{}:{}", at.host, at.port),
        };
        Ok(Self {
            client: Client::connect((&at.host, at.port), &setup).map_err(failure)?,
            server,
            _own: own,
        })
    }

    fn begin(&self, test: &str, args: &Measuring) -> Result<(), Failure> {
        let (server, reason) = (&self.server, self.client.reason());
        let SessionPath { source, collector, path_mtu, .. } = self.client.path();
        if args.json {
            return output::print_json(&PathJson {
                test,
                server,
                client_provider: source,
                server_provider: collector,
                path_mtu: *path_mtu,
                reason,
            });
        }
        let providers = if source == collector {
            source.clone()
        } else {
            format!("{source} here, {collector} there")
        };
        output::print(&format!("{test} with {server} over {providers}: {reason}\n"))
    }
}

fn failure(error: PerfError) -> Failure {
    let code = if matches!(error, PerfError::Plan(_)) {
        Code::Usage
    } else if matches!(error, PerfError::Unreachable { .. } | PerfError::Refused { .. }) {
        Code::Unreachable
    } else if matches!(error, PerfError::Listen { .. } | PerfError::Host(_)) {
        Code::Local
    } else {
        Code::Failed
    };
    Failure::new(code, error)
}
