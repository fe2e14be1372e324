//! Maps conda packages to PyPI packages.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{brief, pip};

const SHIPPED: &str = include_str!("../conda.toml");
/// From 0 to 1. Below this, a guess is more often wrong than right.
const LIKENESS_MIN: f64 = 0.88;

/// The format of the file. An operator's own file may add packages and replace shipped entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamesFile {
    #[serde(default)]
    same: Vec<String>,
    #[serde(default)]
    renamed: BTreeMap<String, String>,
    #[serde(default)]
    dropped: BTreeMap<String, Box<str>>,
    #[serde(default)]
    refused: BTreeMap<String, Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(BTreeMap<String, Meaning>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    As(String),
    Dropped(Box<str>),
    Refused(Box<str>),
}

/// What is known about a conda package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// PyPI has it under this name.
    As(&'a str),
    Dropped(&'a str),
    Refused(&'a str),
    No {
        guess: Option<&'a str>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not the name of a package on PyPI", brief(name))]
pub struct BadNames {
    pub name: String,
}

impl Default for Names {
    fn default() -> Names {
        let file: NamesFile = toml::from_str(SHIPPED).expect("a test parses it");
        Names(BTreeMap::new()).with(file).expect("a test parses it")
    }
}

impl Names {
    /// Adds the names of a file, which take precedence over the existing ones.
    pub fn with(mut self, file: NamesFile) -> Result<Names, BadNames> {
        let same = file.same.into_iter().map(|name| (name.clone(), name));
        for (conda, name) in same.chain(file.renamed) {
            if !pip::is_name(&name) {
                return Err(BadNames { name });
            }
            self.0.insert(conda.to_lowercase(), Meaning::As(name));
        }
        let dropped = file.dropped.into_iter().map(|(name, why)| (name, Meaning::Dropped(why)));
        let refused = file.refused.into_iter().map(|(name, why)| (name, Meaning::Refused(why)));
        self.0.extend(dropped.chain(refused).map(|(name, what)| (name.to_lowercase(), what)));
        Ok(self)
    }

    pub fn of(&self, name: &str) -> Known<'_> {
        match self.0.get(name) {
            Some(Meaning::As(name)) => Known::As(name),
            Some(Meaning::Dropped(why)) => Known::Dropped(why),
            Some(Meaning::Refused(why)) => Known::Refused(why),
            None => Known::No { guess: self.guess(name) },
        }
    }

    fn guess(&self, name: &str) -> Option<&str> {
        let scored = self.0.keys().map(|known| (strsim::jaro_winkler(name, known), known));
        let best = scored.max_by(|(one, _), (other, _)| one.total_cmp(other));
        best.filter(|(likeness, _)| *likeness >= LIKENESS_MIN).map(|(_, known)| known.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_well_formed_and_has_each_name_once() {
        let file: NamesFile = toml::from_str(SHIPPED).unwrap();
        let total = file.same.len() + file.renamed.len() + file.dropped.len() + file.refused.len();
        let names = Names(BTreeMap::new()).with(file).unwrap();
        assert_eq!(names.0.len(), total, "a name is listed twice");
        assert!(total > 700, "{total}");
    }

    /// The packages in public conda files for Azure ML.
    #[test]
    fn usual_packages_are_known() {
        let names = Names::default();
        for (conda, name) in [
            ("sentence-transformers", "sentence-transformers"),
            ("torchaudio", "torchaudio"),
            ("azureml-dataset-runtime", "azureml-dataset-runtime"),
            ("python-flatbuffers", "flatbuffers"),
            ("brotli-python", "brotli"),
            ("geopandas", "geopandas"),
            ("shapely", "shapely"),
            ("faiss", "faiss-cpu"),
            ("python-lmdb", "lmdb"),
            ("pyg", "torch-geometric"),
            ("huggingface-hub", "huggingface-hub"),
            ("h3-py", "h3"),
            ("soxr-python", "soxr"),
            ("trino-python-client", "trino"),
        ] {
            assert_eq!(names.of(conda), Known::As(name), "{conda}");
        }
        assert!(matches!(names.of("cuda-version"), Known::Dropped(_)));
        assert!(matches!(names.of("anaconda"), Known::Refused(_)));
    }

    #[test]
    fn a_library_or_a_program_is_not_taken_for_the_package_of_its_name() {
        let names = Names::default();
        for conda in ["h3", "igraph", "kubernetes", "neo4j", "soxr", "trino"] {
            assert!(matches!(names.of(conda), Known::No { .. }), "{conda}");
        }
    }

    #[test]
    fn what_has_no_wheel_is_refused_with_what_to_do_instead() {
        let names = Names::default();
        for conda in ["convertdate", "flair", "func_timeout", "gym", "pymeeus", "sqlitedict"] {
            let Known::Refused(why) = names.of(conda) else { panic!("{conda}: it is not refused") };
            assert!(why.contains("has no wheel; "), "{conda}: {why}");
        }
    }

    #[test]
    fn an_operators_file_comes_first() {
        let file = |text: &str| toml::from_str::<NamesFile>(text).unwrap();
        let names = Names::default();
        assert_eq!(names.of("numpy"), Known::As("numpy"));
        assert_eq!(names.of("numpyy"), Known::No { guess: Some("numpy") });
        assert_eq!(names.of("qqqq"), Known::No { guess: None });
        let own =
            "same = ['House-Tools']\n[renamed]\nnumpy = 'house-numpy'\n[refused]\npandas = 'no'";
        let names = names.with(file(own)).unwrap();
        assert_eq!(names.of("house-tools"), Known::As("House-Tools"));
        assert_eq!(names.of("numpy"), Known::As("house-numpy"));
        assert_eq!(names.of("pandas"), Known::Refused("no"));
        let bad = Names::default().with(file("same = ['x @ https://y']"));
        assert!(bad.is_err());
    }
}
