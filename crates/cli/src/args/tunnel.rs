//! Arguments of `catchment tunnel`.
use super::ProviderArgs;
use catchment::session::io::{Address, AddressError};
use catchment::session::tls::TlsFiles;
use catchment_tunnel::Mode;
use catchment_tunnel::session::message::WINDOWS;
use catchment_tunnel::session::{STREAMS, WINDOW_BYTES};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Where the end of services listens, unless told otherwise, and the port at which it is looked for.
const ADDRESS: &str = "127.0.0.1:7119";
const PORT: u16 = 7119;

const HELP: &str = "\
On the host of the service, then on that of its clients, which connect to the tunnel in its place:
  catchment tunnel serve --service redis=127.0.0.1:6379 --listen 10.0.0.2:7119 --cert ... --key ... --ca ...
  catchment tunnel --listen 127.0.0.1:6379 --to 10.0.0.2:7119 --service redis --cert ... --key ... --ca ...

Beyond loopback the session needs certificates (`catchment cert` makes them), and with them packets are
authenticated (roce only), not encrypted; --insecure does without. Each end says which it has.";

/// Carry TCP connections of unmodified programs over RDMA: the end of their clients
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct TunnelArgs {
    /// Where clients connect: HOST:PORT, [IPV6]:PORT or unix:PATH
    #[arg(long, value_name = "ADDR", required = true)]
    pub(crate) listen: Option<Address>,
    /// The other end, `catchment tunnel serve`: HOST or HOST:PORT; port 7119 unless it is given
    #[arg(long, value_name = "ADDR", required = true, value_parser = there)]
    pub(crate) to: Option<Address>,
    /// The name of the service there
    #[arg(long, value_name = "NAME", required = true)]
    pub(crate) service: Option<String>,
    /// How messages travel, both ways: by WRITEs with immediate, by WRITEs that the other end looks for, or by SENDs
    #[arg(long, default_value_t, value_parser = modes())]
    pub(crate) mode: Mode,
    #[command(flatten)]
    pub(crate) end: TunnelEndArgs,
    #[command(subcommand)]
    pub(crate) command: Option<TunnelCommand>,
}

/// The other end.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum TunnelCommand {
    /// Carry TCP connections of unmodified programs over RDMA: the end of their services
    Serve(TunnelServeArgs),
}

/// Carry TCP connections of unmodified programs over RDMA: the end of their services
#[derive(Debug, Clone, Args)]
pub(crate) struct TunnelServeArgs {
    /// A service by name, and where it listens: NAME=HOST:PORT or NAME=unix:PATH (may be given several times)
    #[arg(long = "service", value_name = "NAME=ADDR", required = true, value_parser = service)]
    pub(crate) services: Vec<(String, Address)>,
    /// Where ends with clients reach this one: HOST:PORT
    #[arg(long, value_name = "ADDR", default_value = ADDRESS)]
    pub(crate) listen: Address,
    #[command(flatten)]
    pub(crate) end: TunnelEndArgs,
}

/// What both ends have.
#[derive(Debug, Clone, Args)]
pub(crate) struct TunnelEndArgs {
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Certificate of this end (PEM); needed off loopback, `catchment cert` makes it. Read again, as key and
    /// authority, when it changes
    #[arg(long, value_name = "FILE", requires_all = ["key", "ca"])]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Certificate of the authority that the other end's certificate must be from (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    ca: Option<PathBuf>,
    /// Off loopback without certificates; with them, over packets that are not authenticated: whoever is on the way
    /// can read and change everything
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Most connections at a time, 1 to 65536
    #[arg(long, value_name = "N", default_value_t = STREAMS, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) connections: u32,
    /// Bytes of a connection that this end takes before its program has read them, 4096 to 67108864
    #[arg(long, value_name = "BYTES", default_value_t = WINDOW_BYTES, value_parser = window)]
    pub(crate) window: u32,
    /// Write JSON lines: one when it listens, one for each session and its end, one with all counts at its end
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes, as under another program
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

impl TunnelEndArgs {
    pub(crate) fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { cert: self.cert.clone()?, key: self.key.clone()?, ca: self.ca.clone()? })
    }
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).try_map(|name| name.parse::<Mode>())
}

/// Reads the address of the other end, with the port that it has where none is given.
fn there(text: &str) -> Result<Address, AddressError> {
    let has_port = text.contains(':') && !text.ends_with(']');
    if has_port { text.parse() } else { format!("{text}:{PORT}").parse() }
}

fn service(text: &str) -> Result<(String, Address), String> {
    let (name, address) = text.split_once('=').ok_or("use NAME=HOST:PORT or NAME=unix:PATH")?;
    let address = address.parse().map_err(|error| format!("{error}"))?;
    Ok((name.to_owned(), address))
}

fn window(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|bytes| WINDOWS.contains(bytes));
    bytes.ok_or_else(|| format!("a window has {} to {} bytes", WINDOWS.start(), WINDOWS.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_at_its_port_unless_another_is_given() {
        for (text, address) in [
            ("b", "b:7119"),
            ("10.0.0.2", "10.0.0.2:7119"),
            ("[fd00::1]", "[fd00::1]:7119"),
            ("b:5", "b:5"),
            ("[fd00::1]:5", "[fd00::1]:5"),
        ] {
            assert_eq!(there(text).unwrap().to_string(), address);
        }
        assert_eq!(ADDRESS.parse::<Address>().unwrap(), there("127.0.0.1").unwrap());
        for wrong in ["fd00::1", "http://b", "", "b:port"] {
            assert!(there(wrong).is_err(), "{wrong}");
        }
    }
}
