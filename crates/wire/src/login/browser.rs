//! Signing in through a browser is not supported. A client that tries it waits for the browser to call back a port of
//! its own, so the refusal has to reach that port, either as a form or as a redirect, depending on what the client
//! asked for.

use crate::path::{Query, encode_text as encode};

/// The message that the person and the client read.
pub const REFUSAL: &str = "Signing in through a browser or with a device code is not supported in this version. Run `az login \
     --identity`, which uses the key that `muster env` has set, or `az login --service-principal -u CLIENT_ID -p KEY \
     --tenant TENANT`; for muster itself, run `muster login`.";

const ERROR: &str = "access_denied";
const ADDRESS_BYTES_MAX: usize = 1_024;
const STATE_BYTES_MAX: usize = 1_024;
const SCRIPT: &str = "document.forms[0].submit()";

/// Allows nothing except that script, by its digest, and a form that is sent to a program on the same machine.
pub const POLICY: &str = "default-src 'none'; script-src 'sha256-ePniVEkSivX/c7XWBGafqh8tSpiRrKiqYeqbG7N1TOE='; \
     form-action http://localhost:* http://127.0.0.1:* http://[::1]:*; base-uri 'none'; frame-ancestors 'none'";

/// The response to a browser that comes to sign in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrowserReply {
    /// A page that forwards the refusal to the client that waits for it.
    Form(String),
    /// A URL of the client that includes the refusal.
    Redirect(String),
    /// No client on this machine is waiting, so only the person sees the message.
    Text(&'static str),
}

pub fn answer(query: &Query) -> BrowserReply {
    let client = query.get("redirect_uri").filter(|address| is_of_this_machine(address));
    let Some(client) = client else { return BrowserReply::Text(REFUSAL) };
    let state = query.get("state").filter(|state| state.len() <= STATE_BYTES_MAX);
    let fields = [("error", Some(ERROR)), ("error_description", Some(REFUSAL)), ("state", state)];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let wants_form =
        query.get("response_mode").is_some_and(|mode| mode.eq_ignore_ascii_case("form_post"));
    match wants_form {
        true => BrowserReply::Form(form(client, fields)),
        false => {
            let pairs: Vec<String> =
                fields.map(|(name, value)| format!("{name}={}", encode(value))).collect();
            let joint = if client.contains('?') { '&' } else { '?' };
            BrowserReply::Redirect(format!("{client}{joint}{}", pairs.join("&")))
        }
    }
}

/// Whether this is plain HTTP to a port of the machine where the browser runs. A redirect to anywhere else could be
/// abused for phishing.
fn is_of_this_machine(address: &str) -> bool {
    let is_plain = address.len() <= ADDRESS_BYTES_MAX
        && address.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\\"<>#".contains(&byte));
    let Some(rest) = address.strip_prefix("http://").filter(|_| is_plain) else { return false };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, port) = rest[..end].rsplit_once(':').unwrap_or((&rest[..end], "80"));
    matches!(host, "localhost" | "127.0.0.1" | "[::1]") && port.parse::<u16>().is_ok()
}

fn form<'a>(client: &str, fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let hidden: String = fields
        .map(|(name, value)| {
            format!("<input type=\"hidden\" name=\"{name}\" value=\"{}\">\n", escaped(value))
        })
        .collect();
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Muster</title>\n<p>{}</p>\n\
         <form method=\"post\" action=\"{}\">\n{hidden}<button>Continue</button>\n</form>\n\
         <script>{SCRIPT}</script>\n",
        escaped(REFUSAL),
        escaped(client)
    )
}

fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut all, c| {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            '\'' => all.push_str("&#39;"),
            other => all.push(other),
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(query: &str) -> BrowserReply {
        answer(&Query::parse(query).expect("a query"))
    }

    #[test]
    fn a_client_that_waits_for_a_form_is_sent_one() {
        let BrowserReply::Form(page) = asked(
            "redirect_uri=http%3A%2F%2Flocalhost%3A8400&response_mode=form_post&state=a%22%3Eb",
        ) else {
            panic!("the reply is not a form");
        };
        assert!(page.contains("<form method=\"post\" action=\"http://localhost:8400\">"), "{page}");
        assert!(page.contains("name=\"state\" value=\"a&quot;&gt;b\""), "{page}");
        assert!(page.contains("name=\"error\" value=\"access_denied\""), "{page}");
        assert!(page.contains("az login --identity"), "{page}");
    }

    #[test]
    fn a_client_that_waits_for_an_address_is_sent_there() {
        let BrowserReply::Redirect(to) =
            asked("redirect_uri=http%3A%2F%2F127.0.0.1%3A1%2Fa&state=x+y")
        else {
            panic!("the reply is not a redirect");
        };
        assert!(to.starts_with("http://127.0.0.1:1/a?error=access_denied&error_description=Sign"));
        assert!(to.contains("&state=x%"), "{to}");
    }

    #[test]
    fn no_browser_is_sent_to_another_machine() {
        for address in [
            "",
            "https://localhost:1",
            "http://example.com:1",
            "http://localhost.example.com",
            "http://localhost:1@example.com",
            "http://user@localhost:1",
            "http://example.com/?http://localhost:1",
            "http://localhost:99999",
            "http://localhost\\@example.com:1",
            "javascript:alert(1)",
            "http://localhost:1/a b",
        ] {
            let query = format!("redirect_uri={}&response_mode=form_post", encode(address));
            assert_eq!(asked(&query), BrowserReply::Text(REFUSAL), "{address}");
        }
    }
}
