//! The address of an OAuth authority: `/{tenant}`, `/adfs` or `/adfs/{tenant}`. The server has a single tenant, so the name in
//! the path makes no difference, and programs can keep the one that they were written with. If `adfs` comes first in the
//! path, clients ask no other server whether this one is an authority; that is the reason for it.

use super::segments::encode;

const ADFS: &str = "adfs";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    is_adfs: bool,
    tenant: Option<Box<str>>,
}

impl Authority {
    /// The authority that needs no tenant.
    pub fn adfs() -> Authority {
        Authority { is_adfs: true, tenant: None }
    }

    pub(super) fn of(segments: &[String]) -> Option<Authority> {
        let is_adfs = |word: &String| word.eq_ignore_ascii_case(ADFS);
        match segments {
            [adfs] if is_adfs(adfs) => Some(Authority::adfs()),
            [tenant] => Some(Authority { is_adfs: false, tenant: Some(tenant.as_str().into()) }),
            [adfs, tenant] if is_adfs(adfs) => {
                Some(Authority { is_adfs: true, tenant: Some(tenant.as_str().into()) })
            }
            _ => None,
        }
    }

    pub(crate) fn path(&self) -> String {
        let adfs = if self.is_adfs { format!("/{ADFS}") } else { String::new() };
        let tenant = self.tenant.as_ref().map(|tenant| format!("/{}", encode(tenant)));
        adfs + &tenant.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Request;
    use crate::routes::{Login, Route};

    fn found(path: &str) -> Route {
        Request::parse(path, None).expect("a path").route
    }

    #[test]
    fn every_spelling_of_an_authority_is_found() {
        let of =
            |is_adfs, tenant: Option<&str>| Authority { is_adfs, tenant: tenant.map(Into::into) };
        for (path, authority) in [
            ("/adfs", of(true, None)),
            ("/ADFS/t-1", of(true, Some("t-1"))),
            ("/common", of(false, Some("common"))),
            ("/a%20b", of(false, Some("a b"))),
        ] {
            let open_id = Route::Login(Login::OpenId { authority: authority.clone() });
            let token = Route::Login(Login::ClientToken { authority: authority.clone() });
            let browser = Route::Login(Login::Browser { authority: authority.clone() });
            let device_code = Route::Login(Login::DeviceCode { authority });
            assert_eq!(found(&format!("{path}/.well-known/openid-configuration")), open_id);
            assert_eq!(found(&format!("{path}/v2.0/.well-known/openid-configuration")), open_id);
            assert_eq!(found(&format!("{path}/oauth2/token")), token);
            assert_eq!(found(&format!("{path}//oauth2/v2.0/token/")), token);
            assert_eq!(found(&format!("{path}/oauth2/v2.0/authorize")), browser);
            assert_eq!(found(&format!("{path}/oauth2/v2.0/devicecode")), device_code);
            for route in [open_id, token, browser, device_code] {
                assert_eq!(found(&route.path().expect("every route has a path")), route);
            }
        }
    }

    #[test]
    fn what_only_looks_like_one_is_unknown() {
        for path in [
            "/oauth2/token",
            "/.well-known/openid-configuration",
            "/a/b/oauth2/token",
            "/adfs/a/b/oauth2/token",
            "/adfs/oauth2",
            "/t/oauth2/v1.0/token/x",
        ] {
            assert_eq!(found(path), Route::Unknown, "{path}");
        }
        for route in [Login::Instance, Login::MachineIdentity].map(Route::Login) {
            assert_eq!(found(&route.path().expect("every route has a path")), route);
        }
    }
}
