//! Signing in: exchanges a key or a client secret for a token for one audience.
//!
//! The protocols without a secret (a virtual machine's metadata, Cloud Shell) are for nodes only, each on its own
//! socket: on a port that others can reach, the address of a caller does not identify it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use muster_core::model::UserKind;
use muster_wire::cloud::TokenReply;
use muster_wire::login::browser::{self, BrowserReply};
use muster_wire::login::{
    self, ClientTokenReply, FORM_BYTES_MAX, OauthError, OpenIdDocument, TokenForm,
};
use muster_wire::path::table::Table as _;
use muster_wire::routes::login::{Endpoint, Get, Post};
use muster_wire::{ArmError, Login, Query};

use super::respond::{Failed, document, with_retry_after};
use super::{body, cloud, on_behalf_of};
use crate::app::App;
use crate::clock;
use crate::guesses::TooMany;
use crate::tokens::Principal;

/// The source of a connection.
#[derive(Debug, Clone)]
pub struct Source {
    pub address: IpAddr,
    /// The node through whose own socket the connection came.
    pub node: Option<Arc<str>>,
}

const NO_SECRET: &str = "tokens are not issued here without a secret, because anything that reaches this port could request one: \
     set IDENTITY_ENDPOINT and IDENTITY_HEADER (or MSI_ENDPOINT and MSI_SECRET) instead, with your key as the secret";
/// The parameters with which a client may name the identity that it means.
const IDENTITY_NAMES: [&str; 5] =
    ["client_id", "object_id", "principal_id", "msi_res_id", "mi_res_id"];

/// What is answered before the caller is known: tokens, and the documents that say where to get them.
pub async fn answer(
    app: &App,
    parts: &Parts,
    route: Login,
    query: &Query,
    content: Body,
) -> Result<Response, Failed> {
    let method = parts.method.as_str();
    let endpoint = match route.on(method) {
        Ok(endpoint) => endpoint,
        Err(none) => {
            body::discard(content).await;
            return Err(ArmError::no_endpoint(&none, method, parts.uri.path()).into());
        }
    };
    match endpoint {
        Endpoint::Get(Get::Metadata) => Ok(cloud::metadata(app, query)),
        Endpoint::Get(Get::Discovery) => Ok(cloud::discovery(app)),
        Endpoint::Get(Get::Token) => by_key(app, parts, query).await,
        // The protocols of Cloud Shell and of a virtual machine.
        Endpoint::Post(Post::Token | Post::MachineIdentity)
        | Endpoint::Get(Get::MachineIdentity) => {
            let Some(node) = source(parts).and_then(|source| source.node.as_deref()) else {
                body::discard(content).await;
                return Err(ArmError::unauthorized(&app.base_url, NO_SECRET).into());
            };
            let form = body::read(content, FORM_BYTES_MAX).await?;
            let asked = match parts.method {
                Method::GET => parts.uri.query().unwrap_or("").as_bytes(),
                _ => &form,
            };
            let answered = by_node(app, parts, node, asked);
            Ok(answered.unwrap_or_else(|refused| refusal(&refused)))
        }
        Endpoint::Get(Get::OpenId { authority }) => {
            let issuer = app.keyring.issuer();
            let found = OpenIdDocument::new(&app.base_url, issuer, &authority);
            Ok(document(StatusCode::OK, &found))
        }
        Endpoint::Get(Get::OnBehalfOf) => on_behalf_of::answer(app, parts, query).await,
        Endpoint::Get(Get::Instance) => Ok(instance(app, query)),
        Endpoint::Get(Get::Browser { .. }) => Ok(to_browser(query)),
        Endpoint::Post(Post::DeviceCode { .. }) => {
            body::discard(content).await;
            Ok(refusal(&OauthError::unsupported_grant(browser::REFUSAL)))
        }
        Endpoint::Post(Post::ClientToken { .. }) => {
            let body = body::read(content, FORM_BYTES_MAX).await?;
            let answered = by_client(app, address(parts), &body).await;
            Ok(answered.unwrap_or_else(|refused| refusal(&refused)))
        }
    }
}

/// The protocols of App Service and of Azure ML, which differ in the name of the header.
async fn by_key(app: &App, parts: &Parts, query: &Query) -> Result<Response, Failed> {
    let directory = app.live.directory();
    let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let key = text("x-identity-header").or_else(|| text("secret"));
    let Some(principal) = key.and_then(|key| app.keyring.authenticate_key(key, &directory)) else {
        return Err(wrong_key(app, parts, key.is_some()).await.into());
    };
    let resource = query.resource().ok_or_else(|| {
        ArmError::invalid_property(
            "resource",
            "resource is missing; give the resource that the token is for",
        )
    })?;
    let now = clock::stamp();
    let issued = app
        .keyring
        .issue(&principal, resource, &app.audiences, now, &directory)
        .map_err(|refused| ArmError::invalid_property("resource", refused.to_string()))?;
    let ends = clock::to_wall_clock(issued.expires_unix);
    let reply = TokenReply::new(&issued.token, ends, resource);
    Ok(document(StatusCode::OK, &reply))
}

async fn wrong_key(app: &App, parts: &Parts, is_given: bool) -> ArmError {
    let what = match is_given {
        true => {
            "the key is not valid here; run `muster env` again and use the values that it prints"
        }
        false => "the key is missing: send it as X-IDENTITY-HEADER, or as the header secret",
    };
    slowed(app, parts, ArmError::unauthorized(&app.base_url, what)).await
}

/// Refuses a wrong key after a pause, or at once if there are too many guesses.
pub async fn slowed(app: &App, parts: &Parts, refused: ArmError) -> ArmError {
    match app.guesses.pause(address(parts), None).await {
        Err(TooMany) => ArmError::too_many(too_many()),
        Ok(()) => refused,
    }
}

/// A node asks on its own socket, and receives a token for its cluster's identity.
fn by_node(app: &App, parts: &Parts, node: &str, asked: &[u8]) -> Result<Response, OauthError> {
    // A page or a proxy that is tricked into sending the request cannot send this header.
    let metadata = parts.headers.get("metadata").and_then(|value| value.to_str().ok());
    if !metadata.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(OauthError::invalid_request(
            "the header Metadata is missing; send it with the value true",
        ));
    }
    let form = token_form(asked)?;
    let Some(user) = app.live.identity_of_node(node) else {
        return Err(OauthError::invalid_request(
            "Identity not found: the cluster of this node has none; give it one: muster compute update --name CLUSTER \
             --identity-type SystemAssigned",
        ));
    };
    let mut named = IDENTITY_NAMES.iter().filter_map(|name| Some((name, form.get(name)?)));
    if let Some((name, other)) = named.find(|(_, id)| !id.eq_ignore_ascii_case(&user.object_id)) {
        return Err(OauthError::invalid_request(format!(
            "Identity not found: {name} is '{}', but the cluster of this node has only its own identity, {}; leave {name} \
             out",
            other.chars().take(200).collect::<String>(),
            user.object_id
        )));
    }
    let resource = form.resource().ok_or_else(|| missing("resource"))?;
    let principal = Principal { id: user.object_id.to_string(), name: user.name.to_string() };
    give(app, &principal, &form, resource)
}

/// OAuth client credentials: the client id of a service principal, and its key as the secret.
async fn by_client(app: &App, source: IpAddr, body: &[u8]) -> Result<Response, OauthError> {
    let form = token_form(body)?;
    check_grant(&form)?;
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
    give(app, &principal, &form, resource)
}

fn give(
    app: &App,
    principal: &Principal,
    form: &TokenForm,
    resource: &str,
) -> Result<Response, OauthError> {
    let (now, directory) = (clock::stamp(), app.live.directory());
    let issued = app.keyring.issue(principal, resource, &app.audiences, now, &directory);
    let issued = issued.map_err(|refused| OauthError::invalid_scope(refused.to_string()))?;
    let [now, ends] = [now, issued.expires_unix].map(clock::to_wall_clock);
    let reply = ClientTokenReply::new(form, &issued.token, now, ends);
    Ok(document(StatusCode::OK, &reply))
}

fn token_form(body: &[u8]) -> Result<TokenForm, OauthError> {
    let text = std::str::from_utf8(body);
    let text = text.map_err(|_| OauthError::invalid_request("the form is not UTF-8; encode it"))?;
    TokenForm::parse(text).map_err(|why| OauthError::invalid_request(why.to_string()))
}

fn missing(name: &str) -> OauthError {
    OauthError::invalid_request(format!("{name} is missing; send it"))
}

fn check_grant(form: &TokenForm) -> Result<(), OauthError> {
    if form.get("client_assertion").is_some() {
        return Err(OauthError::unsupported_grant(
            "a client assertion (workload identity, certificate) is not accepted, because this server \
             trusts only its own signatures; send client_secret",
        ));
    }
    match form.get("grant_type") {
        Some("client_credentials") => Ok(()),
        _ => Err(OauthError::unsupported_grant(
            "the only grant_type here is client_credentials; users sign in with their key, see `muster env`",
        )),
    }
}

/// The secret was correct, so the caller may learn this much.
fn person(principal: &Principal) -> OauthError {
    OauthError::invalid_client(format!(
        "'{}' is not a service principal; sign in with the key as IDENTITY_HEADER (`muster env` sets it), or create a \
         service principal: muster user create --service --name NAME",
        principal.name
    ))
}

fn instance(app: &App, query: &Query) -> Response {
    let asked = query.get("authorization_endpoint").unwrap_or("");
    match login::instance(&app.base_url, asked) {
        Some(found) => document(StatusCode::OK, &found),
        None => refusal(&OauthError::invalid_instance(format!(
            "authorization_endpoint is not an address of this server; its authorities begin with {}",
            app.base_url
        ))),
    }
}

fn to_browser(query: &Query) -> Response {
    let said = [(header::CACHE_CONTROL, "no-store"), (header::REFERRER_POLICY, "no-referrer")];
    match browser::answer(query) {
        BrowserReply::Form(page) => {
            let policy = [(header::CONTENT_SECURITY_POLICY, browser::POLICY)];
            (said, policy, Html(page)).into_response()
        }
        BrowserReply::Redirect(to) => {
            (StatusCode::FOUND, said, [(header::LOCATION, to)]).into_response()
        }
        BrowserReply::Text(text) => {
            (StatusCode::BAD_REQUEST, said, format!("{text}\n")).into_response()
        }
    }
}

fn refusal(refused: &OauthError) -> Response {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::BAD_REQUEST);
    let response = document(status, refused);
    if status == StatusCode::TOO_MANY_REQUESTS { with_retry_after(response) } else { response }
}

fn too_many() -> String {
    format!(
        "too many wrong keys at once: at most {} may be pending from one address or for one client id, and {} \
         in all; try again in a second, with the right key",
        crate::guesses::WAITING_MAX,
        crate::guesses::WAITING_IN_ALL_MAX
    )
}

pub fn source(parts: &Parts) -> Option<&Source> {
    parts.extensions.get::<Source>()
}

/// Connections without an address count as one address.
fn address(parts: &Parts) -> IpAddr {
    source(parts).map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |source| source.address)
}
