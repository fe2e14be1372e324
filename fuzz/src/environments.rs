//! What users and operators write about Python environments.

use muster_core::ErrorChain;
use muster_core::model::Recipe;
use muster_environments::conda::{self, Names};
use muster_environments::dockerfile::{self, Files, With};
use muster_environments::table::{Table, curated_name};
use muster_environments::{id_of, pip};

use crate::oracle;

const INDEX: &str = "https://index.example/simple";

fn indexes() -> Vec<String> {
    vec![INDEX.to_owned()]
}

/// The lines that uv gets for a recipe: each of them is a package and nothing else.
fn check(recipe: &Recipe) {
    for line in &recipe.requirements {
        assert!(line.starts_with(|c: char| c.is_ascii_alphanumeric()), "{line:?}");
        assert!(!line.contains(['\n', '\r', '\0', '@', '\\', '$']), "{line:?}");
        assert!(!line.contains("://"), "{line:?}");
    }
    let named = recipe.index.iter().chain(&recipe.extra_indexes);
    assert!(named.into_iter().all(|url| &**url == INDEX));
    let again = pip::parse_lines(recipe.requirements.iter().map(|line| &**line), &indexes());
    assert_eq!(again.expect("our own lines").requirements, recipe.requirements, "one spelling");
    assert_eq!(id_of(recipe), id_of(&recipe.clone()));
}

pub fn conda_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match conda::parse(text, &Names::default(), &indexes()) {
        Ok(read) => {
            check(&read.recipe);
            // Notes become lines of a log.
            assert!(read.notes.iter().all(|note| !note.contains(['\n', '\r', '\u{1b}'])));
        }
        Err(why) => oracle::words(&ErrorChain(&why).to_string()),
    }
}

/// A context that has every file, all with the same content.
struct Everything<'a>(&'a str);

impl Files for Everything<'_> {
    fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
        assert!(!path.starts_with('/') && path.split('/').all(|part| part != ".."), "{path:?}");
        Ok(Some(self.0.as_bytes().to_vec()).filter(|content| content.len() <= bytes_max))
    }

    fn has(&self, path: &str) -> Result<bool, String> {
        assert!(!path.starts_with('/') && path.split('/').all(|part| part != ".."), "{path:?}");
        Ok(true)
    }
}

pub fn dockerfile(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for content in ["six", "dependencies: [numpy]", text] {
        let files = &Everything(content);
        let (names, indexes) = (&Names::default(), &indexes());
        match dockerfile::parse(text, With { files, names, indexes }) {
            Ok(read) => {
                read.recipe.iter().for_each(check);
                assert!(read.notes.iter().all(|note| !note.contains(['\n', '\r', '\u{1b}'])));
                assert!(read.variables.iter().all(|(name, value)| {
                    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
                }));
            }
            Err(why) => oracle::words(&ErrorChain(&why).to_string()),
        }
    }
}

pub fn requirements(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match pip::parse(text, &indexes()) {
        Ok(recipe) => check(&recipe),
        Err(why) => oracle::words(&ErrorChain(&why).to_string()),
    }
}

/// Reads the text as an operator's file, and each of its lines as a name.
pub fn environment_table(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let table = match Table::default().with(text, &indexes()) {
        Ok(table) => table,
        Err(why) => {
            oracle::words(&ErrorChain(&why).to_string());
            Table::default()
        }
    };
    for name in text.lines().take(4) {
        let image = table.image("id", name);
        assert!(!image.notes.is_empty(), "a note names the substitute");
        image.recipe.iter().for_each(check);
        match table.curated(name, curated_name(name)) {
            Ok(found) => found.recipe.iter().for_each(check),
            Err(why) => oracle::words(&why.to_string()),
        }
    }
}
