//! The server of the state directory: its configuration, its certificate, and whether it responds.

use std::path::Path;
use std::time::{Duration, SystemTime};

use muster_core::ErrorChain;
use muster_server::pki::{BUNDLE_FILE, CA_FILE, OwnFiles, Seen, files};
use muster_server::state_dir::{Connection, StateDir, StateDirError};

use super::finding::{Finding, State};
use crate::client;
use crate::config::Config;
use crate::failure::{CliResult, Failure, printable};
use crate::server_location::Server;
use crate::server_process;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The server renews its own certificate a month before it expires; one that is closer to its end is not being renewed.
const RENEWED_BEFORE: Duration = Duration::from_secs(29 * 24 * 60 * 60);

pub struct Facts {
    pub config: Result<(), String>,
    /// The operator's own certificate; `None` if there is none.
    pub own: Option<Result<(), String>>,
    pub certificate: Result<Option<Seen>, String>,
    pub server: Found,
    /// The command that starts the server.
    pub start: String,
}

/// What is known about the server.
pub enum Found {
    Never,
    Unknown(String),
    Known {
        url: String,
        /// A process holds the directory's lock.
        is_held: bool,
        answer: Result<u16, String>,
    },
}

pub fn look(state_dir: &Path, config: &CliResult<Config>, within: Duration) -> Facts {
    let dir = StateDir::new(state_dir);
    let message = |failure: &Failure| failure.to_string();
    let own = config.as_ref().ok().and_then(|config| {
        let (cert, key) = (config.path("tls-cert")?, config.path("tls-key")?);
        let host = config.text("public-host").unwrap_or("localhost").to_owned();
        let read = OwnFiles { cert, key, host }.read(SystemTime::now());
        Some(read.map(drop).map_err(|why| printable(&ErrorChain(&why).to_string())))
    });
    let certificate = muster_server::pki::look(&dir.pki());
    Facts {
        start: dir.start_command(),
        config: config.as_ref().map(|_| ()).map_err(message),
        own,
        certificate: certificate.map_err(|why| printable(&ErrorChain(&why).to_string())),
        server: match dir.read_connection() {
            Err(StateDirError::NeverStarted { .. }) => Found::Never,
            Err(why) => Found::Unknown(printable(&ErrorChain(&why).to_string())),
            Ok(connection) => Found::Known {
                is_held: server_process::holder(&dir, connection.pid).is_some(),
                answer: ask(&dir, &connection, within),
                url: connection.url,
            },
        },
    }
}

fn ask(dir: &StateDir, connection: &Connection, within: Duration) -> Result<u16, String> {
    let ca = if connection.has_own_certificate { BUNDLE_FILE } else { CA_FILE };
    let ca_file = dir.pki().join(ca);
    let read =
        files::read(&ca_file, 2 << 20).map_err(|why| printable(&ErrorChain(&why).to_string()))?;
    let ca_pem = read.ok_or_else(|| format!("{} is missing", ca_file.display()))?;
    let server = Server {
        dir: None,
        url: connection.url.clone(),
        key: String::new(),
        ca_pem,
        ca_file,
        ca_bundle: None,
        key_source: String::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| why.to_string())?;
    runtime.block_on(client::readiness(&server, within))
}

pub fn check(facts: &Facts, now: SystemTime) -> Vec<Finding> {
    let mut findings = vec![configuration(facts), certificate(facts, now)];
    findings.extend(facts.own.as_ref().map(own_certificate));
    findings.push(running(&facts.server, &facts.start));
    findings
}

fn configuration(facts: &Facts) -> Finding {
    const ID: &str = "configuration";
    const MEANING: &str = "the server does not start with invalid settings";
    match &facts.config {
        Ok(()) => Finding::ok(ID, "valid", MEANING),
        Err(why) => Finding::failure(ID, why, MEANING)
            .fix("correct the setting that it names; muster serve --print-config shows the others"),
    }
}

fn certificate(facts: &Facts, now: SystemTime) -> Finding {
    const ID: &str = "certificate";
    const MEANING: &str =
        "clients trust the server because of it; the server creates and renews it";
    let is_up = matches!(&facts.server, Found::Known { answer: Ok(_), .. });
    let seen = match &facts.certificate {
        Ok(Some(seen)) => seen,
        Ok(None) => {
            return Finding::note(ID, "none yet", MEANING).fix("the first start creates it");
        }
        Err(why) => {
            return Finding::failure(ID, why, MEANING)
                .fix("correct what it names, then restart the server");
        }
    };
    // A server that is not running renews its certificate when it starts.
    let state = if is_up { State::Warning } else { State::Note };
    let again = "restart the server, which creates a new one";
    if now < seen.not_before {
        let found = "not valid yet: it was created by a clock that is ahead of this one";
        return Finding::failure(ID, found, MEANING).fix("set the clock; see clock");
    }
    let Ok(left) = seen.not_after.duration_since(now) else {
        return Finding::new(ID, state, "has expired", MEANING).fix(again);
    };
    let days = left.as_secs() / DAY.as_secs();
    if left < RENEWED_BEFORE {
        return Finding::new(ID, state, format!("expires in {days} days"), MEANING).fix(again);
    }
    if let Found::Known { url, .. } = &facts.server
        && let Some(host) = host_of(url)
        && facts.own.is_none()
        && !seen.is_for(host)
    {
        let found = format!("is not valid for {host}, the host name that clients use");
        return Finding::new(ID, state, found, MEANING).fix(again);
    }
    let names: Vec<&str> = seen.names.dns.iter().map(String::as_str).collect();
    Finding::ok(ID, format!("valid for {days} more days, for {}", names.join(", ")), MEANING)
}

/// `https://[::1]:7443` → `[::1]`.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://")?;
    let rest = rest.split('/').next()?;
    let end = rest.rfind(':').filter(|at| !rest[*at..].contains(']'));
    Some(&rest[..end.unwrap_or(rest.len())])
}

fn own_certificate(own: &Result<(), String>) -> Finding {
    const ID: &str = "own-certificate";
    const MEANING: &str = "tls-cert and tls-key are for clients that use the public host name";
    match own {
        Ok(()) => Finding::ok(ID, "valid", MEANING),
        Err(why) => Finding::failure(ID, why, MEANING).fix("renew or replace tls-cert and tls-key"),
    }
}

fn running(server: &Found, start: &str) -> Finding {
    const ID: &str = "server";
    const MEANING: &str = "whether the server of this state directory can be used";
    const RESTART: &str = "look at its log, then restart it (systemctl restart muster)";
    match server {
        Found::Never => {
            Finding::note(ID, "none was started with this state directory", MEANING).fix(start)
        }
        Found::Unknown(why) => {
            Finding::failure(ID, why, MEANING).fix(format!("restart it: {start}"))
        }
        Found::Known { url, answer: Ok(200), .. } => {
            Finding::ok(ID, format!("{url} is ready"), MEANING)
        }
        Found::Known { url, answer: Ok(status), .. } => {
            Finding::failure(ID, format!("{url} is not ready: it returns {status}"), MEANING)
                .fix(RESTART)
        }
        Found::Known { url, answer: Err(why), is_held: true } => {
            Finding::failure(ID, format!("running, but {url} does not respond: {why}"), MEANING)
                .fix(RESTART)
        }
        Found::Known { url, answer: Err(_), is_held: false } => {
            Finding::note(ID, format!("not running; it was last at {url}"), MEANING).fix(start)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use muster_server::pki::Names;

    use super::*;

    const URL: &str = "https://localhost:7443";

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn seen() -> Seen {
        Seen {
            path: "/s/pki/server.pem".into(),
            not_before: now() - DAY,
            not_after: now() + 300 * DAY,
            names: Names::for_host("lab", None),
        }
    }

    fn known(url: &str, is_held: bool, answer: Result<u16, String>) -> Found {
        Found::Known { url: url.to_owned(), is_held, answer }
    }

    fn good() -> Facts {
        Facts {
            config: Ok(()),
            own: None,
            certificate: Ok(Some(seen())),
            server: known(URL, true, Ok(200)),
            start: "muster up".to_owned(),
        }
    }

    fn bad(facts: &Facts) -> Vec<(&'static str, State)> {
        let findings = check(facts, now());
        for finding in &findings {
            assert_eq!(finding.fix.is_some(), finding.state != State::Ok, "{finding:?}");
        }
        let bad = findings.iter().filter(|finding| finding.state != State::Ok);
        bad.map(|finding| (finding.id, finding.state)).collect()
    }

    #[test]
    fn every_bad_certificate_is_reported() {
        assert_eq!(bad(&good()), []);
        let with = |seen| Facts { certificate: Ok(Some(seen)), ..good() };
        let ended = || Seen { not_after: now() - DAY, ..seen() };
        let soon = || Seen { not_after: now() + 3 * DAY, ..seen() };
        let early = Seen { not_before: now() + DAY, ..seen() };
        let damaged = Facts { certificate: Err("is not a certificate".to_owned()), ..good() };
        for (facts, state) in [
            (with(ended()), State::Warning),
            (with(soon()), State::Warning),
            (with(early), State::Failure),
            (damaged, State::Failure),
            (Facts { certificate: Ok(None), ..good() }, State::Note),
        ] {
            assert_eq!(bad(&facts), [("certificate", state)]);
        }
        let elsewhere = Facts { server: known("https://other:7443", true, Ok(200)), ..good() };
        assert_eq!(bad(&elsewhere), [("certificate", State::Warning)]);
        // The operator's certificate is for that host.
        assert_eq!(bad(&Facts { own: Some(Ok(())), ..elsewhere }), []);
        let down = || known(URL, false, Err("refused".to_owned()));
        let both = [("certificate", State::Note), ("server", State::Note)];
        assert_eq!(bad(&Facts { server: down(), ..with(ended()) }), both);
        assert_eq!(bad(&Facts { server: down(), ..with(soon()) }), both);
        let own = Facts { own: Some(Err("ended 3 days ago".to_owned())), ..good() };
        assert_eq!(bad(&own), [("own-certificate", State::Failure)]);
    }

    #[test]
    fn every_state_of_a_server_is_reported() {
        for (server, state) in [
            (Found::Never, State::Note),
            (Found::Unknown("connection.json is damaged".to_owned()), State::Failure),
            (known(URL, true, Ok(503)), State::Failure),
            (known(URL, true, Err("no answer within 700 ms".to_owned())), State::Failure),
            (known(URL, false, Err("refused".to_owned())), State::Note),
        ] {
            assert_eq!(bad(&Facts { server, ..good() }), [("server", state)]);
        }
        let slip = Facts { config: Err("unknown key 'lisen'".to_owned()), ..good() };
        assert_eq!(bad(&slip), [("configuration", State::Failure)]);
    }

    #[test]
    fn addresses_are_read() {
        for (url, host) in [
            (URL, Some("localhost")),
            ("https://[::1]:7443/", Some("[::1]")),
            ("https://lab", Some("lab")),
            ("https://[::1]", Some("[::1]")),
            ("http://lab", None),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
