//! Versioned assets: their documents, and references to them and to their files.

use muster_core::ids::WorkspaceId;
use muster_core::model::{Asset, AssetKind};
use muster_core::time::Wall;
use muster_core::{AssetAction, AssetRequest, Input, KnownAsset};
use muster_wire::asset::{self, AssetLocation, Reference, Which};

use crate::core::{Stage, caller, key};
use crate::oracle;

fn say(kind: AssetKind, action: AssetAction) {
    let (workspace, name, by) = (key(), "asset".into(), caller());
    let known = KnownAsset::default();
    let request = AssetRequest { workspace, kind, name, action, by, known };
    Stage::running().say(Input::ChangeAsset(Box::new(request)));
}

/// Reads the same document as each kind. An asset that is shown and put again is the same asset.
pub fn asset(data: &[u8]) {
    for kind in AssetKind::ALL {
        let wanted = match asset::parse_request(kind, &key(), data) {
            Ok(wanted) => wanted.kept_as(kind, "asset", "1"),
            Err(error) => {
                oracle::refusal(&error);
                continue;
            }
        };
        let kept = Asset {
            workspace: WorkspaceId(1),
            kind,
            name: "asset".into(),
            version: "1".into(),
            about: wanted.spec.clone(),
            is_archived: wanted.is_archived.unwrap_or(false),
            created_at: Wall(0),
            created_by: caller(),
            changed_at: Wall(0),
            changed_by: caller(),
        };
        let shown = asset::resource(&key(), &kept).expect("our own body");
        let shown = muster_wire::to_json(&shown);
        oracle::grown(data, &shown);
        let again = asset::parse_request(kind, &key(), shown.as_bytes());
        let again = again.unwrap_or_else(|why| panic!("{why}: {shown}")).spec;
        assert_eq!((&again.body, &again.metadata), (&wanted.spec.body, &wanted.spec.metadata));
        assert_eq!((&again.hash, &again.tags), (&wanted.spec.hash, &wanted.spec.tags));
        let (version, is_archived) = ("1".into(), wanted.is_archived);
        say(kind, AssetAction::Put { version, wanted: wanted.spec, is_archived });
    }
}

pub fn container(data: &[u8]) {
    match asset::parse_container(data) {
        Ok((wanted, is_archived)) => {
            say(AssetKind::Data, AssetAction::PutContainer { wanted, is_archived });
        }
        Err(error) => oracle::refusal(&error),
    }
}

/// A location has one spelling, and does not lead out of its place.
pub fn place(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let place = match AssetLocation::parse(text, &key()) {
        Ok(place) => place,
        Err(why) => return oracle::words(&why.to_string()),
    };
    let uri = place.to_uri(&key());
    oracle::grown(data, &uri);
    if uri.len() <= 4_096 {
        assert_eq!(AssetLocation::parse(&uri, &key()), Ok(place.clone()), "{uri}");
    }
    if let AssetLocation::Datastore { path, .. } | AssetLocation::JobOutput { path, .. } = &place {
        assert!(path.split(['/', '\\']).all(|part| part != ".."), "{path}");
    }
}

/// Every reference can be written in the short form, and means the same.
pub fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for kind in AssetKind::ALL {
        let reference = match Reference::parse(kind, text, &key()) {
            Ok(reference) => reference,
            Err(why) => {
                oracle::refusal(&why.at("properties.environmentId"));
                continue;
            }
        };
        let (name, which) = match &reference {
            Reference::Workspace { name, which, .. } | Reference::Curated { name, which } => {
                (name, which)
            }
            Reference::Registry { .. } => continue,
        };
        // In an id, anything may occur between two slashes; names that the core accepts have neither of these.
        if name.contains([':', '@']) {
            continue;
        }
        let short = match which {
            Which::Version(version) => format!("azureml:{name}:{version}"),
            Which::Latest => format!("azureml:{name}@latest"),
        };
        assert_eq!(Reference::parse(kind, &short, &key()), Ok(reference), "{short}");
    }
}
