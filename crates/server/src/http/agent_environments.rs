//! Tells a node's attempt where its Python environment is, or how far the build is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use muster_core::ErrorChain;
use muster_core::agent::EnvironmentAnswer;
use muster_core::ids::ClusterId;
use muster_core::model::{HostName, Recipe};
use muster_environments::store;
use muster_providers::joined::protocol::EnvironmentState;

use super::{agent_trees, listener};
use crate::app::App;
use crate::environments;

/// A build takes seconds to minutes; a node that still waits asks again.
const HELD_MAX: Duration = Duration::from_secs(20);
/// How often the state is checked. The reports of a joined host bring it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn answer(state: store::State) -> EnvironmentAnswer {
    match state {
        store::State::Ready { folder, notes } => EnvironmentAnswer::Ready { folder, notes },
        store::State::Building { said } => EnvironmentAnswer::Building { said },
        store::State::Failed { message, said } => EnvironmentAnswer::Failed { message, said },
    }
}

/// Answers as soon as the environment is ready or has failed, and otherwise when the time is up.
pub async fn environment(
    State(app): State<Arc<App>>,
    Path(epoch): Path<String>,
    headers: HeaderMap,
) -> Response {
    let asking = match agent_trees::asking(&app, &headers, &epoch) {
        Ok(asking) => asking,
        Err(refused) => return refused.into_response(),
    };
    let job = asking.job;
    let (cluster, recipe) = match app
        .readers
        .read(move |reader| environments::recipe_of(reader, job))
        .await
    {
        Ok(Some(found)) => found,
        Ok(None) => return StatusCode::NOT_FOUND.into_response(),
        Err(error) => {
            tracing::error!(error = %ErrorChain(&error), "cannot look up the environment of a job");
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
    };
    let mut stopping = app.stopping.clone();
    // A joined host builds its own environments.
    let home = app.live.roster().home_of(&asking.node);
    let built = async {
        match &home {
            Some(host) => on_host(&app, host, cluster, &recipe).await,
            None => app.environments.get(cluster, &recipe, HELD_MAX).await,
        }
    };
    let state = tokio::select! {
        state = built => state,
        () = listener::stopped(&mut stopping) => store::State::Building { said: Vec::new() },
    };
    Json(answer(state)).into_response()
}

/// The state that the host reports, once it is no longer building or the time is up.
async fn on_host(app: &App, host: &HostName, cluster: ClusterId, recipe: &Recipe) -> store::State {
    let (id, roster) = (muster_environments::id_of(recipe), app.live.roster());
    let began = Instant::now();
    loop {
        match roster.environment(host, (id, cluster), recipe, Instant::now()) {
            EnvironmentState::Ready { notes } => {
                return store::State::Ready { folder: id.to_string(), notes };
            }
            EnvironmentState::Failed { message, said } => {
                return store::State::Failed { message, said };
            }
            EnvironmentState::Building if began.elapsed() >= HELD_MAX => {
                return store::State::Building { said: Vec::new() };
            }
            EnvironmentState::Building => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}
