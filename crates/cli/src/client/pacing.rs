//! Retries: requests that the server postpones with a time, and requests that got lost.

use std::time::Duration;

use muster_wire::blob::client::parse_error;
use muster_wire::error::ErrorBody;
use muster_wire::from_json;
use reqwest::header::{self, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, StatusCode};

use super::{RETRY_AFTER_MS, retry_after};
use crate::failure::{CliResult, message, printable};
use crate::output;

/// How long one request may be delayed in all because its caller sends too many.
const PACED_MAX: Duration = Duration::from_secs(60);
/// The same if the server cannot serve it at the moment. That may last, so the reason should be shown soon.
const UNAVAILABLE_MAX: Duration = Duration::from_secs(2);

/// How often a request is sent that gets no response or a server error.
const TRIES: u32 = 4;
/// The pause after the first of these tries. Each further pause is four times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Which requests are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Requests that the server wants to see again at a given time.
    WhenTold,
    /// Also requests that got lost or failed in the server: they are long, and part of many.
    WhenLost,
}

/// Sends a request, and sends it again when the server asks for that, or as `again` specifies. `make` builds it for
/// each try. `lost` is the failure for a request without a response.
pub(super) async fn send<F>(
    method: &Method,
    again: Again,
    mut make: impl FnMut() -> CliResult<RequestBuilder>,
    lost: F,
) -> CliResult<Response>
where
    F: Fn(reqwest::Error) -> crate::failure::Failure,
{
    let (mut waited, mut tries) = (Duration::ZERO, 0);
    loop {
        let answer = make()?.send().await;
        tries += 1;
        let may_be_lost = again == Again::WhenLost && tries < TRIES;
        let pause_after_loss = FIRST_PAUSE * 4_u32.pow(tries - 1);
        let pause = match answer {
            Err(_) if may_be_lost => pause_after_loss,
            Err(why) => return Err(lost(why)),
            Ok(response) => {
                let (status, asked_for) = (response.status(), requested_pause(response.headers()));
                match asked_for.and_then(|asked_for| pause(method, status, asked_for, waited)) {
                    Some(pause) => {
                        if waited.is_zero() {
                            output::say(&words(status, &reason(response).await, pause));
                        }
                        waited += pause;
                        pause
                    }
                    // A response with a time has been waited for long enough.
                    None if may_be_lost && status.is_server_error() && asked_for.is_none() => {
                        pause_after_loss
                    }
                    None => return Ok(response),
                }
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// When the server wants the request again.
fn requested_pause(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::to_owned);
    retry_after(text(RETRY_AFTER_MS), text(header::RETRY_AFTER))
}

/// How long to wait before the same request is sent again; `None` if it is not.
fn pause(
    method: &Method,
    status: StatusCode,
    asked_for: Duration,
    waited: Duration,
) -> Option<Duration> {
    let most = match status {
        // The server did not process the request, whatever it was.
        StatusCode::TOO_MANY_REQUESTS => PACED_MAX,
        StatusCode::SERVICE_UNAVAILABLE if method.is_idempotent() => UNAVAILABLE_MAX,
        _ => return None,
    };
    // Avoids a tight loop, whatever the server asks for.
    let pause = asked_for.max(Duration::from_millis(100));
    (waited + pause <= most).then_some(pause)
}

/// With the server's own reason, if it gives one.
async fn reason(response: Response) -> Option<String> {
    let body = response.bytes().await.ok()?;
    match from_json::<ErrorBody>(&body) {
        Ok(said) => Some(message(&said.error.message)),
        Err(_) => parse_error(&body).map(|(_, words)| printable(&words)),
    }
}

fn words(status: StatusCode, reason: &Option<String>, pause: Duration) -> String {
    let what = match (status, reason) {
        (StatusCode::TOO_MANY_REQUESTS, _) => format!("the server is busy ({status})"),
        (_, Some(reason)) => {
            format!("the server cannot do this at the moment ({status}): {reason}")
        }
        (_, None) => format!("the server cannot do this at the moment ({status})"),
    };
    format!("{what}; retrying in {} s", pause.as_secs_f32())
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::super::fake::{Fake, answer};
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn only_what_the_server_wants_to_hear_again_is_repeated_and_not_for_ever() {
        let paused = |method: Method, status: u16, after: &'static str, waited_s: u64| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(after));
            let status = StatusCode::from_u16(status).unwrap();
            pause(&method, status, requested_pause(&headers)?, Duration::from_secs(waited_s))
        };
        let seconds = |count| Some(Duration::from_secs(count));
        assert_eq!(paused(Method::POST, 429, "3", 0), seconds(3));
        assert_eq!(paused(Method::GET, 429, "3", 57), seconds(3));
        assert_eq!(paused(Method::GET, 429, "3", 58), None, "long enough");
        assert_eq!(paused(Method::GET, 429, "3600", 0), None, "too long");
        assert_eq!(paused(Method::GET, 429, "0", 0), Some(Duration::from_millis(100)));
        assert_eq!(paused(Method::GET, 429, "tomorrow", 0), None);
        assert_eq!(paused(Method::PUT, 503, "1", 1), seconds(1));
        assert_eq!(paused(Method::PUT, 503, "1", 2), None);
        assert_eq!(paused(Method::POST, 503, "1", 0), None, "it may have taken effect");
        assert_eq!(paused(Method::PATCH, 503, "1", 0), None);
        assert_eq!(paused(Method::GET, 500, "1", 0), None);
        assert_eq!(requested_pause(&HeaderMap::new()), None);
    }

    #[test]
    fn a_server_that_cannot_do_it_is_not_called_busy() {
        let pause = Duration::from_millis(1500);
        let full = Some("its disk is full".to_owned());
        assert_eq!(
            words(StatusCode::SERVICE_UNAVAILABLE, &full, pause),
            "the server cannot do this at the moment (503 Service Unavailable): its disk is full; retrying in 1.5 s"
        );
        let busy = words(StatusCode::TOO_MANY_REQUESTS, &None, pause);
        assert!(busy.starts_with("the server is busy (429 "), "{busy}");
    }

    /// The result of a PUT that is sent again if it gets lost, and how often it was sent, for a server with these
    /// responses.
    async fn put(answers: Vec<String>) -> (StatusCode, usize) {
        let fake = Fake::start(answers);
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let lost = |why: reqwest::Error| Failure::error(why.to_string());
        let sent = send(&Method::PUT, Again::WhenLost, || Ok(http.put(&fake.url)), lost).await;
        (sent.unwrap().status(), fake.bodies().len())
    }

    #[tokio::test]
    async fn what_gets_lost_is_sent_again_but_not_what_was_waited_for_already() {
        let answers = vec![String::new(), answer(500, "", ""), answer(201, "", "")];
        assert_eq!(put(answers).await, (StatusCode::CREATED, 3));
        // Later than the client is willing to wait.
        let later = answer(503, "retry-after: 9\r\n", "");
        assert_eq!(put(vec![later]).await, (StatusCode::SERVICE_UNAVAILABLE, 1));
    }

    #[tokio::test]
    async fn the_servers_own_reason_is_reported() {
        let json = r#"{"error":{"code":"ServiceUnavailable","message":"its disk is full"}}"#;
        let xml = "<Error><Code>ServerBusy</Code><Message>its disk is full</Message></Error>";
        for (body, words) in
            [(json, Some("its disk is full")), (xml, Some("its disk is full")), ("?", None)]
        {
            let fake = Fake::start(vec![answer(503, "", body)]);
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            let answered = http.get(&fake.url).send().await.unwrap();
            assert_eq!(reason(answered).await.as_deref(), words, "{body}");
        }
    }
}
