//! Reading and writing XML: block lists, and lists of blobs.

use std::fmt::Write as _;

use muster_core::storage::{BLOCKS_MAX, Blob, BlockFrom, BlockRef, Blocks, Listed};
use quick_xml::Reader;
use quick_xml::escape::escape;
use quick_xml::events::Event;

use super::{StorageError, format_tag, http_date, is_block_id};
use crate::path::encode_text;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>";

/// The most blocks with the longest ids, and room for line breaks.
pub const BLOCK_LIST_BYTES_MAX: usize = 8 << 20;

/// `<BlockList><Latest>ID</Latest>…</BlockList>`.
pub fn parse_block_list(text: &[u8]) -> Result<Vec<BlockRef>, StorageError> {
    let bad = |what: &str| {
        StorageError::invalid_xml(format!(
            "the block list {what}; send <BlockList><Latest>ID</Latest>…</BlockList>"
        ))
    };
    if text.len() > BLOCK_LIST_BYTES_MAX {
        return Err(StorageError::too_large(BLOCK_LIST_BYTES_MAX as u64));
    }
    let text = std::str::from_utf8(text).map_err(|_| bad("is not UTF-8"))?;
    let mut reader = Reader::from_str(text);
    let mut blocks = Vec::new();
    let (mut is_begun, mut is_ended) = (false, false);
    let mut inside: Option<(BlockFrom, String)> = None;
    loop {
        match reader.read_event().map_err(|_| bad("is not XML"))? {
            Event::Decl(_) if !is_begun => {}
            Event::Comment(_) => {}
            Event::Start(tag) if !is_begun && tag.name().as_ref() == "BlockList" => is_begun = true,
            Event::Empty(tag) if !is_begun && tag.name().as_ref() == "BlockList" => {
                (is_begun, is_ended) = (true, true);
            }
            // Only two levels are accepted, so memory use does not depend on the depth of the document.
            Event::Start(tag) if is_begun && !is_ended && inside.is_none() => {
                let from = match tag.name().as_ref() {
                    "Latest" => BlockFrom::Latest,
                    "Committed" => BlockFrom::Committed,
                    "Uncommitted" => BlockFrom::Uncommitted,
                    _ => return Err(bad("has an unknown element")),
                };
                inside = Some((from, String::new()));
            }
            Event::Text(piece) => {
                let piece = piece.xml10_content();
                match &mut inside {
                    Some((_, id)) => id.push_str(&piece),
                    None if piece.trim().is_empty() => {}
                    None => return Err(bad("has text outside of its elements")),
                }
            }
            Event::End(_) => match inside.take() {
                Some((from, id)) => {
                    let id = id.trim();
                    if !is_block_id(id) {
                        return Err(bad("has an id that is not base64 of 1 to 64 bytes"));
                    }
                    if blocks.len() == BLOCKS_MAX {
                        let message = format!(
                            "a blob may have at most {BLOCKS_MAX} blocks; send larger ones"
                        );
                        return Err(StorageError::new(400, "BlockListTooLong", message));
                    }
                    blocks.push(BlockRef { id: id.into(), from });
                }
                None => is_ended = true,
            },
            Event::Eof if is_ended => return Ok(blocks),
            Event::Eof => return Err(bad("is incomplete")),
            _ => return Err(bad("has an unexpected element")),
        }
    }
}

/// The committed blocks of a blob, and its uncommitted ones.
pub fn block_list(blocks: &Blocks, with_committed: bool, with_uncommitted: bool) -> String {
    let mut text = format!("{HEAD}<BlockList>");
    for (name, list) in [
        ("CommittedBlocks", with_committed.then_some(&blocks.committed)),
        ("UncommittedBlocks", with_uncommitted.then_some(&blocks.uncommitted)),
    ] {
        let Some(list) = list else { continue };
        put(&mut text, format_args!("<{name}>"));
        for (id, bytes) in list {
            put(&mut text, format_args!("<Block><Name>{id}</Name><Size>{bytes}</Size></Block>"));
        }
        put(&mut text, format_args!("</{name}>"));
    }
    text.push_str("</BlockList>");
    text
}

/// One page of the list of a container.
pub struct Page<'p> {
    pub endpoint: &'p str,
    pub container: &'p str,
    pub prefix: &'p str,
    pub delimiter: Option<&'p str>,
    pub marker: Option<&'p str>,
    pub limit: Option<usize>,
    pub with_metadata: bool,
    pub items: &'p [Listed],
    /// Empty on the last page.
    pub next: &'p str,
}

impl Page<'_> {
    pub fn to_xml(&self) -> String {
        let mut text = format!(
            "{HEAD}<EnumerationResults ServiceEndpoint=\"{}\" ContainerName=\"{}\">",
            escape(self.endpoint),
            escape(self.container)
        );
        let limit = self.limit.map(|limit| limit.to_string());
        for (name, value) in [
            ("Prefix", Some(self.prefix).filter(|prefix| !prefix.is_empty())),
            ("Marker", self.marker),
            ("MaxResults", limit.as_deref()),
            ("Delimiter", self.delimiter),
        ] {
            if let Some(value) = value {
                put(&mut text, format_args!("<{name}>{}</{name}>", plain(value)));
            }
        }
        text.push_str("<Blobs>");
        for item in self.items {
            match item {
                Listed::Prefix(prefix) => {
                    put(
                        &mut text,
                        format_args!("<BlobPrefix>{}</BlobPrefix>", name_element(prefix)),
                    );
                }
                Listed::Blob(blob) => self.entry(&mut text, blob),
            }
        }
        put(&mut text, format_args!("</Blobs><NextMarker>{}</NextMarker>", escape(self.next)));
        text.push_str("</EnumerationResults>");
        text
    }

    fn entry(&self, text: &mut String, blob: &Blob) {
        put(
            text,
            format_args!(
                "<Blob>{}<Properties><Creation-Time>{}</Creation-Time><Last-Modified>{}</Last-Modified>\
                 <Etag>{}</Etag><Content-Length>{}</Content-Length>",
                name_element(&blob.name),
                http_date(blob.made),
                http_date(blob.changed),
                format_tag(blob.tag).trim_matches('"'),
                blob.bytes
            ),
        );
        let headers = &blob.about.headers;
        let kind = headers.content_type.as_deref().unwrap_or("application/octet-stream");
        for (name, value) in [
            ("Content-Type", Some(kind)),
            ("Content-Encoding", headers.encoding.as_deref()),
            ("Content-Language", headers.language.as_deref()),
            ("Content-MD5", headers.md5.as_deref()),
            ("Cache-Control", headers.cache_control.as_deref()),
            ("Content-Disposition", headers.disposition.as_deref()),
        ] {
            if let Some(value) = value {
                put(text, format_args!("<{name}>{}</{name}>", plain(value)));
            }
        }
        text.push_str(
            "<BlobType>BlockBlob</BlobType><LeaseStatus>unlocked</LeaseStatus>\
             <LeaseState>available</LeaseState><ServerEncrypted>false</ServerEncrypted></Properties>",
        );
        if self.with_metadata && !blob.about.metadata.is_empty() {
            text.push_str("<Metadata>");
            for (name, value) in &blob.about.metadata {
                put(text, format_args!("<{name}>{}</{name}>", plain(value)));
            }
            text.push_str("</Metadata>");
        }
        text.push_str("</Blob>");
    }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a string cannot fail");
}

/// Characters that XML cannot represent are omitted.
fn plain(text: &str) -> String {
    let kept: String = text.chars().filter(|character| is_xml(*character)).collect();
    escape(&kept).into_owned()
}

/// A name that XML cannot represent is percent-encoded and marked as such.
fn name_element(name: &str) -> String {
    // A carriage return would be read back as a line break.
    match name.chars().all(|character| is_xml(character) && character != '\r') {
        true => format!("<Name>{}</Name>", escape(name)),
        false => format!("<Name Encoded=\"true\">{}</Name>", encode_text(name)),
    }
}

fn is_xml(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use muster_core::storage::{About, Tag};
    use muster_core::time::Wall;

    use super::*;

    #[test]
    fn a_list_of_blocks_is_read_in_order() {
        let text = "\u{feff}<?xml version='1.0' encoding='utf-8'?>\n<BlockList>\n<Latest>YQ==</Latest>\
                    <Committed>Yg==</Committed><Uncommitted>Yw==</Uncommitted><Latest>YQ==</Latest></BlockList>";
        let text = text.trim_start_matches('\u{feff}');
        let blocks = parse_block_list(text.as_bytes()).unwrap();
        let read: Vec<_> = blocks.iter().map(|block| (&*block.id, block.from)).collect();
        let (latest, committed, uncommitted) =
            (BlockFrom::Latest, BlockFrom::Committed, BlockFrom::Uncommitted);
        assert_eq!(
            read,
            [("YQ==", latest), ("Yg==", committed), ("Yw==", uncommitted), ("YQ==", latest)]
        );
        assert_eq!(parse_block_list(b"<BlockList />").unwrap(), []);
        assert_eq!(parse_block_list(b"<BlockList></BlockList>").unwrap(), []);
    }

    #[test]
    fn what_is_no_list_of_blocks_is_refused() {
        for bad in [
            "",
            "<BlockList>",
            "<Latest>YQ==</Latest>",
            "<BlockList><Latest><Latest>YQ==</Latest></Latest></BlockList>",
            "<BlockList><Other>YQ==</Other></BlockList>",
            "<BlockList>x</BlockList>",
            "<BlockList><Latest>*</Latest></BlockList>",
            "<BlockList><Latest></Latest></BlockList>",
            "<!DOCTYPE x [<!ENTITY a 'b'>]><BlockList><Latest>&a;</Latest></BlockList>",
            "<BlockList></BlockList><BlockList></BlockList>",
            "<BlockList><![CDATA[x]]></BlockList>",
        ] {
            assert_eq!(
                parse_block_list(bad.as_bytes()).unwrap_err().code,
                "InvalidXmlDocument",
                "{bad}"
            );
        }
        let many =
            format!("<BlockList>{}</BlockList>", "<Latest>YQ==</Latest>".repeat(BLOCKS_MAX + 1));
        assert_eq!(parse_block_list(many.as_bytes()).unwrap_err().code, "BlockListTooLong");
        assert!(parse_block_list(&vec![b' '; BLOCK_LIST_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn names_survive_whatever_is_in_them() {
        let blob = |name: &str| {
            Listed::Blob(Blob {
                name: name.into(),
                tag: Tag(1),
                made: Wall(0),
                changed: Wall(0),
                bytes: 3,
                about: About::default(),
            })
        };
        let items = [blob("a<b>&\"'"), blob("x\u{1}y"), Listed::Prefix("ü/".into())];
        let page = Page {
            endpoint: "https://h/",
            container: "abc",
            prefix: "",
            delimiter: Some("/"),
            marker: None,
            limit: Some(3),
            with_metadata: true,
            items: &items,
            next: "6162",
        };
        let text = page.to_xml();
        assert!(text.contains("<Name>a&lt;b&gt;&amp;&quot;&apos;</Name>"), "{text}");
        assert!(text.contains("<Name Encoded=\"true\">x%01y</Name>"), "{text}");
        assert!(text.contains("<BlobPrefix><Name>ü/</Name></BlobPrefix>"), "{text}");
        assert!(text.contains("<NextMarker>6162</NextMarker>"), "{text}");
    }
}
