//! The table of routes as docs/reference/arm.md shows it.

use muster_core::model::Action;

use super::table::{Log, Method, Needs, Row, Table as _};
use crate::routes::Route;

/// A word that a field can have, with the text that describes it.
#[derive(Clone, Copy)]
struct Word {
    field: &'static str,
    word: &'static str,
    text: &'static str,
}

/// The words of a row's field that has only certain words, or a single `None`.
fn words_of(row: &Row) -> Vec<Option<Word>> {
    let found = row.fields.iter().find(|(_, shape)| !shape.words().is_empty());
    let Some((field, shape)) = found else { return vec![None] };
    shape.words().into_iter().map(|(word, text)| Some(Word { field, word, text })).collect()
}

/// One line for each route, and for each word of a field that has only certain words.
pub fn documentation() -> String {
    let head = "| path | methods | needs | activity log | description |\n|---|---|---|---|---|\n";
    let mut page = String::from(head);
    for row in Route::rows() {
        page.extend(words_of(row).into_iter().map(|word| line(row, word)));
    }
    page
}

/// Paths of a row as they could be requested, with `x` for every name.
pub fn examples(row: &Row) -> Vec<String> {
    let workspace =
        "subscriptions/x/resourceGroups/x/providers/Microsoft.MachineLearningServices/workspaces/x";
    let example = |word| {
        let path = path(row, word).replace("WORKSPACE", workspace);
        let path = path.replace("SCOPE", "subscriptions/x");
        let piece = |piece| if str::starts_with(piece, '{') { "x" } else { piece };
        path.split('/').map(piece).collect::<Vec<_>>().join("/")
    };
    words_of(row).into_iter().map(example).collect()
}

fn path(row: &Row, word: Option<Word>) -> String {
    row.fill(|field| match word {
        Some(word) if word.field == field => word.word.to_owned(),
        _ => {
            let found = row.fields.iter().find(|(name, _)| *name == field);
            found.map(|(name, shape)| shape.in_documentation(name)).unwrap_or_default()
        }
    })
}

fn line(row: &Row, word: Option<Word>) -> String {
    let fill = |text: &str, with: fn(Word) -> &'static str| match word {
        Some(word) => text.replace(&format!("{{{}}}", word.field), with(word)),
        None => text.to_owned(),
    };
    let log = match row.log {
        Log::OnlyReads => String::new(),
        Log::As(name) => format!("`{}`", fill(name, |word| word.word)),
        Log::Not(why) => format!("no: {why}"),
    };
    let (path, text) = (path(row, word), fill(row.documentation.trim(), |word| word.text));
    format!("| `{path}` | {} | {} | {log} | {text} |\n", row.allow(), needs(row))
}

fn needs(row: &Row) -> String {
    let reads = row.methods.iter().copied().any(Method::reads);
    let changes = row.methods.iter().any(|method| !method.reads());
    match (reads, changes) {
        (true, true) if row.reads != row.changes => {
            format!("{}; to change: {}", words(row.reads), words(row.changes))
        }
        (true, _) => words(row.reads).to_owned(),
        (false, _) => words(row.changes).to_owned(),
    }
}

fn words(needs: Needs) -> &'static str {
    match needs {
        Needs::Nothing => "nothing",
        Needs::Token => "a token",
        Needs::Something => "any role in it",
        Needs::To(action) => match action {
            Action::Read => "read",
            Action::RunJobs => "jobs",
            Action::ManageComputes => "computes",
            Action::ManageWorkspaces => "workspaces",
            Action::ManageQuota => "quota",
            Action::ManageAccess => "roles",
        },
    }
}
