//! Signing in: a key or a client's secret comes in, a token for one audience goes out.
//!
//! Every dialect here has a secret. Those without one (a virtual machine's metadata, Cloud Shell) are refused
//! whoever asks: on a port that others can reach, the address of a caller says nothing about who it is.

use std::net::{IpAddr, Ipv6Addr};

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use muster_core::model::UserKind;
use muster_wire::cloud::TokenReply;
use muster_wire::login::{
    self, ClientTokenReply, FORM_BYTES_MAX, OauthError, OpenIdDocument, TokenForm,
};
use muster_wire::{ArmError, Login, Query, Route};

use super::body;
use super::respond::{Failed, document, with_retry_after};
use crate::app::App;
use crate::clock;
use crate::guesses::TooMany;
use crate::tokens::Principal;

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub struct Source(pub IpAddr);

const NO_SECRET: &str = "no token is given here without a secret, as whoever reaches this port could ask for one: \
     set IDENTITY_ENDPOINT and IDENTITY_HEADER (or MSI_ENDPOINT and MSI_SECRET) instead, where your key is the secret";

/// The routes that give tokens, or say where to get them.
pub async fn answer(
    app: &App,
    parts: &Parts,
    route: &Route,
    query: &Query,
    content: Body,
) -> Result<Response, Failed> {
    match (&parts.method, route) {
        (&Method::GET, Route::Token) => by_key(app, parts, query).await,
        // Cloud Shell's way, and a virtual machine's.
        (&Method::POST, Route::Token) | (_, Route::Login(Login::MachineIdentity)) => {
            body::discard(content).await;
            Err(ArmError::unauthorized(&app.base_url, NO_SECRET).into())
        }
        (&Method::GET, Route::Login(Login::OpenId { authority })) => {
            let issuer = app.keyring.issuer();
            let found = OpenIdDocument::new(&app.base_url, issuer, authority);
            Ok(document(StatusCode::OK, &found))
        }
        (&Method::GET, Route::Login(Login::Instance)) => Ok(instance(app, query)),
        (&Method::POST, Route::Login(Login::ClientToken { .. })) => {
            let body = body::read(content, FORM_BYTES_MAX).await?;
            let answered = by_client(app, source(parts), &body).await;
            Ok(answered.unwrap_or_else(|refused| refusal(&refused)))
        }
        (method, route) => {
            Err(ArmError::method_not_allowed(method.as_str(), route.methods()).into())
        }
    }
}

/// App Service's dialect and Azure ML's: they differ in the name of the header.
async fn by_key(app: &App, parts: &Parts, query: &Query) -> Result<Response, Failed> {
    let directory = app.live.directory();
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let key = text("x-identity-header").or_else(|| text("secret"));
    let Some(principal) = key.and_then(|key| app.keyring.authenticate_key(key, &directory)) else {
        return Err(wrong_key(app, parts, key.is_some()).await.into());
    };
    let resource = query.resource().ok_or_else(|| {
        ArmError::invalid_property("resource", "resource is missing; name what the token is for")
    })?;
    let now = clock::unix_seconds();
    let issued = app
        .keyring
        .issue(&principal, resource, &app.audiences, now, &directory)
        .map_err(|refused| ArmError::invalid_property("resource", refused.to_string()))?;
    let reply = TokenReply::new(&issued.token, issued.expires_unix, resource);
    Ok(document(StatusCode::OK, &reply))
}

async fn wrong_key(app: &App, parts: &Parts, is_given: bool) -> ArmError {
    let what = match is_given {
        true => "the key is not valid here; run `muster env` again and use what it prints",
        false => "there is no key: send it as X-IDENTITY-HEADER, or as the header secret",
    };
    slowed(app, parts, ArmError::unauthorized(&app.base_url, what)).await
}

/// The refusal of a wrong key, after a while; or of one guess too many, at once.
pub async fn slowed(app: &App, parts: &Parts, refused: ArmError) -> ArmError {
    match app.guesses.pause(source(parts), None).await {
        Err(TooMany) => ArmError::too_many(too_many()),
        Ok(()) => refused,
    }
}

/// OAuth's client credentials: a service principal's client id, and its key as the secret.
async fn by_client(app: &App, source: IpAddr, body: &[u8]) -> Result<Response, OauthError> {
    let text = std::str::from_utf8(body);
    let text = text.map_err(|_| OauthError::invalid_request("the form is not UTF-8; encode it"))?;
    let form =
        TokenForm::parse(text).map_err(|why| OauthError::invalid_request(why.to_string()))?;
    check_grant(&form)?;
    let missing = |name: &str| OauthError::invalid_request(format!("{name} is missing; send it"));
    let client_id = form.get("client_id").ok_or_else(|| missing("client_id"))?;
    let secret = form.get("client_secret").ok_or_else(|| missing("client_secret"))?;
    let resource = form.resource().ok_or_else(|| missing("scope"))?;
    let directory = app.live.directory();
    let found = app.keyring.authenticate_key(secret, &directory);
    let Some(principal) = found.filter(|found| found.id.eq_ignore_ascii_case(client_id)) else {
        return Err(match app.guesses.pause(source, Some(client_id)).await {
            Err(TooMany) => OauthError::slow_down(too_many()),
            Ok(()) => OauthError::invalid_client(
                "AADSTS7000215: no service principal has this client id and secret; the client id is the \
                 object id that `muster user list` shows, the secret is the key",
            ),
        });
    };
    let user = directory.user_by_object_id(&principal.id);
    if user.is_none_or(|user| user.kind != UserKind::Service) {
        return Err(person(&principal));
    }
    let now = clock::unix_seconds();
    let issued = app.keyring.issue(&principal, resource, &app.audiences, now, &directory);
    let issued = issued.map_err(|refused| OauthError::invalid_scope(refused.to_string()))?;
    let reply = ClientTokenReply::new(&form, &issued.token, now, issued.expires_unix);
    Ok(document(StatusCode::OK, &reply))
}

fn check_grant(form: &TokenForm) -> Result<(), OauthError> {
    if form.get("client_assertion").is_some() {
        return Err(OauthError::unsupported_grant(
            "a client assertion (workload identity, certificate) is not taken: it is only as good as whoever \
             signed it, and this server trusts nobody else's signatures; send client_secret",
        ));
    }
    match form.get("grant_type") {
        Some("client_credentials") => Ok(()),
        _ => Err(OauthError::unsupported_grant(
            "the only grant_type here is client_credentials; people sign in with their key, see `muster env`",
        )),
    }
}

/// The secret was right, so whoever sent it may know this much.
fn person(principal: &Principal) -> OauthError {
    OauthError::invalid_client(format!(
        "'{}' is no service principal; sign in with the key as IDENTITY_HEADER (`muster env` sets it), or make a \
         service principal: muster user create --service --name NAME",
        principal.name
    ))
}

fn instance(app: &App, query: &Query) -> Response {
    let asked = query.get("authorization_endpoint").unwrap_or("");
    match login::instance(&app.base_url, asked) {
        Some(found) => document(StatusCode::OK, &found),
        None => refusal(&OauthError::invalid_instance(format!(
            "authorization_endpoint is no address of this server; its authorities begin with {}",
            app.base_url
        ))),
    }
}

fn refusal(refused: &OauthError) -> Response {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
    let response = document(status, refused);
    if status == StatusCode::TOO_MANY_REQUESTS { with_retry_after(response) } else { response }
}

fn too_many() -> String {
    format!(
        "too many wrong keys at once: at most {} wait for their refusal from one address or for one client id, {} \
         in all; ask again in a second, with the right key",
        crate::guesses::WAITING_MAX,
        crate::guesses::WAITING_IN_ALL_MAX
    )
}

/// All that come without an address count as one.
fn source(parts: &Parts) -> IpAddr {
    let found = parts.extensions.get::<Source>();
    found.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |source| source.0)
}
