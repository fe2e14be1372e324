//! What a client of the blob storage writes and reads: URLs, block lists, lists of blobs, errors.

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

use crate::path::{encode_text, unescape as percent_decoded};

/// The limit for one page of a list; the server sends at most five thousand names.
pub const LIST_BYTES_MAX: usize = 32 << 20;

/// A blob as an entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub bytes: u64,
}

/// `CONTAINER/NAME?QUERY&SAS`. The slashes of a name are kept.
pub fn blob_url(container: &str, name: &str, query: &[(&str, &str)], sas: &str) -> String {
    let name: Vec<String> = name.split('/').map(encode_text).collect();
    with_query(&format!("{container}/{}", name.join("/")), query, sas)
}

/// The URL of a page of the blobs in a container whose names start with a prefix.
pub fn list_url(container: &str, prefix: &str, marker: &str, sas: &str) -> String {
    let mut query = vec![("restype", "container"), ("comp", "list"), ("prefix", prefix)];
    if !marker.is_empty() {
        query.push(("marker", marker));
    }
    with_query(container, &query, sas)
}

fn with_query(path: &str, query: &[(&str, &str)], sas: &str) -> String {
    let pairs = query.iter().map(|(key, value)| format!("{key}={}", encode_text(value)));
    let query: Vec<String> = pairs.chain((!sas.is_empty()).then(|| sas.to_owned())).collect();
    match query.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", query.join("&")),
    }
}

/// The body that commits a blob from these blocks.
pub fn block_list_request(ids: &[String]) -> String {
    let blocks: String = ids.iter().map(|id| format!("<Latest>{id}</Latest>")).collect();
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>{blocks}</BlockList>")
}

/// A page of a list, and the marker of the next one, if there is one. `None` if the text is not such a page.
pub fn parse_page(text: &[u8]) -> Option<(Vec<Entry>, Option<String>)> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= LIST_BYTES_MAX)?;
    let mut reader = Reader::from_str(text);
    let (mut entries, mut next) = (Vec::new(), None);
    let (mut name, mut bytes) = (None, None);
    let mut inside = String::new();
    let (mut words, mut is_encoded) = (String::new(), false);
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                inside = tag.name().as_ref().to_owned();
                is_encoded = tag.attributes().flatten().any(|it| it.key.as_ref() == "Encoded");
                words.clear();
            }
            Event::Text(piece) => words.push_str(&piece.xml10_content()),
            Event::GeneralRef(reference) => {
                words.push_str(&unescape(&format!("&{};", &*reference)).ok()?);
            }
            Event::End(tag) => {
                match (tag.name().as_ref(), inside.as_str()) {
                    ("Name", "Name") if is_encoded => {
                        name = Some(String::from_utf8(percent_decoded(&words)?).ok()?);
                    }
                    ("Name", "Name") => name = Some(words.clone()),
                    ("Content-Length", "Content-Length") => bytes = words.trim().parse().ok(),
                    ("NextMarker", "NextMarker") if !words.is_empty() => {
                        next = Some(words.clone());
                    }
                    ("Blob", _) => {
                        entries.push(Entry { name: name.take()?, bytes: bytes.take()? });
                    }
                    ("EnumerationResults", _) => return Some((entries, next)),
                    _ => {}
                }
                inside.clear();
            }
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// The code and the message of an error of the blob storage, if the text is one.
pub fn parse_error(text: &[u8]) -> Option<(String, String)> {
    let text = std::str::from_utf8(text).ok()?;
    let between = |start: &str, end: &str| {
        let rest = &text[text.find(start)? + start.len()..];
        let words = unescape(&rest[..rest.find(end)?]).ok()?;
        Some(words.into_owned())
    };
    Some((between("<Code>", "</Code>")?, between("<Message>", "</Message>")?))
}

#[cfg(test)]
mod tests {
    use muster_core::storage::{About, Blob, Listed, Tag};
    use muster_core::time::Wall;

    use super::*;
    use crate::blob::{Page, StorageError, parse_block_list};

    fn blob(name: &str, bytes: u64) -> Listed {
        Listed::Blob(Blob {
            name: name.into(),
            bytes,
            tag: Tag(1),
            made: Wall::default(),
            changed: Wall::default(),
            about: About::default(),
        })
    }

    #[test]
    fn what_the_server_writes_is_read() {
        let items = [blob("a&b/c <d>.txt", 3), blob("x\u{1}", 0), blob("ü/é", 9)];
        let page = Page {
            endpoint: "https://h/",
            container: "c",
            prefix: "",
            delimiter: None,
            marker: None,
            limit: None,
            with_metadata: true,
            items: &items,
            next: "m&1",
        };
        let (entries, next) = parse_page(page.to_xml().as_bytes()).unwrap();
        let names: Vec<_> = entries.iter().map(|it| (it.name.as_str(), it.bytes)).collect();
        assert_eq!(names, [("a&b/c <d>.txt", 3), ("x\u{1}", 0), ("ü/é", 9)]);
        assert_eq!(next.as_deref(), Some("m&1"));
        assert_eq!(parse_page(b"<EnumerationResults>"), None);
        let error = StorageError::invalid_uri("a < b");
        let read = parse_error(error.to_xml().as_bytes()).unwrap();
        assert_eq!((read.0.as_str(), read.1.as_str()), ("InvalidUri", "a < b"));
        assert_eq!(parse_error(b"<html>"), None);
    }

    #[test]
    fn what_is_sent_is_what_the_server_reads() {
        let ids = ["YQ==".to_owned(), "Yg==".to_owned()];
        let blocks = parse_block_list(block_list_request(&ids).as_bytes()).unwrap();
        assert_eq!(blocks.len(), 2);
        let url = blob_url("https://h/c", "a b/ü.txt", &[("comp", "block")], "sig=x");
        assert_eq!(url, "https://h/c/a%20b/%C3%BC.txt?comp=block&sig=x");
        assert_eq!(blob_url("https://h/c", "a", &[], ""), "https://h/c/a");
    }
}
