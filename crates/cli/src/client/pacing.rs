//! Waiting when the server says that it has too much to do, and when to come back.

use std::time::Duration;

use reqwest::header::{self, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, StatusCode};

use super::{RETRY_AFTER_MS, retry_after};
use crate::failure::Outcome;
use crate::output;

/// How long one request is held back in all, because its caller asked for too much.
const PACED_MAX: Duration = Duration::from_secs(60);
/// The same for a server that cannot serve it now. That may last, and its reason should be seen soon.
const UNAVAILABLE_MAX: Duration = Duration::from_secs(2);

/// Sends a request, and once more whenever the server says when. `make` makes it anew for each try. `lost` says what a request
/// without an answer means.
pub(super) async fn send<F>(
    method: &Method,
    mut make: impl FnMut() -> Outcome<RequestBuilder>,
    lost: F,
) -> Outcome<Response>
where
    F: Fn(reqwest::Error) -> crate::failure::Failure,
{
    let mut waited = Duration::ZERO;
    loop {
        let response = make()?.send().await.map_err(&lost)?;
        let status = response.status();
        let Some(pause) = pause(method, status, response.headers(), waited) else {
            return Ok(response);
        };
        if waited.is_zero() {
            output::say(&format!(
                "the server is busy ({status}); trying again in {} s",
                pause.as_secs_f32()
            ));
        }
        waited += pause;
        tokio::time::sleep(pause).await;
    }
}

/// How long to wait before the same is asked again; `None` if it is not.
fn pause(
    method: &Method,
    status: StatusCode,
    headers: &HeaderMap,
    waited: Duration,
) -> Option<Duration> {
    let most = match status {
        // It was not even looked at, whatever it was.
        StatusCode::TOO_MANY_REQUESTS => PACED_MAX,
        StatusCode::SERVICE_UNAVAILABLE if method.is_idempotent() => UNAVAILABLE_MAX,
        _ => return None,
    };
    let text = |name| headers.get(name)?.to_str().ok().map(str::to_owned);
    let pause = retry_after(text(RETRY_AFTER_MS), text(header::RETRY_AFTER))?;
    // Not in a tight loop, whatever the server says.
    let pause = pause.max(Duration::from_millis(100));
    (waited + pause <= most).then_some(pause)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn only_what_the_server_wants_to_hear_again_is_repeated_and_not_for_ever() {
        let paused = |method: Method, status: u16, after: &'static str, waited_s: u64| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(after));
            let status = StatusCode::from_u16(status).unwrap();
            pause(&method, status, &headers, Duration::from_secs(waited_s))
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
        assert_eq!(paused(Method::POST, 503, "1", 0), None, "it may have been done");
        assert_eq!(paused(Method::PATCH, 503, "1", 0), None);
        assert_eq!(paused(Method::GET, 500, "1", 0), None);
        let none = HeaderMap::new();
        let status = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(pause(&Method::GET, status, &none, Duration::ZERO), None);
    }
}
