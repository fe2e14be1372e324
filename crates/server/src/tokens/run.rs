//! The token with which a job proves its identity, for one attempt of one job. It is accepted only while that attempt
//! is live.

use jsonwebtoken::{Algorithm, Header};
use muster_core::ids::{Epoch, JobId};
use muster_core::model::WorkspaceKey;
use serde::{Deserialize, Serialize};

use super::{Keyring, LEEWAY_S, TOKEN_BYTES_MAX, TokenError, TokenRejected};

/// The environment variables of a running process cannot be renewed, so the token ends with the attempt; this is only
/// an upper bound.
pub const RUN_TOKEN_LIFETIME_S: u64 = 60 * 24 * 60 * 60;

/// In no list of audiences, so no other route accepts it as a user's token.
const AUDIENCE: &str = "urn:muster:run";

/// The run that a token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunToken {
    pub job: JobId,
    pub epoch: Epoch,
    pub name: Box<str>,
    pub workspace: WorkspaceKey,
}

#[derive(Serialize, Deserialize)]
struct RunClaims {
    aud: String,
    iss: String,
    /// The job's name.
    sub: String,
    iat: u64,
    nbf: u64,
    exp: u64,
    job: u64,
    epoch: u64,
    subscription: String,
    resource_group: String,
    workspace: String,
}

impl Keyring {
    /// The token, and its latest expiry.
    pub fn issue_run(&self, run: &RunToken, now_unix: u64) -> Result<(String, u64), TokenError> {
        let exp = now_unix.saturating_add(RUN_TOKEN_LIFETIME_S);
        let claims = RunClaims {
            aud: AUDIENCE.to_owned(),
            iss: self.issuer.clone(),
            sub: run.name.to_string(),
            iat: now_unix,
            nbf: now_unix,
            exp,
            job: run.job.0,
            epoch: run.epoch.0,
            subscription: run.workspace.subscription.to_string(),
            resource_group: run.workspace.resource_group.to_string(),
            workspace: run.workspace.name.to_string(),
        };
        let header = Header::new(Algorithm::HS256);
        let token = jsonwebtoken::encode(&header, &claims, &self.encoding);
        Ok((token.map_err(TokenError::Sign)?, exp))
    }

    /// The key that only the members of one attempt know, with which they recognize each other.
    pub fn members_key(&self, epoch: Epoch) -> String {
        self.mac(&["members", &epoch.to_string()])
    }

    /// `None` if it is not the token of a run; then [`Keyring::verify`] decides.
    pub fn verify_run(
        &self,
        token: &str,
        now_unix: u64,
    ) -> Option<Result<RunToken, TokenRejected>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let decoded = jsonwebtoken::decode::<RunClaims>(token, &self.decoding, &self.validation);
        let claims = decoded.ok()?.claims;
        if claims.aud != AUDIENCE {
            return None;
        }
        let ago_s = now_unix.saturating_sub(claims.exp);
        if ago_s > LEEWAY_S {
            return Some(Err(TokenRejected::Expired { ago_s }));
        }
        let in_s = claims.nbf.saturating_sub(now_unix);
        if in_s > LEEWAY_S {
            return Some(Err(TokenRejected::NotYetValid { in_s }));
        }
        let RunClaims { sub, job, epoch, subscription, resource_group, workspace, .. } = claims;
        Some(Ok(RunToken {
            job: JobId(job),
            epoch: Epoch(epoch),
            name: sub.into(),
            workspace: WorkspaceKey::new(&subscription, &resource_group, &workspace),
        }))
    }
}

#[cfg(test)]
mod tests {
    use muster_core::access::Directory;

    use super::*;
    use crate::tokens::{Audiences, load_or_create};

    const NOW: u64 = 1_700_000_000;

    fn run() -> RunToken {
        let (job, epoch) = (JobId(7), Epoch(11));
        RunToken { job, epoch, name: "train".into(), workspace: WorkspaceKey::new("s", "g", "w") }
    }

    #[test]
    fn the_token_of_a_run_is_valid_only_for_that_run() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = load_or_create(&dir.path().join("keys")).unwrap();
        let (token, ends) = keyring.issue_run(&run(), NOW).unwrap();
        assert_eq!(keyring.verify_run(&token, NOW), Some(Ok(run())));
        let late = ends + LEEWAY_S + 1;
        let expired = keyring.verify_run(&token, late);
        assert!(matches!(expired, Some(Err(TokenRejected::Expired { .. }))));
        assert_eq!(keyring.verify_run(&format!("{token}x"), NOW), None);

        // It is not accepted as a user's token, nor the other way round.
        let audiences = Audiences::for_base("https://localhost:1");
        let all = [&audiences.arm[..], &audiences.ml[..], &audiences.storage[..]];
        let directory = Directory::default();
        assert!(keyring.verify(&token, &all, NOW, &directory, |_| true).is_err());
        let owner = keyring.owner.principal.clone();
        let issued = keyring.issue(&owner, "https://localhost:1", &audiences, NOW, &directory);
        assert_eq!(keyring.verify_run(&issued.unwrap().token, NOW), None);

        let elsewhere = load_or_create(&dir.path().join("others")).unwrap();
        assert_eq!(elsewhere.verify_run(&token, NOW), None);
        assert_ne!(keyring.members_key(Epoch(1)), keyring.members_key(Epoch(2)));
    }
}
