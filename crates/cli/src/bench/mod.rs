//! `catchment bench`: how fast the way is, in the manner of perftest.

mod child;
mod rows;

use crate::args::{Bench, BenchArgs, ProviderArgs, ServerArgs, ServerAt, TestArgs};
use crate::failure::{Code, Failure, OrFail as _};
use crate::output;
use crate::stop;
use catchment::perf::{Client, PathTaken, PerfError, Row, Server, Setup, Test, Waiting};
use catchment::roce::RoceOptions;
use child::OwnServer;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// What `server --json` writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ServerEvent {
    Listening { address: SocketAddr },
    Served { client: SocketAddr, plans: u64 },
    Failed { error: String },
}

/// What a test writes with `--json`: once this, then a row for each size.
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
    #[serde(flatten)]
    row: Row,
}

/// Serves, or measures.
pub(crate) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match (&args.what, args.what.test()) {
        (_, Some((test, args))) => measure(test, args),
        (Bench::Server(args), _) => serve(args),
        (_, None) => Ok(()),
    }
}

fn setup(providers: &ProviderArgs, waiting: Waiting) -> Result<Setup, Failure> {
    providers.rules().check().or_fail(Code::Usage)?;
    Ok(Setup {
        rules: providers.rules(),
        roce: RoceOptions {
            // Who polls all the time does the work itself, as the perftest programs do.
            inline_polling: waiting == Waiting::Yield,
            ..providers.roce()
        },
        ibverbs: providers.devices.ibverbs(),
    })
}

fn serve(args: &ServerArgs) -> Result<(), Failure> {
    // The engine's thread works where nobody polls.
    let setup = setup(&args.providers, Waiting::Yield)?;
    let server = Server::bind(args.listen, setup).map_err(failure)?;
    let address = server.local_address().map_err(failure)?;
    stop::watch(args.until_stdin_closes, || std::process::exit(0))?;
    tell(args, &ServerEvent::Listening { address })?;
    loop {
        let event = match server.serve() {
            Ok(served) => ServerEvent::Served {
                client: served.client,
                plans: served.plans,
            },
            Err(error) => ServerEvent::Failed {
                error: error.to_string(),
            },
        };
        tell(args, &event)?;
        if args.once {
            return Ok(());
        }
    }
}

fn tell(args: &ServerArgs, event: &ServerEvent) -> Result<(), Failure> {
    if args.json {
        return output::print_json(event);
    }
    output::print(&match event {
        ServerEvent::Listening { address } => format!("waits to be measured at {address}\n"),
        ServerEvent::Served { client, plans } => format!("{client}: {plans} measurements\n"),
        ServerEvent::Failed { error } => format!("a client failed: {error}\n"),
    })
}

fn measure(test: Test, args: &TestArgs) -> Result<(), Failure> {
    let plans = args.plans(test);
    plans
        .iter()
        .try_for_each(|plan| plan.check().map_err(failure))?;
    let waiting = plans.first().map_or(Waiting::Sleep, |plan| plan.waiting);
    let setup = setup(&args.providers, waiting)?;
    let own = match args.connect {
        Some(_) => None,
        None => Some(OwnServer::start(&args.providers)?),
    };
    let at = match (&args.connect, &own) {
        (Some(at), _) => at.clone(),
        (None, Some(own)) => ServerAt {
            host: own.address.ip().to_string(),
            port: own.address.port(),
        },
        (None, None) => return Ok(()),
    };
    let mut client = Client::connect((&at.host, at.port), &setup).map_err(failure)?;
    begin(test, args, &at, &client.path())?;
    for plan in plans {
        let row = client.measure(plan).map_err(failure)?;
        if args.json {
            output::print_json(&RowJson {
                test: test.name(),
                row,
            })?;
        } else {
            output::print(&rows::line(&row, args.report_gbits))?;
        }
    }
    Ok(())
}

fn begin(test: Test, args: &TestArgs, at: &ServerAt, path: &PathTaken) -> Result<(), Failure> {
    let server = if args.connect.is_some() {
        format!("{}:{}", at.host, at.port)
    } else {
        "another process of this machine".to_owned()
    };
    if args.json {
        return output::print_json(&PathJson {
            test: test.name(),
            server: &server,
            client_provider: &path.client,
            server_provider: &path.server,
            path_mtu: path.path_mtu,
            reason: &path.reason,
        });
    }
    let providers = if path.client == path.server {
        path.client.clone()
    } else {
        format!("{} here, {} there", path.client, path.server)
    };
    let why = &path.reason;
    let head = format!("{test} with {server} over {providers}: {why}\n");
    output::print(&(head + &rows::heading(test, args.report_gbits)))
}

/// With the exit code that fits.
fn failure(error: PerfError) -> Failure {
    let code = if matches!(error, PerfError::Plan(_)) {
        Code::Usage
    } else if matches!(
        error,
        PerfError::Unreachable { .. } | PerfError::Refused { .. }
    ) {
        Code::Unreachable
    } else if matches!(error, PerfError::Listen { .. } | PerfError::Host(_)) {
        Code::Local
    } else {
        Code::Failed
    };
    Failure::new(code, error)
}
