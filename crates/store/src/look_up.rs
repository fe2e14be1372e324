//! Looks up facts in the rows that World does not have, and adds them to an input before it is stepped.

use muster_core::Input;

use crate::{Store, StoreError};

pub fn look_up(store: &mut dyn Store, mut input: Input) -> Result<Input, StoreError> {
    match &mut input {
        Input::SubmitJob(request) => {
            request.existing = store.find_job(&request.workspace, &request.name)?;
            if request.spec.array.is_some() && request.existing.is_none() {
                request.numbered = store.numbered_jobs(&request.workspace, &request.name)?;
            }
        }
        Input::CancelJob { workspace, name, known } => {
            *known = store.find_job(workspace, name)?.map(Box::new);
        }
        Input::EditJob(edit) => edit.known = store.find_job(&edit.workspace, &edit.name)?,
        Input::RemoveExpired(expired) => {
            expired.known.clear();
            for job in &expired.jobs {
                expired.known.extend(store.ended_job(*job)?);
            }
        }
        Input::ChangeAsset(request) => {
            let (workspace, version) = (&request.workspace, request.action.version());
            request.known = store.find_asset(workspace, request.kind, &request.name, version)?;
        }
        Input::Asked { input, .. } => {
            let asked = std::mem::replace(&mut **input, Input::Tick);
            **input = look_up(store, asked)?;
        }
        Input::NoteActivity(_)
        | Input::CheckJob(_)
        | Input::PutWorkspace { .. }
        | Input::PatchWorkspace { .. }
        | Input::DeleteWorkspace { .. }
        | Input::PutCluster { .. }
        | Input::PatchCluster { .. }
        | Input::DeleteCluster { .. }
        | Input::PowerInstance { .. }
        | Input::Report { .. }
        | Input::SaveTree(_)
        | Input::EffectDone { .. }
        | Input::NodeEvicted { .. }
        | Input::NodeEnded { .. }
        | Input::EvictNode { .. }
        | Input::SetQuota { .. }
        | Input::ChangeAccess(_)
        | Input::ChangeGovernance(_)
        | Input::ChangeHosts(_)
        | Input::Deploy(_)
        | Input::DeleteDeployment { .. }
        | Input::PutDatastore { .. }
        | Input::DeleteDatastore { .. }
        | Input::Tick => {}
    }
    Ok(input)
}
