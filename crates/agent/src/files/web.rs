//! Inputs on the web. The node fetches them through its internet access, without any credentials.

use std::path::Path;
use std::time::Duration;

use muster_trees::{FILE_BYTES_MAX, Folder};
use reqwest::{Response, Url};

use super::data::check_room;
use super::fetch::FetchError;
use crate::attempt::{Context, ServerAccess};

/// How long to wait for the start of a response, and between two chunks of it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The most files of one input. Larger inputs belong in a datastore.
const FILES_MAX: usize = 100_000;
/// The largest page of a list: an account returns 5,000 names at a time.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// Fetches one file, under the last part of its URL.
pub(super) async fn bring(
    context: &Context,
    name: &str,
    url: &str,
    folder: &Folder,
) -> Result<(), FetchError> {
    let failed = |why: String| FetchError::Web { name: name.to_owned(), why };
    let client = client(context).map_err(failed)?;
    let path = format!("{name}/{}", file_name(url));
    fetch(&client, (name, url), (folder, &path)).await
}

/// Fetches everything below a URL in an Azure storage account whose container is listed publicly.
pub(super) async fn bring_folder(
    context: &Context,
    name: &str,
    url: &str,
    folder: &Folder,
) -> Result<(), FetchError> {
    let failed = |why: String| FetchError::Web { name: name.to_owned(), why };
    let client = client(context).map_err(failed)?;
    let (container, prefix) = split(url).ok_or_else(|| failed("it names no container".into()))?;
    let blobs = list(&client, &container, &prefix).await.map_err(failed)?;
    if blobs.is_empty() {
        return Err(failed(format!("there is nothing at {url}; check the address")));
    }
    check_room(folder, &format!("inputs.{name}"), blobs.iter().map(|blob| blob.bytes).sum())?;
    for blob in &blobs {
        let mut from = container.clone();
        if let Ok(mut parts) = from.path_segments_mut() {
            parts.extend(blob.name.split('/'));
        }
        let below = blob.name.strip_prefix(&prefix).unwrap_or(&blob.name);
        let path = format!("{name}/{below}");
        fetch(&client, (name, from.as_str()), (folder, &path)).await?;
    }
    Ok(())
}

async fn fetch(
    client: &reqwest::Client,
    (name, url): (&str, &str),
    (folder, path): (&Folder, &str),
) -> Result<(), FetchError> {
    let failed = |why: String| FetchError::Web { name: name.to_owned(), why };
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let from = |words: String| match &host {
        Some(host) => format!("from {host}: {words}"),
        None => words,
    };
    let sent = client.get(url).send().await.and_then(Response::error_for_status);
    let mut response = sent.map_err(|error| failed(from(words(error))))?;
    let bytes = response.content_length();
    let mut placing = folder.place_any(path, false, bytes.unwrap_or(FILE_BYTES_MAX), None)?;
    while let Some(piece) = response.chunk().await.map_err(|error| failed(words(error)))? {
        placing.write(&piece)?;
    }
    match bytes {
        Some(_) => Ok(placing.finish()?),
        None => Ok(placing.finish_as_is()?),
    }
}

/// Splits a URL into the container and the prefix of the blobs' names, which consists of whole folders.
fn split(url: &str) -> Option<(Url, String)> {
    let mut container = Url::parse(url).ok()?;
    let path = percent_decoded(container.path());
    let (name, below) = path.trim_start_matches('/').split_once('/').unwrap_or((&path, ""));
    let name = name.trim_matches('/').to_owned();
    let below = below.trim_end_matches('/');
    let prefix = if below.is_empty() { String::new() } else { format!("{below}/") };
    container.set_query(None);
    container.set_path(&name);
    (!name.is_empty()).then_some((container, prefix))
}

fn percent_decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let decoded =
            hex.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = if decoded.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug, PartialEq, Eq)]
struct Blob {
    name: String,
    bytes: u64,
}

fn not_listed(error: reqwest::Error) -> String {
    if !error.is_status() {
        return format!("its container cannot be reached: {}", words(error));
    }
    format!(
        "its container cannot be listed without credentials ({}); name one file with type uri_file, or put the data into a \
         datastore of this server",
        words(error)
    )
}

async fn list(client: &reqwest::Client, at: &Url, prefix: &str) -> Result<Vec<Blob>, String> {
    let mut all = Vec::new();
    let mut marker = String::new();
    loop {
        let mut page = at.clone();
        page.query_pairs_mut().extend_pairs([
            ("restype", "container"),
            ("comp", "list"),
            ("prefix", prefix),
        ]);
        if !marker.is_empty() {
            page.query_pairs_mut().append_pair("marker", &marker);
        }
        let sent = client.get(page).send().await.and_then(Response::error_for_status);
        let mut answer = sent.map_err(not_listed)?;
        let mut text = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(words)? {
            text.extend_from_slice(&piece);
            if text.len() > PAGE_BYTES_MAX {
                return Err(format!("a page of its list has more than {PAGE_BYTES_MAX} bytes"));
            }
        }
        let text = String::from_utf8(text).map_err(|_| "its list is not valid UTF-8".to_owned())?;
        all.extend(blobs_of(&text));
        if all.len() > FILES_MAX {
            return Err(format!(
                "it has more than {FILES_MAX} files; choose a smaller folder, or put it into a datastore of this server"
            ));
        }
        marker = between(&text, "<NextMarker>", "</NextMarker>").map(unescaped).unwrap_or_default();
        if marker.is_empty() {
            return Ok(all);
        }
    }
}

/// Parses the files of one page. Some accounts also list folders, which have no bytes and end with a slash or are
/// marked.
fn blobs_of(page: &str) -> Vec<Blob> {
    let blob = |text: &str| {
        let name = unescaped(between(text, "<Name>", "</Name>")?);
        let bytes = between(text, "<Content-Length>", "</Content-Length>")?.parse().ok()?;
        let is_folder = name.ends_with('/') || text.contains("<ResourceType>directory<");
        (!is_folder).then_some(Blob { name, bytes })
    };
    page.split("<Blob>").skip(1).filter_map(blob).collect()
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    Some(rest.split_once(end)?.0)
}

fn unescaped(text: &str) -> String {
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    pairs.iter().fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

fn words(error: reqwest::Error) -> String {
    muster_core::ErrorChain(&error.without_url()).to_string()
}

/// Returns the last part of the URL's path.
fn file_name(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let last = path.split_once('/').and_then(|(_, path)| path.rsplit('/').next());
    match last {
        Some(name) if !matches!(name, "" | "." | "..") && name.len() <= 255 => name.to_owned(),
        _ => "data".to_owned(),
    }
}

/// Trusts the same certificates as the node's jobs.
fn client(context: &Context) -> Result<reqwest::Client, String> {
    let ca_bundle: Option<&Path> = context.access.as_ref().and_then(ServerAccess::ca_bundle);
    let mut builder = reqwest::Client::builder().read_timeout(TIMEOUT);
    if let Some(path) = ca_bundle {
        let bundle = std::fs::read(path).map_err(|error| error.to_string())?;
        let certificates = reqwest::Certificate::from_pem_bundle(&bundle);
        builder = builder.tls_certs_only(certificates.map_err(|error| error.to_string())?);
    }
    builder.build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_address_has_a_file_name() {
        for (url, name) in [
            ("https://h/a/b.csv", "b.csv"),
            ("https://h/a/b.csv?x=/y", "b.csv"),
            ("https://h/", "data"),
            ("https://h", "data"),
            ("https://h/..", "data"),
        ] {
            assert_eq!(file_name(url), name, "{url}");
        }
    }

    #[test]
    fn a_folder_is_a_container_and_what_names_begin_with() {
        for (url, container, prefix) in [
            ("https://h/c", "https://h/c", ""),
            ("https://h/c/", "https://h/c", ""),
            ("https://h/c/a/b", "https://h/c", "a/b/"),
            ("https://h/c/a%20b/?sv=1", "https://h/c", "a b/"),
        ] {
            let (found, below) = split(url).unwrap();
            assert_eq!((found.as_str(), below.as_str()), (container, prefix), "{url}");
        }
        assert_eq!(split("https://h/"), None);
    }

    /// Credentials would not help in this case.
    #[tokio::test]
    async fn a_container_that_is_not_reached_is_not_called_private() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let at = Url::parse(&format!("http://{free}/c")).unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let why = list(&client, &at, "").await.unwrap_err();
        assert!(why.starts_with("its container cannot be reached: "), "{why}");
    }

    #[test]
    fn a_list_names_files_and_no_folders() {
        let page = "<EnumerationResults><Blobs>\
            <Blob><Name>a/x &amp; y.csv</Name><Properties><Content-Length>3</Content-Length></Properties></Blob>\
            <Blob><Name>a/b</Name><Properties><ResourceType>directory</ResourceType><Content-Length>0</Content-Length>\
            </Properties></Blob><BlobPrefix><Name>a/c/</Name></BlobPrefix></Blobs><NextMarker /></EnumerationResults>";
        assert_eq!(blobs_of(page), [Blob { name: "a/x & y.csv".into(), bytes: 3 }]);
        assert!(blobs_of("<html>").is_empty());
    }
}
