//! What follows from the row of a route: its path, its label in logs, and its name in the activity log.

use super::PathError;
use super::fields::Form;
use super::segments::encode;
use super::table::{Audience, Log, Needs, Table as _, is_read};
use crate::routes::Route;

impl Route {
    pub(super) fn of(segments: &[String]) -> Result<Route, PathError> {
        Ok(Route::find(segments)?.unwrap_or(Route::Unknown))
    }

    /// The path of this route, encoded, without a query. `Unknown` has none.
    pub fn path(&self) -> Option<String> {
        Some(self.row()?.fill(|field| self.show(field, Form::Path)))
    }

    /// The path without the names that callers choose, which is safe to log: `/subscriptions/{}/resourceGroups/{}/…`.
    pub fn label(&self) -> String {
        match self.row() {
            Some(row) => row.fill(|field| self.show(field, Form::Label)),
            None => "unknown".to_owned(),
        }
    }

    /// The methods in the form of an `Allow` header.
    pub fn methods(&self) -> String {
        self.row().map(|row| row.allow()).unwrap_or_default()
    }

    /// What the caller of a method needs, whether the route has the method or not.
    pub fn needs(&self, method: &str) -> Needs {
        self.row().map_or(Needs::Token, |row| row.needs(method))
    }

    pub fn audience(&self) -> Audience {
        self.row().map_or(Audience::Manager, |row| row.audience)
    }

    /// The operation that a request performs, in Azure's words; `None` if it is not in the activity log.
    pub fn operation(&self, method: &str) -> Option<String> {
        let Log::As(name) = self.row()?.log else { return None };
        if is_read(method) {
            return None;
        }
        let mut name = name.to_owned();
        for (field, shape) in self.row()?.fields {
            if !shape.words().is_empty() {
                name = name.replace(&format!("{{{field}}}"), &self.show(field, Form::Label));
            }
        }
        Some(match method {
            _ if name.ends_with("/action") => name,
            "DELETE" => format!("{name}/delete"),
            _ => format!("{name}/write"),
        })
    }

    /// The absolute URL of this route. `base_url` is a configured one, never the Host header, because clients send
    /// their tokens there.
    pub fn url(&self, base_url: &str, query: &[(&str, &str)]) -> Option<String> {
        let mut url = format!("{}{}", base_url.trim_end_matches('/'), self.path()?);
        for (index, (key, value)) in query.iter().enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            // `$` is allowed in a query, and every client and its documentation shows it unencoded.
            url.push_str(&encode(key).replace("%24", "$"));
            url.push('=');
            url.push_str(&encode(value));
        }
        Some(url)
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
