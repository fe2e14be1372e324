//! An order in which every resource comes after those that it depends on.

use std::collections::BTreeSet;

use super::evaluate::Fault;
use super::resources::{COMPUTES, Entry, WORKSPACES};
use crate::json::shorten;

/// The wanted entries. Where the dependencies leave a choice, they keep their order in the template.
pub(super) fn of(entries: &[Entry<'_>]) -> Result<Vec<usize>, Fault> {
    let mut waits: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); entries.len()];
    for (at, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.is_wanted) {
        waits[at].extend(named(entries, entry)?);
        waits[at].extend(workspace_of(entries, entry));
        // A resource in a nested template waits for the dependencies of the template, and the template is done when all
        // its resources are.
        let mut within = entry.within;
        while let Some(outer) = within {
            waits[at].extend(named(entries, &entries[outer])?);
            waits[outer].insert(at);
            within = entries[outer].within;
        }
    }
    let mut order: Vec<usize> = Vec::new();
    let mut is_done: Vec<bool> = entries.iter().map(|entry| !entry.is_wanted).collect();
    loop {
        let is_ready = |at: &usize| !is_done[*at] && waits[*at].iter().all(|other| is_done[*other]);
        match (0..entries.len()).find(is_ready) {
            Some(at) => {
                is_done[at] = true;
                order.push(at);
            }
            None => break,
        }
    }
    let waiting: Vec<String> = entries
        .iter()
        .zip(&is_done)
        .filter(|(_, is_done)| !**is_done)
        .take(8)
        .map(|(entry, _)| format!("{} '{}'", entry.place, shorten(&entry.name)))
        .collect();
    if waiting.is_empty() {
        return Ok(order);
    }
    Err(Fault::new(format!(
        "these resources depend on each other, so none can be first: {}; remove one of their dependsOn",
        waiting.join(", ")
    )))
}

fn named(entries: &[Entry<'_>], entry: &Entry<'_>) -> Result<BTreeSet<usize>, Fault> {
    let mut found = BTreeSet::new();
    for text in &entry.depends {
        let mut called = (0..entries.len()).filter(|at| entries[*at].is_called(text)).peekable();
        let is_there = called.peek().is_some();
        found.extend(called);
        if !is_there {
            let message = format!(
                "dependsOn names '{}', which is not in the template; correct the name, or remove it",
                shorten(text)
            );
            return Err(Fault::new(message).at(&entry.place));
        }
    }
    Ok(found)
}

/// A compute depends on its workspace, even if the template does not say so.
fn workspace_of(entries: &[Entry<'_>], entry: &Entry<'_>) -> Option<usize> {
    if !entry.kind.eq_ignore_ascii_case(COMPUTES) {
        return None;
    }
    let (home, _) = entry.id.rsplit_once("/computes/").or_else(|| {
        let end = entry.id.to_ascii_lowercase().rfind("/computes/")?;
        Some((&entry.id[..end], ""))
    })?;
    entries.iter().position(|other| {
        other.is_wanted
            && other.kind.eq_ignore_ascii_case(WORKSPACES)
            && other.id.eq_ignore_ascii_case(home)
    })
}
