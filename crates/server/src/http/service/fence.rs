//! Separates the pages of one job from those of other jobs and from everything else, although they share an origin:
//! every response carries a policy, and some headers are removed. See docs/adr/0006 for the reasons.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers that apply to the whole origin, or that request something that is not forwarded.
const NEVER: [&str; 12] = [
    "alt-svc",
    "clear-site-data",
    "strict-transport-security",
    "service-worker-allowed",
    "nel",
    "report-to",
    "reporting-endpoints",
    "accept-ch",
    "critical-ch",
    "origin-agent-cluster",
    "content-location",
    "www-authenticate",
];
/// The maximum number of cookies of one response.
const COOKIES_MAX: usize = 20;
const COOKIE_BYTES_MAX: usize = 4_096;

/// The address of a service on this server.
#[derive(Debug, Clone)]
pub struct Mount<'a> {
    /// `https://HOST:PORT` of the second listener, from the configuration.
    pub origin: &'a str,
    /// `/services/…`, without a trailing slash.
    pub path: &'a str,
    /// Whether the service receives its requests with the whole path.
    pub is_kept: bool,
}

impl Mount<'_> {
    /// `HOST:PORT`.
    pub fn authority(&self) -> &str {
        self.origin.split_once("://").map_or("", |(_, authority)| authority)
    }

    /// A page of this service may load, call, frame and submit forms only to its own service. It may not open windows
    /// either, because it could reach into one that shows another job's page.
    fn policy(&self) -> String {
        let Mount { origin, path, .. } = self;
        let own = format!("{origin}{path}/");
        let sockets = format!("wss://{}{path}/", self.authority());
        format!(
            "sandbox allow-scripts allow-same-origin allow-forms allow-modals allow-downloads allow-pointer-lock; \
             default-src {own} data: blob: 'unsafe-inline' 'unsafe-eval'; connect-src {own} {sockets} data: blob:; \
             frame-src {own} data: blob:; worker-src {own} blob:; object-src 'none'; form-action {own}; base-uri {own}; \
             frame-ancestors 'self'"
        )
    }
}

/// Restricts the headers of a response before it goes back to the browser.
pub fn fence(headers: &mut HeaderMap, mount: &Mount<'_>) {
    for name in NEVER {
        headers.remove(name);
    }
    let shared: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in shared {
        headers.remove(name);
    }
    keep_cookies(headers, mount);
    if let Some(location) = headers.remove(header::LOCATION) {
        let led = location.to_str().ok().and_then(|location| lead(location, mount));
        if let Some(led) = led.and_then(|led| HeaderValue::from_str(&led).ok()) {
            headers.insert(header::LOCATION, led);
        }
    }
    // Added to the service's own policy, if it has one; a browser enforces all of them.
    let policy = HeaderValue::from_str(&mount.policy()).expect("an address is plain ASCII");
    headers.append(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Limits cookies to the service, whatever it sets, and drops those with the name of the server's own cookie.
fn keep_cookies(headers: &mut HeaderMap, mount: &Mount<'_>) {
    let cookies: Vec<HeaderValue> =
        headers.get_all(header::SET_COOKIE).iter().take(COOKIES_MAX).cloned().collect();
    headers.remove(header::SET_COOKIE);
    for cookie in cookies {
        let own = cookie.to_str().ok().and_then(|text| own_cookie(text, mount));
        if let Some(own) = own.and_then(|own| HeaderValue::from_str(&own).ok()) {
            headers.append(header::SET_COOKIE, own);
        }
    }
}

fn own_cookie(text: &str, mount: &Mount<'_>) -> Option<String> {
    let mut parts = text.split(';').map(str::trim);
    let pair = parts.next()?;
    let (name, _) = pair.split_once('=')?;
    let is_ours = name.trim().eq_ignore_ascii_case(super::pass::COOKIE);
    // Browsers accept these only for the whole host.
    let is_hosts = name.trim().to_ascii_lowercase().starts_with("__host-");
    if is_ours || is_hosts || text.len() > COOKIE_BYTES_MAX {
        return None;
    }
    let mut own = pair.to_owned();
    let (mut path, mut is_strict) = (None, false);
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        match key.trim().to_ascii_lowercase().as_str() {
            "path" => path = Some(value.trim()),
            "samesite" => is_strict = value.trim().eq_ignore_ascii_case("strict"),
            "max-age" | "expires" | "httponly" => {
                own.push_str("; ");
                own.push_str(part);
            }
            _ => {}
        }
    }
    let below = format!("{}/", mount.path);
    let path = path.filter(|path| path.starts_with(&below) && !has_parents(path));
    let site = if is_strict { "Strict" } else { "Lax" };
    Some(format!("{own}; Path={}; Secure; SameSite={site}", path.unwrap_or(&below)))
}

/// Where a redirect may lead: to the service's own pages, or to another server. Browsers do not check redirects against
/// the paths of a policy, so this does.
fn lead(location: &str, mount: &Mount<'_>) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'\\';
    if !location.bytes().all(is_plain) {
        return None;
    }
    let end = location.find(['/', '?', '#']).unwrap_or(location.len());
    if let Some((scheme, _)) = location[..end].split_once(':') {
        if !["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) {
            return None;
        }
        let rest = location[scheme.len()..].strip_prefix("://")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if is_same_authority(authority, mount.authority()) {
            return own_path(rest, mount);
        }
        return is_other_server(authority, mount.authority()).then(|| location.to_owned());
    }
    match location.starts_with('/') {
        true if location.starts_with("//") => None,
        true => own_path(location, mount),
        false => (!has_parents(location)).then(|| location.to_owned()),
    }
}

fn own_path(path: &str, mount: &Mount<'_>) -> Option<String> {
    if has_parents(path) {
        return None;
    }
    let below = format!("{}/", mount.path);
    if path.starts_with(&below) && mount.is_kept {
        return Some(path.to_owned());
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(format!("{}{slash}{path}", mount.path))
}

/// Whether the path contains `..`, in any spelling that a browser understands.
fn has_parents(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let dotted = path.to_ascii_lowercase().replace("%2e", ".");
    dotted.split(['/', ';']).any(|segment| segment == "..")
}

fn is_same_authority(one: &str, own: &str) -> bool {
    let plain = |text: &str| text.strip_suffix(":443").unwrap_or(text).to_ascii_lowercase();
    plain(one) == plain(own)
}

/// Whether this is a name that no browser takes for this server: plain letters, a plain port, and not a numeric
/// address.
fn is_other_server(authority: &str, own: &str) -> bool {
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "443"));
    let own_host = own.rsplit_once(':').map_or(own, |(host, _)| host);
    let is_name =
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_port = !port.starts_with('0') && port.parse::<u16>().is_ok();
    is_name
        && is_port
        && last.starts_with(|first: char| first.is_ascii_alphabetic())
        && !host.eq_ignore_ascii_case(own_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Mount<'static> =
        Mount { origin: "https://host:7444", path: "/services/a1/0/jl", is_kept: true };
    const STRIPPED: Mount<'static> = Mount { is_kept: false, ..KEPT };

    #[test]
    fn a_redirect_leads_to_its_own_service_or_to_another_server() {
        for (location, led) in [
            ("/x?y#z", Some("/services/a1/0/jl/x?y#z")),
            ("/", Some("/services/a1/0/jl/")),
            ("x/y", Some("x/y")),
            ("?q=../..", Some("?q=../..")),
            ("https://host:7444/x", Some("/services/a1/0/jl/x")),
            ("http://HOST:7444", Some("/services/a1/0/jl/")),
            ("/services/a2/0/jl/", Some("/services/a1/0/jl/services/a2/0/jl/")),
            ("https://example.org/a/../b", Some("https://example.org/a/../b")),
            ("../../../a2/0/jl/", None),
            ("/%2E./%2e%2e/a2", None),
            ("x/..;/y", None),
            ("//host:7444/services/a2", None),
            ("/\\host:7444/services/a2", None),
            ("\\\\host", None),
            (" /x", None),
            ("https:host", None),
            ("https:/services/a2", None),
            ("javascript:alert(1)", None),
            ("https://ho%73t:7444/services/a2", None),
            ("https://x@host:7444/services/a2", None),
            ("https://host:07444/services/a2", None),
            ("https://host/services/a2", None),
            ("https://0x7f000001:7444/services/a2", None),
            ("https://127.1:7444/services/a2", None),
        ] {
            assert_eq!(lead(location, &STRIPPED).as_deref(), led, "{location}");
        }
        let kept = lead("/services/a1/0/jl/lab?", &KEPT);
        assert_eq!(kept.as_deref(), Some("/services/a1/0/jl/lab?"));
        assert_eq!(lead("/lab", &KEPT).as_deref(), Some("/services/a1/0/jl/lab"));
        assert_eq!(lead("/services/a1/0/jl/../../x", &KEPT), None);
    }

    #[test]
    fn cookies_are_for_the_service_alone() {
        for (said, kept) in [
            ("a=1", Some("a=1; Path=/services/a1/0/jl/; Secure; SameSite=Lax")),
            (
                "a=1; Domain=host; Path=/; HttpOnly; Max-Age=5; SameSite=None",
                Some("a=1; HttpOnly; Max-Age=5; Path=/services/a1/0/jl/; Secure; SameSite=Lax"),
            ),
            (
                "a=1; path=/services/a1/0/jl/api; samesite=STRICT",
                Some("a=1; Path=/services/a1/0/jl/api; Secure; SameSite=Strict"),
            ),
            (
                "a=1; path=/services/a1/0/jl/../x",
                Some("a=1; Path=/services/a1/0/jl/; Secure; SameSite=Lax"),
            ),
            ("Muster-Service=x; Path=/", None),
            ("__Host-a=1; Path=/", None),
            ("nonsense", None),
        ] {
            assert_eq!(own_cookie(said, &KEPT).as_deref(), kept, "{said}");
        }
    }

    #[test]
    fn headers_for_the_origin_are_removed_and_the_policy_is_added() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("alt-svc", "h3=\":1\""),
            ("clear-site-data", "\"*\""),
            ("access-control-allow-origin", "*"),
            ("content-security-policy", "default-src *"),
            ("x-own", "stays"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        fence(&mut headers, &KEPT);
        assert!(!headers.contains_key("alt-svc") && !headers.contains_key("clear-site-data"));
        assert!(!headers.contains_key("access-control-allow-origin"));
        assert_eq!(headers["x-own"], "stays");
        let policies: Vec<_> = headers.get_all(header::CONTENT_SECURITY_POLICY).iter().collect();
        assert_eq!(policies.len(), 2);
        let own = policies[1].to_str().expect("plain");
        assert!(own.contains(
            "connect-src https://host:7444/services/a1/0/jl/ wss://host:7444/services/a1/0/jl/ "
        ));
        assert!(!own.contains("allow-popups") && !own.contains("allow-top-navigation"));
    }
}
