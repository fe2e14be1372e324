//! Many deletes in one request, as Azure's clients send them: `multipart/mixed`, with a complete request in every part.

use super::StorageError;

/// The most requests in a batch, as in Azure.
pub const BATCH_PARTS_MAX: usize = 256;
/// More than that many requests need.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// One request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchPart<'b> {
    /// The id as it was sent; the response repeats it.
    pub id: Option<&'b str>,
    pub method: &'b str,
    /// Path and query, starting with a slash.
    pub target: &'b str,
    pub headers: Vec<(&'b str, &'b str)>,
}

/// The head of the response to one request of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchAnswer {
    pub id: Option<String>,
    pub status: u16,
    /// The reason phrase that clients show.
    pub reason: String,
    /// Azure's error code, if the request was refused.
    pub code: Option<String>,
}

/// The boundary between the parts, from the request's `Content-Type`.
fn boundary(content_type: &str) -> Option<&str> {
    let (kind, rest) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/mixed") {
        return None;
    }
    let fields = rest.split(';').filter_map(|field| field.trim().split_once('='));
    let (_, boundary) = { fields }.find(|(name, _)| name.eq_ignore_ascii_case("boundary"))?;
    let boundary = boundary.trim().trim_matches('"');
    (1..=70).contains(&boundary.len()).then_some(boundary)
}

pub fn parse_batch<'b>(
    content_type: &str,
    body: &'b [u8],
) -> Result<Vec<BatchPart<'b>>, StorageError> {
    let bad = |why: &str| StorageError::new(400, "InvalidInput", format!("the batch {why}"));
    let boundary = boundary(content_type)
        .ok_or_else(|| bad("is not multipart/mixed with a boundary; send it in that form"))?;
    let body = std::str::from_utf8(body).map_err(|_| bad("is not UTF-8; encode its names"))?;
    let mark = format!("--{boundary}");
    let mut rest = body.split(mark.as_str());
    // The text before the first boundary has no meaning.
    rest.next();
    let mut parts = Vec::new();
    for part in rest {
        if part.starts_with("--") {
            return Ok(parts);
        }
        if parts.len() == BATCH_PARTS_MAX {
            return Err(bad(&format!(
                "has more than {BATCH_PARTS_MAX} requests, which is the limit; send several batches"
            )));
        }
        parts.push(parse_part(part).ok_or_else(|| bad("has a part that is not a request"))?);
    }
    Err(bad("is incomplete; send all of it"))
}

fn parse_part(part: &str) -> Option<BatchPart<'_>> {
    let mut lines = part.strip_prefix("\r\n").or(part.strip_prefix('\n'))?.lines();
    let mut id = None;
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-id") {
            id = Some(value.trim());
        }
    }
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') || words.next().is_some() {
        return None;
    }
    let headers = lines.take_while(|line| !line.is_empty());
    let headers = headers.map(|line| line.split_once(':').map(|(name, it)| (name, it.trim())));
    Some(BatchPart { id, method, target, headers: headers.collect::<Option<_>>()? })
}

/// The responses, one part each, and the boundary between them.
pub fn batch_answer(boundary: &str, answers: &[BatchAnswer]) -> String {
    let mut text = String::new();
    for answer in answers {
        let id = answer.id.as_deref().map(|id| format!("Content-ID: {id}\r\n")).unwrap_or_default();
        let code = answer.code.as_deref();
        let code = code.map(|code| format!("x-ms-error-code: {code}\r\n")).unwrap_or_default();
        text += &format!(
            "--{boundary}\r\nContent-Type: application/http\r\n{id}\r\nHTTP/1.1 {} {}\r\n{code}Content-Length: 0\r\n\r\n\r\n",
            answer.status, answer.reason
        );
    }
    text + &format!("--{boundary}--\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "multipart/mixed; boundary=batch_1";

    fn part(id: usize, line: &str) -> String {
        format!(
            "--batch_1\r\nContent-Type: application/http\r\nContent-ID: {id}\r\n\r\n{line}\r\n\
             x-ms-date: now\r\nContent-Length: 0\r\n\r\n\r\n"
        )
    }

    #[test]
    fn every_part_is_a_request() {
        let text = part(0, "DELETE /c/a%20b?sig=x HTTP/1.1") + &part(1, "DELETE /c/d HTTP/1.1");
        let text = text + "--batch_1--\r\n";
        let parts = parse_batch(KIND, text.as_bytes()).unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].id, parts[0].method), (Some("0"), "DELETE"));
        assert_eq!(parts[0].target, "/c/a%20b?sig=x");
        assert_eq!(parts[1].headers, [("x-ms-date", "now"), ("Content-Length", "0")]);
        assert_eq!(parse_batch(KIND, b"--batch_1--").unwrap(), []);
        let quoted =
            parse_batch("Multipart/Mixed;charset=x; Boundary=\"batch_1\"", text.as_bytes());
        assert_eq!(quoted.unwrap(), parts);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let good = part(0, "DELETE /c/d HTTP/1.1");
        let refused = |kind: &str, text: &str| parse_batch(kind, text.as_bytes()).is_err();
        assert!(refused(KIND, &good), "the batch is incomplete");
        let end = "--batch_1--";
        assert!(refused("text/plain", &(good.clone() + end)));
        assert!(refused("multipart/mixed", &(good.clone() + end)));
        assert!(refused("multipart/mixed; boundary=", &(good.clone() + end)));
        for line in ["", "DELETE", "DELETE d HTTP/1.1", "DELETE /d", "DELETE /d HTTP/1.1 x"] {
            assert!(refused(KIND, &(part(0, line) + end)), "{line:?}");
        }
        assert!(refused(KIND, &(good.repeat(BATCH_PARTS_MAX + 1) + end)));
        assert!(!refused(KIND, &(good.repeat(BATCH_PARTS_MAX) + end)));
        assert!(parse_batch(KIND, b"--batch_1\xff--batch_1--").is_err());
    }
}
