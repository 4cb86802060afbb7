//! Arguments of `catchment kv`.
use super::values::bytes;
use super::{PeerFiles, ProviderArgs};
use catchment::session::io::Address;
use catchment_kv::load::Mix;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

const HELP: &str = "\
Everything is in memory only, of the process that serves: when it ends, all keys and values are gone. A store
that is full refuses new values and says so; nothing is evicted.

  catchment kv serve --memory 1GiB                    on one host, and from another terminal:
  catchment kv put greeting 'good morning'
  catchment kv get greeting
  catchment kv bench --mix ycsb-b --clients 4";

/// Where a store listens, and where it is looked for.
const ADDRESS: &str = "127.0.0.1:7420";

/// Keep keys and values in registered memory, which clients read and write over RDMA; in memory only
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub(crate) struct KvArgs {
    #[command(subcommand)]
    pub(crate) what: Kv,
}

/// What to do with a store.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Kv {
    /// Serve an empty store; in memory only: when it ends, all is gone
    Serve(KvServeArgs),
    /// Write the value of a key to stdout
    Get(KvGetArgs),
    /// Store a value under a key
    Put(KvPutArgs),
    /// Remove a key
    Delete(KvGetArgs),
    /// Measure a store with a mix of operations
    Bench(KvBenchArgs),
}

/// Serve a store.
#[derive(Debug, Clone, Args)]
pub(crate) struct KvServeArgs {
    /// Address for clients (HOST:PORT)
    #[arg(long, value_name = "ADDR", default_value = ADDRESS)]
    pub(crate) listen: Address,
    /// Memory for keys, values and their index, taken at once: such as 256MiB; 1MiB at least
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = bytes)]
    pub(crate) memory: u64,
    /// A client on another host that is silent for so many seconds is gone
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    pub(crate) lease: f64,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    #[command(flatten)]
    pub(crate) security: PeerFiles,
    /// Write JSON lines: one when it listens, one with counts at its end
    #[arg(long)]
    pub(crate) json: bool,
    /// End when stdin closes, as under another program
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

/// How to reach a store.
#[derive(Debug, Clone, Args)]
pub(crate) struct KvAccess {
    /// Who executes operations
    #[arg(long, value_name = "SIDED", default_value = "one")]
    pub(crate) sided: KvSided,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    #[command(flatten)]
    pub(crate) security: PeerFiles,
    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who executes operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KvSided {
    /// This side, by READs, WRITEs and compare-and-swaps; the server takes no part
    One,
    /// The server, asked by SENDs: for devices without atomics
    Two,
}

/// Read or remove a key.
#[derive(Debug, Clone, Args)]
pub(crate) struct KvGetArgs {
    /// 1 to 1,024 bytes
    #[arg(id = "item", value_name = "KEY")]
    pub(crate) key: OsString,
    /// Where the store listens (HOST:PORT)
    #[arg(long, value_name = "ADDR", default_value = ADDRESS)]
    pub(crate) server: Address,
    #[command(flatten)]
    pub(crate) access: KvAccess,
}

/// Store a value.
#[derive(Debug, Clone, Args)]
pub(crate) struct KvPutArgs {
    /// 1 to 1,024 bytes
    #[arg(id = "item", value_name = "KEY")]
    pub(crate) key: OsString,
    /// Up to 1,048,576 bytes [default: what comes on stdin]
    #[arg(value_name = "VALUE", conflicts_with = "file")]
    pub(crate) value: Option<OsString>,
    /// The value is in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only in place of this version, as `get --json` shows it
    #[arg(long, value_name = "VERSION")]
    pub(crate) only: Option<u64>,
    /// Where the store listens (HOST:PORT)
    #[arg(long, value_name = "ADDR", default_value = ADDRESS)]
    pub(crate) server: Address,
    #[command(flatten)]
    pub(crate) access: KvAccess,
}

/// Measure a store.
#[derive(Debug, Clone, Args)]
pub(crate) struct KvBenchArgs {
    /// Where the store listens (HOST:PORT); its keys user0... are overwritten [default: one is started here]
    #[arg(long, value_name = "ADDR")]
    pub(crate) server: Option<Address>,
    /// ycsb-a to ycsb-f, paper-95-5, paper-50-50 or paper-0-100; popularity of keys is Zipf's, 0.99
    #[arg(long, value_name = "MIX", default_value = "ycsb-b", value_parser = mix)]
    pub(crate) mix: (String, Mix),
    /// Clients, each with a connection and one operation at a time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) clients: u32,
    /// Keys at the beginning
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,
    /// Bytes of a value, 8 to 1048576
    #[arg(long, value_name = "BYTES", default_value = "1KiB", value_parser = bytes)]
    pub(crate) value_bytes: u64,
    /// Seconds to measure
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) access: KvAccess,
}

fn mix(name: &str) -> Result<(String, Mix), String> {
    let names = || Mix::ALL.map(|(name, _)| name).join(", ");
    let found = Mix::find(name).ok_or_else(|| format!("there are {}", names()))?;
    Ok((name.to_owned(), found))
}
