//! The blob storage's protocol: paths, signed queries, ranges, block lists, batches; and datastores.

use muster_core::Input;
use muster_core::storage::BlockFrom;
use muster_core::time::Wall;
use muster_wire::blob::{
    Address, Asked, BATCH_PARTS_MAX, BlobQuery, NAME_CHARS_MAX, Sas, StorageError, is_block_id,
    is_container_name, parse_batch, parse_block_list, parse_range,
};
use muster_wire::datastore::{self, Own, Secrets};

use crate::core::{Stage, caller, key};
use crate::oracle;

fn refused(error: &StorageError) {
    assert!((400..500).contains(&error.status), "{}: {error}", error.status);
    oracle::words(&error.message);
    assert!(error.to_xml().contains(error.code));
}

/// A name is the path decoded once: with every byte encoded, it reads back as the same name.
pub fn blob_address(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let address = match Address::parse(text) {
        Ok(address) => address,
        Err(error) => return refused(&error),
    };
    assert!(is_container_name(&address.container));
    let Some(name) = &address.blob else { return };
    assert!(!name.is_empty() && name.chars().count() <= NAME_CHARS_MAX);
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for prefix in ["", "/acct.blob.muster.internal"] {
        let again = Address::parse(&format!("{prefix}/{}/{encoded}", address.container));
        assert_eq!(again.as_ref(), Ok(&address));
    }
}

/// A signed query has only one meaning, and its signature never applies to two things.
pub fn blob_sas(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let query = match BlobQuery::parse(text) {
        Ok(query) => query,
        Err(error) => return refused(&error),
    };
    let sas = match Sas::of(&query) {
        Ok(Some(sas)) => sas,
        Ok(None) => return,
        Err(error) => return refused(&error),
    };
    let again = BlobQuery::parse(&sas.to_query()).expect("our own query");
    assert_eq!(Sas::of(&again), Ok(Some(sas.clone())));
    let texts = ["a/b/c", "a/bc", "a"].map(|name| sas.signed_text("abc", Some(name), ""));
    for text in texts.iter().flatten() {
        assert_ne!(Some(text), sas.signed_text("xyz", Some("a/b/c"), "").as_ref());
        assert_eq!(text.lines().nth(7), Some("abc"), "every field has its line");
    }
    if let Err(error) = sas.is_in_time(Wall(1_794_772_332_000_000)) {
        refused(&error);
    }
}

pub fn blob_range(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse_range(text) {
        Ok(span) => {
            let to = span.to.map(|to| to.to_string()).unwrap_or_default();
            assert_eq!(parse_range(&format!("bytes={}-{to}", span.from)), Ok(span));
            assert!(span.to.is_none_or(|to| to >= span.from));
        }
        Err(error) => refused(&error),
    }
}

pub fn block_list(data: &[u8]) {
    let blocks = match parse_block_list(data) {
        Ok(blocks) => blocks,
        Err(error) => return refused(&error),
    };
    let mut again = String::from("<BlockList>");
    for block in &blocks {
        assert!(is_block_id(&block.id), "{:?}", block.id);
        let name = match block.from {
            BlockFrom::Latest => "Latest",
            BlockFrom::Committed => "Committed",
            BlockFrom::Uncommitted => "Uncommitted",
        };
        again.push_str(&format!("<{name}>{}</{name}>", block.id));
    }
    again.push_str("</BlockList>");
    assert_eq!(parse_block_list(again.as_bytes()), Ok(blocks));
}

/// The first line is the request's `Content-Type`. A batch that is written again reads back as the same.
pub fn blob_batch(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (kind, body) = data.split_at(at);
    let Ok(kind) = std::str::from_utf8(kind) else { return };
    let parts = match parse_batch(kind, body.strip_prefix(b"\n").unwrap_or_default()) {
        Ok(parts) => parts,
        Err(error) => return refused(&error),
    };
    assert!(parts.len() <= BATCH_PARTS_MAX);
    const MARK: &str = "no-name-has-this-in-it";
    let mut again = String::new();
    for part in &parts {
        assert!(part.target.starts_with('/') && !part.target.contains(['\n', ' ']));
        let id = part.id.map(|id| format!("Content-ID: {id}\n")).unwrap_or_default();
        let mut text = format!("--{MARK}\n{id}\n{} {} HTTP/1.1\n", part.method, part.target);
        for (name, value) in &part.headers {
            text += &format!("{name}: {value}\n");
        }
        again += &(text + "\n");
    }
    again += &format!("--{MARK}--");
    let kind = format!("multipart/mixed; boundary={MARK}");
    if !body.windows(MARK.len()).any(|part| part == MARK.as_bytes()) {
        assert_eq!(parse_batch(&kind, again.as_bytes()), Ok(parts));
    }
}

/// Each line is a header, `name: value`.
pub fn blob_headers(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let headers = || text.lines().filter_map(|line| line.split_once(": "));
    let asked = Asked::new(headers());
    let errors = [
        asked.about().err(),
        asked.guard().err(),
        asked.span().err(),
        asked.content_md5().err(),
        asked.refuse_unsupported().err(),
    ];
    errors.iter().flatten().for_each(refused);
}

pub fn datastore(data: &[u8]) {
    let own = Own { account: "localhost:7444/muster", suffix: "muster.internal" };
    let wanted = match datastore::parse_request(data, own) {
        Ok(wanted) => wanted,
        Err(error) => return oracle::refusal(&error),
    };
    let secrets = wanted.secret.as_deref().map(|secret| {
        use muster_core::model::AccountCredentials::Sas;
        match wanted.spec.account.as_ref().is_some_and(|account| account.opened_by == Sas) {
            true => Secrets::Sas { sas_token: secret.to_owned() },
            false => Secrets::AccountKey { key: secret.to_owned() },
        }
    });
    let again = datastore::request_json(&wanted.spec, secrets.as_ref());
    oracle::grown(data, &again);
    let mut read =
        datastore::parse_request(again.as_bytes(), own).unwrap_or_else(|why| panic!("{why}"));
    // Properties without effect are noted, and are not sent again.
    let note = wanted.spec.properties.get(muster_wire::notes::NOTE).cloned();
    read.spec.properties.extend(note.map(|note| (muster_wire::notes::NOTE.to_owned(), note)));
    assert_eq!((&read.spec, &read.secret), (&wanted.spec, &wanted.secret));
    let (workspace, name, by) = (key(), "store".into(), caller());
    let input = Input::PutDatastore { workspace, name, wanted: Box::new(wanted.spec), by };
    Stage::running().say(input);
}
