//! `catchment kv`: serves a key-value store in memory, and reads, writes and measures one.
mod bench;

use crate::args::{Kv, KvAccess, KvArgs, KvGetArgs, KvPutArgs, KvServeArgs, KvSided, PeerFiles};
use crate::cert::tls_failure;
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use crate::{hint, stop};
use anyhow::anyhow;
use catchment::session::io::{Address, ClientSecurity, ServerSecurity};
use catchment::session::reread::{ClientTls, ServerTls};
use catchment_kv::store::Counts;
use catchment_kv::{
    Client, ClientConfig, KvError, Replaced, ServeError, Server, ServerConfig, Sided,
};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

/// Longest value, and what is read of a longer one to see that it is.
const VALUE_READ_MAX: u64 = (1 << 20) + 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum ServerEvent {
    Listening {
        address: String,
        memory_bytes: u64,
    },
    Summary {
        #[serde(flatten)]
        counts: Counts,
    },
}

/// What became of a key.
#[derive(Serialize)]
struct KeyJson<'a> {
    key: &'a str,
    found: bool,
    version: Option<u64>,
    value_bytes: Option<u64>,
    /// The value, if it is text.
    value: Option<&'a str>,
    provider: &'a str,
}

pub(crate) fn run(args: &KvArgs) -> Result<(), Failure> {
    match &args.what {
        Kv::Serve(args) => serve(args),
        Kv::Get(args) => get(args),
        Kv::Put(args) => put(args),
        Kv::Delete(args) => delete(args),
        Kv::Bench(args) => bench::run(args),
    }
}

fn lease(seconds: f64) -> Result<Duration, Failure> {
    let lease = Duration::try_from_secs_f64(seconds).ok();
    let lease = lease.filter(|lease| (0.1..=3600.0).contains(&lease.as_secs_f64()));
    lease.ok_or_else(|| {
        let error = anyhow!("--lease {seconds}: 0.1 to 3600 seconds are possible");
        Failure::new(Code::Usage, error)
    })
}

fn serve(args: &KvServeArgs) -> Result<(), Failure> {
    let insecure = args.security.insecure;
    let tls = args.security.files().map(ServerTls::open).transpose().map_err(tls_failure)?;
    let stop = stop::watch(args.until_stdin_closes, || {})?;
    let started = Server::start(ServerConfig {
        listen: args.listen.clone(),
        memory_bytes: args.memory,
        lease: lease(args.lease)?,
        providers: args.providers.set()?,
        security: ServerSecurity { tls, insecure },
    });
    let server = started.map_err(|error| {
        let is_usage = matches!(error, ServeError::Size(_));
        Failure::new(if is_usage { Code::Usage } else { Code::Local }, error)
    })?;
    hint::warn_insecure(server.local(), insecure);
    let (address, memory_bytes) = (server.local().to_string(), args.memory);
    if args.json {
        output::print_json(&ServerEvent::Listening { address, memory_bytes })?;
    } else {
        say!("a store of {memory_bytes} bytes, in memory only: when this ends, all is gone");
        say!("clients reach it at {address}: catchment kv get --server {address} KEY");
    }
    while !stop.wait(Duration::from_secs(3600)) {}
    let counts = server.counts();
    if args.json {
        return output::print_json(&ServerEvent::Summary { counts });
    }
    say!("{} keys are gone", counts.keys);
    Ok(())
}

fn security(files: &PeerFiles) -> Result<ClientSecurity, Failure> {
    let tls = files.files().map(ClientTls::open).transpose().map_err(tls_failure)?;
    Ok(ClientSecurity { tls, insecure: files.insecure })
}

fn config(server: &Address, access: &KvAccess) -> Result<ClientConfig, Failure> {
    let sided = match access.sided {
        KvSided::One => Sided::One,
        KvSided::Two => Sided::Two,
    };
    Ok(ClientConfig {
        sided,
        providers: access.providers.set()?,
        security: security(&access.security)?,
        ..ClientConfig::new(server.clone())
    })
}

fn connect(server: &Address, access: &KvAccess) -> Result<Client, Failure> {
    Client::connect(&config(server, access)?).map_err(failure)
}

fn failure(error: KvError) -> Failure {
    let is_lost = matches!(
        error,
        KvError::Connect(_) | KvError::Refused { .. } | KvError::Lost(_) | KvError::Request(_)
    );
    let is_usage = matches!(error, KvError::Key(_) | KvError::Value(_) | KvError::NoAtomics);
    let code = match (is_lost, is_usage) {
        (true, _) => Code::Unreachable,
        (_, true) => Code::Usage,
        (false, false) => Code::Failed,
    };
    let failure = Failure::new(code, error);
    if code == Code::Unreachable {
        return failure.hint("`catchment kv serve` serves a store");
    }
    failure
}

fn key(key: &OsStr) -> &[u8] {
    key.as_bytes()
}

fn no_such_key(name: &OsStr) -> Failure {
    Failure::new(Code::Failed, anyhow!("there is no key {:?}", name.to_string_lossy()))
}

fn get(args: &KvGetArgs) -> Result<(), Failure> {
    let mut client = connect(&args.server, &args.access)?;
    let provider = client.path().source.clone();
    let name = args.key.to_string_lossy();
    let value = client.get(key(&args.key)).map_err(failure)?;
    if args.access.json {
        return output::print_json(&KeyJson {
            key: &name,
            found: value.is_some(),
            version: value.map(|value| value.version),
            value_bytes: value.map(|value| value.bytes.len() as u64),
            value: value.and_then(|value| std::str::from_utf8(value.bytes).ok()),
            provider: &provider,
        });
    }
    let value = value.ok_or_else(|| no_such_key(&args.key))?;
    let mut out = std::io::stdout().lock();
    out.write_all(value.bytes).and_then(|()| out.flush()).or_fail(Code::Failed)
}

fn given(args: &KvPutArgs) -> Result<Vec<u8>, Failure> {
    if let Some(value) = &args.value {
        return Ok(value.as_bytes().to_vec());
    }
    let mut value = Vec::new();
    let read = match &args.file {
        Some(file) => {
            let file = std::fs::File::open(file).or_fail(Code::Input)?;
            file.take(VALUE_READ_MAX).read_to_end(&mut value)
        }
        None => std::io::stdin().lock().take(VALUE_READ_MAX).read_to_end(&mut value),
    };
    read.or_fail(Code::Input)?;
    Ok(value)
}

fn put(args: &KvPutArgs) -> Result<(), Failure> {
    let value = given(args)?;
    let mut client = connect(&args.server, &args.access)?;
    let stored = match args.only {
        None => Replaced::Stored(client.put(key(&args.key), &value).map_err(failure)?),
        Some(only) => client.replace(key(&args.key), only, &value).map_err(failure)?,
    };
    let name = args.key.to_string_lossy();
    let (stored, version) = match stored {
        Replaced::Stored(version) => (true, Some(version)),
        Replaced::Changed(version) => (false, version),
    };
    if args.access.json && stored {
        output::print_json(&KeyJson {
            key: &name,
            found: true,
            version,
            value_bytes: Some(value.len() as u64),
            value: None,
            provider: &client.path().source,
        })?;
    }
    if stored {
        return Ok(());
    }
    let now = version.map_or("it does not exist".to_owned(), |now| format!("it is version {now}"));
    Err(Failure::new(Code::Failed, anyhow!("key {name:?} was changed meanwhile: {now}")))
}

fn delete(args: &KvGetArgs) -> Result<(), Failure> {
    let mut client = connect(&args.server, &args.access)?;
    let deleted = client.delete(key(&args.key)).map_err(failure)?;
    if args.access.json {
        return output::print_json(&KeyJson {
            key: &args.key.to_string_lossy(),
            found: deleted.is_some(),
            version: deleted,
            value_bytes: None,
            value: None,
            provider: &client.path().source,
        });
    }
    deleted.map(drop).ok_or_else(|| no_such_key(&args.key))
}
