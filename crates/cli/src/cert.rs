//! `catchment cert`: a certificate authority and certificates.
use crate::args::{CertArgs, Security};
use crate::failure::{Code, Failure, OrFail as _};
use crate::output::{self, say};
use crate::stop::Stop;
use catchment::session::cert::{Authority, CertError, Issued};
use catchment::session::io::ClientSecurity;
use catchment::session::reread::{ClientTls, Reread};
use catchment::session::tls::TlsError;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

pub(crate) const CERT_HINT: &str =
    "`catchment cert --out DIR --name NAME` makes a certificate, its key and the authority";

/// Reads the certificates of a side that connects, if it has any.
pub(crate) fn client_security(security: &Security) -> Result<ClientSecurity, Failure> {
    let tls = security.files().map(ClientTls::open).transpose();
    let tls = tls.map_err(tls_failure)?;
    Ok(ClientSecurity { tls, insecure: security.insecure })
}

/// Where files are the wrong ones, says how to make right ones.
pub(crate) fn tls_failure(error: TlsError) -> Failure {
    let is_ours = matches!(error, TlsError::Exposed { .. });
    let failure = Failure::new(Code::Local, error);
    if is_ours { failure } else { failure.hint(CERT_HINT) }
}

/// Makes SIGHUP read the certificates again in place of ending this process, if there are any.
pub(crate) fn reread_on_hangup<C: Send + Sync + 'static>(
    stop: &Stop,
    tls: Option<&Arc<Reread<C>>>,
) {
    let Some(tls) = tls.cloned() else { return };
    stop.on_hangup(Arc::new(move || match tls.reread() {
        Ok(()) => say!("the certificates are read again; open connections keep those they have"),
        Err(error) => say!("warning: the certificates stay as they were: {error}"),
    }));
}

const DAY: Duration = Duration::from_secs(86_400);

pub(crate) fn run(args: &CertArgs) -> Result<(), Failure> {
    let now = SystemTime::now();
    let authority = authority(args, now)?;
    let validity = DAY * u32::try_from(args.days).unwrap_or(u32::MAX);
    for names in &args.name {
        let subjects: Vec<&str> = names.split(',').map(str::trim).collect();
        // `[::1]` and `*` cannot stand in a device-like name.
        let file_name = subjects[0].replace([':', '*'], "_");
        let issued = authority.issue(&file_name, &subjects, now, validity).map_err(failure)?;
        print_issued(args, &subjects, &issued)?;
    }
    Ok(())
}

fn authority(args: &CertArgs, now: SystemTime) -> Result<Authority, Failure> {
    if args.out.join("ca.key").exists() || args.out.join("ca.pem").exists() {
        return Authority::open(&args.out).map_err(failure);
    }
    let authority = Authority::create(&args.out, now).map_err(failure)?;
    say!("made a certificate authority: {}", authority.certificate().display());
    Ok(authority)
}

fn failure(error: CertError) -> Failure {
    let wrong_words = matches!(
        error,
        CertError::Name(_)
            | CertError::Reserved
            | CertError::Subject { .. }
            | CertError::NoSubject
            | CertError::Validity(_)
    );
    Failure::new(if wrong_words { Code::Usage } else { Code::Local }, error)
}

fn print_issued(args: &CertArgs, subjects: &[&str], issued: &Issued) -> Result<(), Failure> {
    let files = &issued.files;
    if args.json {
        return output::print_json(&serde_json::json!({
            "names": subjects,
            "cert": files.cert,
            "key": files.key,
            "ca": files.ca,
            "not_after_unix_s": issued.not_after.duration_since(SystemTime::UNIX_EPOCH)
                .map(|time| time.as_secs()).or_fail(Code::Failed)?,
        }));
    }
    output::print(&format!(
        "for {}, {} days:\n  --cert {} --key {} --ca {}\n",
        subjects.join(", "),
        args.days,
        files.cert.display(),
        files.key.display(),
        files.ca.display()
    ))
}
