//! Records as JSON text in a column, and the queries that fetch them.

use std::borrow::Cow;
use std::path::Path;

use muster_core::model::AttemptRecord;
use rusqlite::{Connection, Params, Row};
use serde::Serialize;
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::fault::Doing;
use super::packed;
use crate::StoreError;

/// The text of a record. Maps are ordered, so equal records have equal text.
pub(super) fn encode<T: Serialize>(record: &T) -> String {
    serde_json::to_string(record).expect("records are plain data with text keys")
}

/// The name of a variant without data: how phases, categories and outcomes are stored in a column.
pub(super) fn word<T: Serialize + std::fmt::Debug>(variant: &T) -> String {
    let text = encode(variant);
    let word = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    word.unwrap_or_else(|| unreachable!("{variant:?} has no data")).to_owned()
}

pub(super) fn from_word<T: DeserializeOwned>(word: &str, path: &Path) -> Result<T, StoreError> {
    let deserializer: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        word.into_deserializer();
    T::deserialize(deserializer).map_err(|why| damaged(path, &why))
}

/// A number to look for. No row has one above 2^63, but a caller may ask for any.
pub(super) fn key(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The record in column `column` of this row.
pub(super) fn decode<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    path: &Path,
) -> Result<T, StoreError> {
    let text = row.get_ref(column).doing("reading a row", path)?;
    let text = text.as_str().map_err(|why| damaged(path, &why))?;
    serde_json::from_str(text).map_err(|why| damaged(path, &why))
}

/// The same, where the joined row may be missing.
pub(super) fn decode_optional<T: DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
    path: &Path,
) -> Result<Option<T>, StoreError> {
    let text = row.get_ref(column).doing("reading a row", path)?;
    let text = text.as_str_or_null().map_err(|why| damaged(path, &why))?;
    text.map(serde_json::from_str).transpose().map_err(|why| damaged(path, &why))
}

/// The text in column `column` of this row, or in its compact form in the next one. `near` is what it was packed with.
pub(super) fn unpacked<'r>(
    row: &'r Row<'_>,
    column: usize,
    near: u64,
    path: &Path,
) -> Result<Cow<'r, str>, StoreError> {
    let doing = "reading a row";
    let packed = row.get_ref(column + 1).doing(doing, path)?;
    let packed = packed.as_blob_or_null().map_err(|why| damaged(path, &why))?;
    if let Some(packed) = packed {
        let what = "a packed record cannot be read".to_owned();
        let text = packed::unpack(packed, near).map(Cow::Owned);
        return text.ok_or(StoreError::Damaged { path: path.to_owned(), what });
    }
    let text = row.get_ref(column).doing(doing, path)?;
    text.as_str().map(Cow::Borrowed).map_err(|why| damaged(path, &why))
}

/// The record of an attempt, from a row with its text, its compact form and its epoch.
pub(super) fn attempt(row: &Row<'_>, path: &Path) -> Result<AttemptRecord, StoreError> {
    let epoch: i64 = row.get(2).doing("reading a row", path)?;
    let text = unpacked(row, 0, epoch.cast_unsigned(), path)?;
    serde_json::from_str(&text).map_err(|why| damaged(path, &why))
}

/// Every row of a query, each converted to a `T`.
pub(super) fn rows<T>(
    connection: &Connection,
    path: &Path,
    sql: &str,
    params: impl Params,
    mut each: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::new();
    self::each(connection, path, sql, params, |row| {
        all.push(each(row)?);
        Ok(())
    })?;
    Ok(all)
}

/// Calls a function for every row of a query.
pub(super) fn each(
    connection: &Connection,
    path: &Path,
    sql: &str,
    params: impl Params,
    mut each: impl FnMut(&Row<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(sql).doing("reading rows", path)?;
    let mut found = statement.query(params).doing("reading rows", path)?;
    while let Some(row) = found.next().doing("reading rows", path)? {
        each(row)?;
    }
    Ok(())
}

/// The records in the first column of a query.
pub(super) fn many<T: DeserializeOwned>(
    connection: &Connection,
    path: &Path,
    sql: &str,
    params: impl Params,
) -> Result<Vec<T>, StoreError> {
    rows(connection, path, sql, params, |row| decode(row, 0, path))
}

/// The record in the first column of the first row, if there is one.
pub(super) fn one<T: DeserializeOwned>(
    connection: &Connection,
    path: &Path,
    sql: &str,
    params: impl Params,
) -> Result<Option<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).doing("reading a row", path)?;
    let mut found = statement.query(params).doing("reading a row", path)?;
    match found.next().doing("reading a row", path)? {
        Some(row) => decode(row, 0, path).map(Some),
        None => Ok(None),
    }
}

pub(super) fn damaged(path: &Path, why: &dyn std::error::Error) -> StoreError {
    StoreError::Damaged { path: path.to_owned(), what: format!("a row cannot be read: {why}") }
}
