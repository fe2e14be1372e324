//! Authenticates users of a service: by a bearer token, by a link that is signed for them, or by the cookie that
//! replaces such a link. Links and cookies are valid for one service and one user, whose rights are checked every time.

use axum::http::{HeaderMap, HeaderValue, header};
use muster_core::model::{Action, Caller, Scope, WorkspaceKey};

use crate::app::App;
use crate::clock;
use crate::http::auth;
use crate::tokens::{self, COOKIE_LIFETIME_S, LINK_LIFETIME_S, Pass};

/// The only cookie of the server itself on this listener. It never reaches a job.
pub const COOKIE: &str = "muster-service";

/// A caller that has been authenticated.
pub struct Visitor {
    pub caller: Caller,
    pub by: By,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Token,
    Cookie,
    /// To be replaced by a cookie.
    Link,
}

/// The contents of a signed link, apart from its path.
struct Link<'q> {
    user: &'q str,
    until: u64,
    signature: &'q str,
}

impl<'q> Link<'q> {
    fn parse(query: &'q str) -> Option<Link<'q>> {
        let value =
            |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        let (user, until) = (value("user")?, value("until")?.parse().ok()?);
        Some(Link { user, until, signature: value("sig")? })
    }
}

/// The URL that opens a service in a browser, for this user and for an hour.
pub fn link(app: &App, caller: &Caller, path: &str) -> Option<String> {
    let until = clock::stamp() + LINK_LIFETIME_S;
    let user = &caller.object_id;
    let directory = app.live.directory();
    let signature = app.keyring.sign_service(Pass::Link, path, user, until, &directory)?;
    Some(format!("{}{path}/?user={user}&until={until}&sig={signature}", app.files_url))
}

/// The caller, or why it cannot be authenticated.
pub fn visitor(
    app: &App,
    headers: &HeaderMap,
    path: &str,
    link: Option<&str>,
) -> Result<Visitor, String> {
    let now = clock::unix_seconds();
    let directory = app.live.directory();
    let caller = |principal: tokens::Principal| Caller {
        object_id: principal.id.into(),
        name: principal.name.into(),
    };
    let mut why = None;
    if let Some(link) = link.and_then(Link::parse) {
        let shown = (link.user, link.until, link.signature);
        match app.keyring.check_service((Pass::Link, path), shown, now, &directory) {
            Ok(principal) => {
                return Ok(Visitor { caller: caller(principal), by: By::Link });
            }
            Err(rejected) => why = Some(format!("this link is not valid: {rejected}")),
        }
    }
    for cookie in own_cookies(headers) {
        let Some((until, user, signature)) = parts(cookie) else { continue };
        let shown = (user, until, signature);
        match app.keyring.check_service((Pass::Cookie, path), shown, now, &directory) {
            Ok(principal) => {
                return Ok(Visitor { caller: caller(principal), by: By::Cookie });
            }
            Err(rejected) => {
                why.get_or_insert(format!("the cookie of this page is not valid: {rejected}"));
            }
        }
    }
    match auth::service_caller(app, headers) {
        Ok(Some(caller)) => Ok(Visitor { caller, by: By::Token }),
        Ok(None) => Err(why.unwrap_or_else(|| "this page requires authentication".to_owned())),
        Err(rejected) => Err(rejected),
    }
}

/// Users who may run jobs may open their services, because a notebook runs any code that it is given.
pub fn may(app: &App, caller: &Caller, workspace: &WorkspaceKey) -> bool {
    auth::may(app, caller, Action::RunJobs, &Scope::workspace(workspace))
}

/// The cookie that replaces the link.
pub fn cookie(app: &App, caller: &Caller, path: &str) -> Option<HeaderValue> {
    let until = clock::stamp() + COOKIE_LIFETIME_S;
    let user = &caller.object_id;
    let directory = app.live.directory();
    let signature = app.keyring.sign_service(Pass::Cookie, path, user, until, &directory)?;
    let text = format!(
        "{COOKIE}={until}.{user}.{signature}; Path={path}/; Max-Age={COOKIE_LIFETIME_S}; Secure; HttpOnly; SameSite=Lax"
    );
    HeaderValue::from_str(&text).ok()
}

fn parts(cookie: &str) -> Option<(u64, &str, &str)> {
    let (until, rest) = cookie.split_once('.')?;
    let (user, signature) = rest.split_once('.')?;
    Some((until.parse().ok()?, user, signature))
}

fn pairs(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(';')).map(str::trim)
}

/// There may be several, because pages of others on this host can set cookies with this name.
fn own_cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    pairs(headers).filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

/// The cookies that a job may see.
pub fn others(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_ours = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case(COOKIE)
    };
    let others: Vec<&str> = pairs(headers).filter(|pair| !is_ours(pair)).collect();
    let text = others.join("; ");
    HeaderValue::from_str(&text).ok().filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_sees_every_cookie_except_the_servers() {
        let mut headers = HeaderMap::new();
        for value in ["a=1; muster-service=x.y.z; b=2", "Muster-Service=w", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(value));
        }
        assert_eq!(others(&headers).expect("some cookies remain"), "a=1; b=2; c=3");
        assert_eq!(own_cookies(&headers).collect::<Vec<_>>(), ["x.y.z"]);
        assert_eq!(others(&HeaderMap::new()), None);
    }

    #[test]
    fn a_link_is_read_whatever_else_is_there() {
        let link = Link::parse("x=1&until=5&sig=ab&user=u").expect("whole");
        assert_eq!((link.user, link.until, link.signature), ("u", 5, "ab"));
        assert!(Link::parse("user=u&until=x&sig=s").is_none());
        assert!(Link::parse("user=u&until=5").is_none());
    }
}
