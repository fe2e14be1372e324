//! When the containers that were created for the files of versions are deleted.

use std::collections::BTreeSet;

use muster_core::model::AssetKind;
use muster_core::storage::{
    UPLOAD_LIFETIME, forgotten_uploads, is_upload_container, upload_container, upload_containers,
};
use muster_core::time::Wall;

const ID: &str = "0123456789abcdef0123456789abcdef";

#[test]
fn a_reference_is_known_by_the_containers_name() {
    let code = upload_container(AssetKind::Code, ID);
    let text = format!("https://localhost:1/muster/{code}/src and data-{ID} or \\\"model-{ID}\\\"");
    let found: Vec<&str> = upload_containers(&text).collect();
    assert_eq!(found, [code.clone(), format!("data-{ID}"), format!("model-{ID}")]);
    for other in [
        format!("environment-{ID}"),
        format!("code-{ID}0"),
        format!("code-{}", &ID[1..]),
        format!("code-{}", ID.to_uppercase()),
        "azureml-blobstore-1".to_owned(),
        "-".to_owned(),
    ] {
        assert!(!is_upload_container(&other), "{other}");
    }
    assert!(
        !is_upload_container(&format!("{code}/x")) && !is_upload_container(&format!("x{code}"))
    );
}

#[test]
fn only_unreferenced_containers_without_uploads_are_deleted() {
    let now = Wall(10 * UPLOAD_LIFETIME.0);
    let (old, new) = (Wall(now.0 - UPLOAD_LIFETIME.0), Wall(now.0 - UPLOAD_LIFETIME.0 + 1));
    let name = |digit: char| format!("code-{}", digit.to_string().repeat(32));
    let (gone, named, young) = (name('a'), name('b'), name('c'));
    let all = [
        (&*gone, old),
        (&*named, old),
        (&*young, new),
        // Containers of a user and of the workspace.
        ("data", old),
        ("code-review", old),
        ("azureml-blobstore-7", old),
        // Its clock was ahead.
        ("code-dddddddddddddddddddddddddddddddd", Wall(now.0 + 1)),
    ];
    let names = BTreeSet::from([named.as_str().into()]);
    assert_eq!(forgotten_uploads(all.into_iter(), &names, now), [gone.as_str()]);
}
