//! The Python environments of this host's nodes, built here just as the server builds those of its own host. The
//! server's replies contain the wanted ones; our reports contain their states.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_core::ErrorChain;
use muster_core::ids::ClusterId;
use muster_core::model::{Recipe, RecipeId};
use muster_environments::id_of;
use muster_environments::store::{Config, State, Store, Timing};
use muster_providers::joined::protocol::{
    EnvironmentState, EnvironmentTerms, HeldEnvironment, WantedEnvironment,
};
use tokio::task::JoinSet;

use crate::HostAgentError;

/// A build may take longer than this; its state is then requested again.
const HELD_MAX: Duration = Duration::from_secs(20);
/// The time limit for a build if the server does not set one.
const BUILD_WITHIN: Duration = Duration::from_secs(30 * 60);
const BYTES_MAX: u64 = 20 << 30;

/// An environment, and the cluster whose nodes see it.
type Shown = (RecipeId, ClusterId);

pub(crate) struct Environments {
    store: Store,
    wanted: BTreeMap<Shown, Recipe>,
    states: BTreeMap<Shown, EnvironmentState>,
    asked: BTreeSet<Shown>,
    questions: JoinSet<(Shown, State)>,
}

impl Environments {
    pub(crate) fn open(
        dir: PathBuf,
        uv: Option<PathBuf>,
        terms: &EnvironmentTerms,
    ) -> Result<Environments, HostAgentError> {
        let EnvironmentTerms { build_within_s, bytes_max, indexes } = terms.clone();
        let or = |given: u64, default: u64| if given == 0 { default } else { given };
        let build_within = Duration::from_secs(or(build_within_s, BUILD_WITHIN.as_secs()));
        let bytes_max = or(bytes_max, BYTES_MAX);
        let timing = Timing::default();
        let config = Config { dir, uv, indexes, build_within, bytes_max, timing };
        let store = Store::open(config).map_err(HostAgentError::Environments)?;
        let (wanted, states) = (BTreeMap::new(), BTreeMap::new());
        Ok(Environments {
            store,
            wanted,
            states,
            asked: BTreeSet::new(),
            questions: JoinSet::new(),
        })
    }

    /// The folder in which nodes find what is shown to their clusters.
    pub(crate) fn shown_dir(&self) -> &Path {
        self.store.shown_dir()
    }

    /// The store, to prepare it for the nodes of a cluster.
    pub(crate) fn store(&self) -> Store {
        self.store.clone()
    }

    pub(crate) fn want(&mut self, wanted: &[WantedEnvironment]) {
        let shown =
            |one: &WantedEnvironment| ((id_of(&one.recipe), one.cluster), one.recipe.clone());
        self.wanted = wanted.iter().map(shown).collect();
        self.states.retain(|id, _| self.wanted.contains_key(id));
        let all: Vec<Shown> = self.wanted.keys().copied().collect();
        all.into_iter().for_each(|id| self.ask(id));
    }

    /// Requests the state again, whatever it was: a failed build is repeated after a while, and a finished one may have
    /// been removed.
    fn ask(&mut self, id: Shown) {
        let Some(recipe) = self.wanted.get(&id).cloned() else { return };
        if self.asked.insert(id) {
            let store = self.store.clone();
            self.questions.spawn(async move { (id, store.get_for(id.1, &recipe, HELD_MAX).await) });
        }
    }

    /// Waits for a result; forever if nothing was requested. May be dropped.
    pub(crate) async fn heard(&mut self) {
        let Some(heard) = self.questions.join_next().await else {
            return std::future::pending().await;
        };
        // A request that failed is repeated with the next list.
        let Ok((id, state)) = heard else { return self.asked.clear() };
        self.asked.remove(&id);
        let state = match state {
            State::Ready { notes, .. } => EnvironmentState::Ready { notes },
            State::Building { .. } => EnvironmentState::Building,
            State::Failed { message, said } => EnvironmentState::Failed { message, said },
        };
        let is_building = state == EnvironmentState::Building;
        if self.wanted.contains_key(&id) {
            self.states.insert(id, state);
        }
        if is_building {
            self.ask(id);
        }
    }

    /// The states of the wanted environments.
    pub(crate) fn report(&self) -> Vec<HeldEnvironment> {
        let held = |(&(id, cluster), state): (&Shown, &EnvironmentState)| HeldEnvironment {
            id,
            cluster,
            state: state.clone(),
        };
        self.states.iter().map(held).collect()
    }

    /// Removes surplus environments. Only while there is no node here, because only nodes' jobs know what they use.
    pub(crate) fn tidy(&self) {
        let (wanted, clusters) = self.wanted.keys().copied().unzip();
        let store = self.store.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = store.tidy(&wanted, &clusters) {
                let error = ErrorChain(&error);
                tracing::warn!(%error, "cannot remove surplus environments");
            }
        });
    }
}

impl Drop for Environments {
    /// The next host agent starts unfinished builds again.
    fn drop(&mut self) {
        self.store.stop();
    }
}
