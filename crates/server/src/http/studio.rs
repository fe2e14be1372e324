//! The page that a job's `studio_url` leads to. There is no web interface in this version; the page says so, with the
//! commands that show the same. It needs no token, and contains nothing that is not in its own URL.

use axum::extract::{Path, RawQuery};
use axum::http::header;
use axum::response::IntoResponse;
use muster_core::model::{WorkspaceKey, check_job_name};
use muster_wire::{Request, Route};

/// Azure's name for the parameter.
const WORKSPACE: &str = "wsid";

/// The URL of a job's page. Clients add `&tid=…` to it.
pub fn url(base_url: &str, workspace: &WorkspaceKey, job: &str) -> String {
    let id = Route::Workspace(workspace.clone()).path().unwrap_or_default();
    format!("{}/studio/runs/{job}?{WORKSPACE}={id}", base_url.trim_end_matches('/'))
}

pub async fn page(Path(run): Path<String>, RawQuery(query): RawQuery) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, text(&run, query.as_deref().unwrap_or_default()))
}

fn text(run: &str, query: &str) -> String {
    let name = check_job_name(run).map_or("NAME", |()| run);
    let flags = flags(query);
    format!(
        "There is no web studio in this version of Muster. These commands show the job:\n\n\
         muster job show --name {name}{flags} -o table\n\
         muster job logs --name {name}{flags}\n\
         muster job timeline --name {name}{flags}\n\
         muster why {name}{flags}\n"
    )
}

/// The flags that locate the job, unless the names would have to be quoted in a shell.
fn flags(query: &str) -> String {
    let value = |part: &str| part.strip_prefix(WORKSPACE)?.strip_prefix('=').map(str::to_owned);
    let Some(id) = query.split('&').find_map(value) else { return String::new() };
    let Ok(Request { route: Route::Workspace(key), .. }) = Request::parse(&id, None) else {
        return String::new();
    };
    let is_plain = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain)
    };
    let WorkspaceKey { subscription, resource_group, name, .. } = &key;
    match [subscription, resource_group, name].into_iter().all(|name| is_plain(name)) {
        true => format!(" -g {resource_group} -w {name} --subscription {subscription}"),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_commands_that_can_be_pasted() {
        let key = WorkspaceKey::new("s-1", "lab", "vision");
        let url = url("https://localhost:7443/", &key, "quiet_river");
        let (path, query) = url.split_once('?').unwrap();
        assert_eq!(path, "https://localhost:7443/studio/runs/quiet_river");
        let page = text("quiet_river", &format!("{query}&tid=t"));
        let line =
            "muster job show --name quiet_river -g lab -w vision --subscription s-1 -o table";
        assert!(page.lines().any(|shown| shown == line), "{page}");
    }

    #[test]
    fn a_forged_address_puts_nothing_into_the_page() {
        for run in ["a b", "<script>", "$(reboot)", ""] {
            assert!(text(run, "").contains("--name NAME -o table"), "{run}");
        }
        for group in ["$(reboot)", "a%20b", "-x", "<b>"] {
            let query = format!(
                "wsid=/subscriptions/s/resourceGroups/{group}/providers/\
                 Microsoft.MachineLearningServices/workspaces/w"
            );
            assert!(text("job", &query).contains("--name job -o table"), "{group}");
        }
    }
}
