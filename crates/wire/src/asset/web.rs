//! URLs of data outside this server: which of them a node can download without credentials.

use muster_core::model::{DataKind, Source, WebSource};

/// The parts of host names by which Azure's accounts are recognised: blobs, and Data Lake Storage, which serves the
/// same blobs.
const BLOBS: &str = ".blob.core.";
const LAKE: &str = ".dfs.core.";

/// A URL with `wasbs` or `abfss`: `wasbs://CONTAINER@HOST/PATH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageAddress<'a> {
    pub container: &'a str,
    pub host: &'a str,
    pub path: &'a str,
}

impl<'a> StorageAddress<'a> {
    pub fn parse(url: &'a str) -> Option<StorageAddress<'a>> {
        let (scheme, rest) = url.split_once("://")?;
        let is_it = |known: &&str| scheme.eq_ignore_ascii_case(known);
        ["wasbs", "wasb", "abfss", "abfs"].into_iter().find(is_it)?;
        let (container, rest) = rest.split_once('@')?;
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        (!container.is_empty() && !container.contains('/') && !host.is_empty())
            .then_some(StorageAddress { container, host, path })
    }
}

/// How a node fetches the data at a URL outside this server. The error is a message for the submitter.
pub fn source_elsewhere(url: &str, kind: DataKind) -> Result<Source, String> {
    // A model is a file or a folder; the URL shows which.
    let is_folder = match kind {
        DataKind::UriFile => false,
        DataKind::CustomModel => url.ends_with('/'),
        DataKind::UriFolder | DataKind::MlTable | DataKind::MlflowModel | DataKind::TritonModel => {
            true
        }
    };
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
    match scheme.as_str() {
        "adl" => Err("Azure has retired Data Lake Storage Gen1 (adl://), so it can no longer be read; copy the data to a \
                      datastore of this server, or give an abfss or https URL"
            .to_owned()),
        "https" | "http" if !is_folder => Ok(Source::Web(WebSource { url: url.into(), is_folder })),
        "https" | "http" => match container_of(url) {
            Some(_) => Ok(Source::Web(WebSource { url: url.into(), is_folder })),
            None => Err("a folder can only be listed in a public blob container, as in \
                         https://ACCOUNT.blob.core.windows.net/CONTAINER/FOLDER, and any other URL is a single file; give \
                         type uri_file, or put the folder into a datastore of this server"
                .to_owned()),
        },
        _ => {
            let address = StorageAddress::parse(url).ok_or_else(|| {
                format!("write the URL as {scheme}://CONTAINER@ACCOUNT.blob.core.windows.net/PATH")
            })?;
            let host = blob_host(address.host).ok_or_else(|| {
                format!(
                    "{} is neither this server's storage nor an Azure account (ACCOUNT.blob.core.windows.net or \
                     ACCOUNT.dfs.core.windows.net); put the data into a datastore of this server",
                    address.host
                )
            })?;
            let url = format!("https://{host}/{}/{}", address.container, address.path);
            Ok(Source::Web(WebSource { url: url.into(), is_folder }))
        }
    }
}

/// The host that serves an account's blobs, for either of its two host names.
fn blob_host(host: &str) -> Option<String> {
    let host = host.to_ascii_lowercase();
    let is_account = |(account, suffix): &(&str, &str)| !account.is_empty() && !suffix.is_empty();
    if host.split_once(BLOBS).filter(is_account).is_some() {
        return Some(host);
    }
    host.split_once(LAKE)
        .filter(is_account)
        .map(|(account, suffix)| format!("{account}{BLOBS}{suffix}"))
}

/// The container of a URL in one of Azure's accounts, and the path in it.
pub fn container_of(url: &str) -> Option<(&str, &str)> {
    let (_, rest) = url.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let (host, path) = rest.split_once('/')?;
    blob_host(host)?;
    let (container, path) = path.split_once('/').unwrap_or((path, ""));
    (!container.is_empty()).then_some((container, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(url: &str, is_folder: bool) -> Result<Source, String> {
        Ok(Source::Web(WebSource { url: url.into(), is_folder }))
    }

    #[test]
    fn public_data_is_fetched_over_https() {
        use DataKind::{CustomModel, UriFile, UriFolder};
        for (url, kind, wanted) in [
            ("https://h/x.csv", UriFile, web("https://h/x.csv", false)),
            (
                "wasbs://data@acc.blob.core.windows.net/a/b.csv",
                UriFile,
                web("https://acc.blob.core.windows.net/data/a/b.csv", false),
            ),
            (
                "abfss://data@acc.dfs.core.windows.net/a/",
                UriFolder,
                web("https://acc.blob.core.windows.net/data/a/", true),
            ),
            (
                "https://acc.blob.core.windows.net/data/a",
                UriFolder,
                web("https://acc.blob.core.windows.net/data/a", true),
            ),
            (
                "WASBS://data@acc.blob.core.windows.net",
                UriFolder,
                web("https://acc.blob.core.windows.net/data/", true),
            ),
            ("https://h/model.pkl", CustomModel, web("https://h/model.pkl", false)),
        ] {
            assert_eq!(source_elsewhere(url, kind), wanted, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_fetched_is_refused_with_what_to_do() {
        for (url, part) in [
            ("adl://acc.azuredatalakestore.net/x", "Gen1"),
            ("https://h/folder", "type uri_file"),
            ("https://h/folder/", "type uri_file"),
            ("https://acc.blob.core.windows.net", "type uri_file"),
            ("wasbs://acc.blob.core.windows.net/x", "CONTAINER@ACCOUNT"),
            ("wasbs://c@example.com/x", "neither this server's storage nor"),
            ("abfss://c@.dfs.core.windows.net/x", "neither this server's storage nor"),
        ] {
            let refused = source_elsewhere(url, DataKind::UriFolder).unwrap_err();
            assert!(refused.contains(part), "{url}: {refused}");
        }
    }
}
