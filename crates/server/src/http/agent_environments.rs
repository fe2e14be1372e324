//! The Python environment of a node's attempt: where it is, or how far it is.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use muster_core::ErrorChain;
use muster_environments::store;
use serde::Serialize;

use super::{agent_trees, listener};
use crate::app::App;
use crate::environments;

/// A build takes seconds to minutes; who waits asks again.
const HELD_MAX: Duration = Duration::from_secs(20);

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Environment {
    Ready { folder: String, notes: Vec<String> },
    Building { said: Vec<String> },
    Failed { message: String, said: Vec<String> },
}

impl From<store::State> for Environment {
    fn from(state: store::State) -> Environment {
        match state {
            store::State::Ready { folder, notes } => Environment::Ready { folder, notes },
            store::State::Building { said } => Environment::Building { said },
            store::State::Failed { message, said } => Environment::Failed { message, said },
        }
    }
}

/// Answers as soon as it is ready or has failed, else when the time is over.
pub async fn environment(
    State(app): State<Arc<App>>,
    Path(epoch): Path<String>,
    headers: HeaderMap,
) -> Response {
    let job = match agent_trees::asking(&app, &headers, &epoch) {
        Ok(asking) => asking.job,
        Err(refused) => return refused.into_response(),
    };
    let recipe = match app.readers.read(move |reader| environments::recipe_of(reader, job)).await {
        Ok(Some(recipe)) => recipe,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "a job's environment could not be looked up");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    let mut stopping = app.stopping.clone();
    let state = tokio::select! {
        state = app.environments.get(&recipe, HELD_MAX) => state,
        () = listener::stopped(&mut stopping) => store::State::Building { said: Vec::new() },
    };
    Json(Environment::from(state)).into_response()
}
