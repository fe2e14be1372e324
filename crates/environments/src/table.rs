//! The substitutes for what is not run here: Azure's curated environments, and images.
//!
//! The table is shipped, and an operator's own file takes precedence. Every image has a substitute. An unknown curated
//! name has none, because it would promise packages that are not there.

use std::collections::BTreeMap;

use muster_core::model::{JobEnvironment, Recipe};
use serde::Deserialize;

use crate::brief;
use crate::conda::{self, BadNames, CondaError, Names, NamesFile};
use crate::pip::{self, PipError};
use crate::python::{BadPythonRequest, PythonRequest};
use crate::variables::{self, VARIABLES_MAX};

const SHIPPED: &str = include_str!("curated.toml");
/// A large table has a few hundred rows.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
pub const ROWS_MAX: usize = 5_000;
const NAME_BYTES_MAX: usize = 1_024;
/// From 0 to 1. Below this, a guess is more often wrong than right.
const LIKENESS_MIN: f64 = 0.75;
const GUESSES_MAX: usize = 3;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    recipes: BTreeMap<String, Ingredients>,
    #[serde(default)]
    environments: Vec<Row>,
    #[serde(default)]
    images: Vec<Row>,
    #[serde(default)]
    conda: NamesFile,
}

/// Packages as requirements for pip, or a whole conda file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ingredients {
    python: Option<String>,
    /// A recipe of the same file whose packages are added.
    with: Option<String>,
    pip: Option<Vec<String>>,
    conda: Option<String>,
    /// Variables for its jobs, unless they set them themselves.
    #[serde(default)]
    variables: BTreeMap<String, String>,
}

/// A recipe with its packages.
#[derive(Debug, Clone)]
struct Known {
    recipe: Recipe,
    notes: Vec<Box<str>>,
    variables: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// `None` means the host's own Python.
    recipe: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTable {
    #[error("it has {bytes} bytes, but at most {TEXT_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    #[error("it has more than {ROWS_MAX} rows")]
    TooMany,
    #[error("it is not valid: {0}")]
    Toml(String),
    #[error("{row} names the recipe {recipe}, which does not exist")]
    NoRecipe { row: String, recipe: String },
    #[error(
        "the recipe {name} is to come with {with}, which is not a recipe of this file with a list for pip and without `with`; \
         choose one that is"
    )]
    With { name: String, with: String },
    #[error("the recipe {name} has neither pip nor conda; give it one of them")]
    Empty { name: String },
    #[error("the recipe {name} has pip and conda; list its packages in one of them")]
    Both { name: String },
    #[error("the recipe {name} cannot be used")]
    Pip { name: String, source: PipError },
    #[error("the recipe {name} cannot be used")]
    Conda { name: String, source: CondaError },
    #[error("the recipe {name} cannot be used")]
    Python { name: String, source: BadPythonRequest },
    #[error(
        "the recipe {name} cannot set the variable {variable}; set at most {VARIABLES_MAX}, with names of letters, digits and _, \
         none that leads to Python, and no ${{{{ in their values"
    )]
    Variable { name: String, variable: String },
    #[error("its conda names cannot be used")]
    Names(#[from] BadNames),
}

/// An unknown name of a curated environment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no curated environment {name} here{guess}; choose another, give a conda file or pip requirements instead, or have \
     the operator add it to the server's environments-file",
    guess = if nearest.is_empty() { String::new() } else { format!(" (the nearest are {})", nearest.join(", ")) }
)]
pub struct Unknown {
    pub name: String,
    pub nearest: Vec<String>,
}

/// Recipes, and what they are substitutes for.
#[derive(Debug, Clone)]
pub struct Table {
    environments: Vec<Substitute>,
    images: Vec<Substitute>,
    names: Names,
}

#[derive(Debug, Clone)]
struct Substitute {
    pattern: String,
    /// The recipe with its name.
    recipe: Option<(String, Recipe)>,
    notes: Vec<Box<str>>,
    variables: BTreeMap<String, String>,
}

/// A row of the table, for display.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    /// The pattern, in which `*` matches any characters.
    pub pattern: &'a str,
    /// Whether this is for images; otherwise it is for curated environments.
    pub is_image: bool,
    /// The recipe with its name. `None` means the host's own Python.
    pub recipe: Option<(&'a str, &'a Recipe)>,
    pub notes: &'a [Box<str>],
}

impl Substitute {
    fn listed(&self, is_image: bool) -> Listed<'_> {
        let recipe = self.recipe.as_ref().map(|(name, recipe)| (name.as_str(), recipe));
        Listed { pattern: &self.pattern, is_image, recipe, notes: &self.notes }
    }
}

impl Default for Table {
    fn default() -> Table {
        let empty = Table { environments: vec![], images: vec![], names: Names::default() };
        empty.with(SHIPPED, &[]).expect("a test parses it")
    }
}

impl Table {
    /// Adds an operator's file, which takes precedence. `indexes` are the package indexes that its recipes may name.
    pub fn with(&self, text: &str, indexes: &[String]) -> Result<Table, BadTable> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BadTable::TooLong { bytes: text.len() });
        }
        let file: File = toml::from_str(text).map_err(|why| BadTable::Toml(words(text, &why)))?;
        if file.recipes.len() + file.environments.len() + file.images.len() > ROWS_MAX {
            return Err(BadTable::TooMany);
        }
        let names = self.names.clone().with(file.conda)?;
        let mut recipes = BTreeMap::new();
        for (name, ingredients) in joined(file.recipes)? {
            let read = ingredients.read(&name, &names, indexes)?;
            recipes.insert(name, read);
        }
        // A row of the file may use a shipped recipe; the first one with this name is used.
        for row in self.environments.iter().chain(&self.images) {
            if let Some((name, recipe)) = &row.recipe {
                let (notes, variables) = (&row.notes, &row.variables);
                let known = || Known {
                    recipe: recipe.clone(),
                    notes: notes.clone(),
                    variables: variables.clone(),
                };
                recipes.entry(name.clone()).or_insert_with(known);
            }
        }
        let rows = |rows: Vec<Row>, kept: &[Substitute]| {
            let new = rows.into_iter().map(|row| row.substitute(&recipes));
            new.chain(kept.iter().cloned().map(Ok)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Table {
            environments: rows(file.environments, &self.environments)?,
            images: rows(file.images, &self.images)?,
            names,
        })
    }

    pub fn conda_names(&self) -> &Names {
        &self.names
    }

    /// Returns the environment of a job that names only an image.
    pub fn image(&self, id: &str, image: &str) -> JobEnvironment {
        let row = self.images.iter().find(|row| fits(&row.pattern, image));
        let found = substitute(id, &format!("image {}", brief(image)), row);
        JobEnvironment { image: Some(image.into()), ..found }
    }

    /// Returns the environment of a job that names a curated one, as [`curated_name`] finds it.
    pub fn curated(&self, id: &str, name: &str) -> Result<JobEnvironment, Unknown> {
        match self.environments.iter().find(|row| fits(&row.pattern, name)) {
            Some(row) => {
                Ok(substitute(id, &format!("curated environment {}", brief(name)), Some(row)))
            }
            None => Err(Unknown { name: brief(name), nearest: self.nearest(name) }),
        }
    }

    /// Lists all rows in the order in which they are matched, curated environments first.
    pub fn rows(&self) -> impl Iterator<Item = Listed<'_>> {
        let environments = self.environments.iter().map(|row| row.listed(false));
        environments.chain(self.images.iter().map(|row| row.listed(true)))
    }

    /// Returns the row for a curated environment.
    pub fn curated_row(&self, name: &str) -> Option<Listed<'_>> {
        let row = self.environments.iter().find(|row| fits(&row.pattern, name));
        row.map(|row| row.listed(false))
    }

    /// Returns true if a curated environment of this name is known.
    pub fn has_curated(&self, name: &str) -> bool {
        self.environments.iter().any(|row| fits(&row.pattern, name))
    }

    fn nearest(&self, name: &str) -> Vec<String> {
        let name: String = name.chars().take(NAME_BYTES_MAX).collect::<String>().to_lowercase();
        let likeness = |row: &Substitute| {
            strsim::jaro_winkler(&name, row.pattern.to_lowercase().trim_end_matches('*'))
        };
        let scored = self.environments.iter().map(|row| (likeness(row), &row.pattern));
        let mut near: Vec<_> = scored.filter(|(likeness, _)| *likeness >= LIKENESS_MIN).collect();
        near.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        near.into_iter().take(GUESSES_MAX).map(|(_, pattern)| brief(pattern)).collect()
    }
}

/// Creates the environment, with a note about what is used instead of what.
fn substitute(id: &str, what: &str, row: Option<&Substitute>) -> JobEnvironment {
    let (recipe, with) = match row.and_then(|row| row.recipe.as_ref()) {
        Some((name, recipe)) => {
            let packages: Vec<&str> =
                recipe.requirements.iter().map(|line| package(line)).collect();
            let mut packages = packages;
            packages.dedup();
            let (name, packages) = (brief(name), packages.join(", "));
            let with = format!("an environment built here ({name}: {packages})");
            (Some(recipe.clone()), with)
        }
        None => (
            None,
            "this host's own python3, with the packages that are installed there,".to_owned(),
        ),
    };
    let mut notes = vec![format!("the {what} is not run here; {with} is used instead").into()];
    notes.extend(row.into_iter().flat_map(|row| row.notes.iter().cloned()));
    let variables = row.map(|row| row.variables.clone()).unwrap_or_default();
    JobEnvironment { id: id.into(), recipe, image: None, notes, variables }
}

/// Returns the name, with which a canonical requirement begins.
pub(crate) fn package(line: &str) -> &str {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(line.len());
    &line[..end]
}

impl Ingredients {
    fn read(self, name: &str, names: &Names, indexes: &[String]) -> Result<Known, BadTable> {
        let owned = || brief(name);
        let is_bad = |(name, value): &(&String, &String)| variables::check(name, value).is_err();
        let over = self.variables.iter().nth(VARIABLES_MAX);
        if let Some((variable, _)) = self.variables.iter().find(is_bad).or(over) {
            return Err(BadTable::Variable { name: owned(), variable: brief(variable) });
        }
        let (mut recipe, notes) = match (self.pip, self.conda) {
            (Some(lines), None) => {
                let read = pip::parse_lines(lines.iter().map(String::as_str), indexes);
                (read.map_err(|source| BadTable::Pip { name: owned(), source })?, Vec::new())
            }
            (None, Some(text)) => {
                let read = conda::parse(&text, names, indexes);
                let read = read.map_err(|source| BadTable::Conda { name: owned(), source })?;
                let left_out = (!read.variables.is_empty()).then(|| conda::NO_VARIABLES.into());
                (read.recipe, read.notes.into_iter().chain(left_out).collect())
            }
            (None, None) => return Err(BadTable::Empty { name: owned() }),
            (Some(_), Some(_)) => return Err(BadTable::Both { name: owned() }),
        };
        if let Some(python) = self.python {
            let wish = PythonRequest::parse(&python);
            let wish = wish.map_err(|source| BadTable::Python { name: owned(), source })?;
            recipe.python = Some(wish.text().into());
        }
        Ok(Known { recipe, notes, variables: self.variables })
    }
}

/// Adds to each recipe the packages of the recipe that it comes with.
fn joined(
    mut all: BTreeMap<String, Ingredients>,
) -> Result<BTreeMap<String, Ingredients>, BadTable> {
    let shared: BTreeMap<String, Vec<String>> = all
        .iter()
        .filter(|(_, one)| one.with.is_none())
        .filter_map(|(name, one)| Some((name.clone(), one.pip.clone()?)))
        .collect();
    for (name, one) in &mut all {
        let Some(with) = &one.with else { continue };
        let bad = || BadTable::With { name: brief(name), with: brief(with) };
        let (lines, more) = one.pip.as_mut().zip(shared.get(with)).ok_or_else(bad)?;
        lines.extend(more.iter().cloned());
    }
    Ok(all)
}

impl Row {
    fn substitute(self, recipes: &BTreeMap<String, Known>) -> Result<Substitute, BadTable> {
        let pattern = self.name;
        let Some(name) = self.recipe else {
            let (notes, variables) = Default::default();
            return Ok(Substitute { pattern, recipe: None, notes, variables });
        };
        let Some(known) = recipes.get(&name) else {
            return Err(BadTable::NoRecipe { row: brief(&pattern), recipe: brief(&name) });
        };
        let Known { recipe, notes, variables } = known.clone();
        Ok(Substitute { pattern, recipe: Some((name, recipe)), notes, variables })
    }
}

/// Returns the first line of the error, with its position.
fn words(text: &str, why: &toml::de::Error) -> String {
    let line = why
        .span()
        .and_then(|span| text.get(..span.start))
        .map(|before| format!("line {}: ", before.matches('\n').count() + 1));
    let what = why.message().lines().next().unwrap_or_default();
    format!("{}{}", line.unwrap_or_default(), brief(what))
}

/// Returns the name in a job's reference to a curated environment: `azureml:NAME@latest`, `azureml:NAME:3`,
/// `azureml://registries/azureml/environments/NAME/versions/3`, the id of one in a workspace, or just `NAME`.
pub fn curated_name(id: &str) -> &str {
    if id.contains('/') {
        let mut parts = id.split('/').filter(|part| !part.is_empty());
        let found = parts.find(|part| part.eq_ignore_ascii_case("environments"));
        if let Some(name) = found.and_then(|_| parts.next()) {
            return name;
        }
    }
    let prefix = id.get(..8).filter(|prefix| prefix.eq_ignore_ascii_case("azureml:"));
    let name = prefix.map_or(id, |prefix| &id[prefix.len()..]);
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// Returns true if a text matches a pattern with `*`. The time grows at most with the product of both lengths, however
/// many stars there are.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    let small =
        |text: &str| text.bytes().take(NAME_BYTES_MAX).map(|b| b.to_ascii_lowercase()).collect();
    let (pattern, text): (Vec<u8>, Vec<u8>) = (small(pattern), small(text));
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((at, taken)) = star {
            // The star matches one character more.
            star = Some((at, taken + 1));
            (p, t) = (at + 1, taken + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests;
