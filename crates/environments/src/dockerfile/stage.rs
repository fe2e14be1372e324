//! Processes the stages of a Dockerfile line by line: the values of variables, the locations of files, and what is
//! installed.

use std::cell::Cell;
use std::collections::BTreeMap;

use muster_core::model::Recipe;

use super::copies::{COPIES_MAX, Copy, absolute};
use super::lines::Instruction;
use super::words::{Scope, Word};
use super::{BadDockerfile, Refusal, STAGES_MAX, With};
use crate::notes::Notes;
use crate::variables::{self, Unfit, VARIABLES_MAX};
use crate::{brief, shown};

/// The lines from one FROM to the next.
struct StageText<'a> {
    image: String,
    name: Option<String>,
    instructions: &'a [Instruction],
}

/// Returns the variables from before the first FROM, and the stages.
fn stages<'a>(
    all: &'a [Instruction],
    spent: &'a Cell<usize>,
) -> Result<(Scope<'a>, Vec<StageText<'a>>), BadDockerfile> {
    let mut globals = Scope { values: BTreeMap::new(), spent };
    let is_from = |one: &Instruction| one.name == "FROM";
    let first = all.iter().position(is_from).ok_or(BadDockerfile::NoFrom)?;
    for one in &all[..first] {
        match one.name.as_str() {
            "ARG" => argument(one, &mut globals, None).map_err(|why| one.refused(why))?,
            _ => return Err(BadDockerfile::NoFrom),
        }
    }
    let mut stages = Vec::new();
    for part in all[first..].chunk_by(|_, next| !is_from(next)) {
        let (from, instructions) = part.split_first().ok_or(BadDockerfile::NoFrom)?;
        let (image, name) = from_words(from, &globals).map_err(|why| from.refused(why))?;
        if stages.len() == STAGES_MAX {
            return Err(BadDockerfile::TooManyStages);
        }
        stages.push(StageText { image, name, instructions });
    }
    Ok((globals, stages))
}

/// Returns the image, and the name of the stage.
fn from_words(
    from: &Instruction,
    globals: &Scope<'_>,
) -> Result<(String, Option<String>), Refusal> {
    let words: Vec<String> =
        globals.words(&from.rest)?.into_iter().map(known).collect::<Result<_, _>>()?;
    let words: Vec<&str> =
        words.iter().map(String::as_str).filter(|word| !word.starts_with("--")).collect();
    match words[..] {
        [image] if !image.is_empty() => Ok((image.to_owned(), None)),
        [image, word, name] if word.eq_ignore_ascii_case("as") => {
            Ok((image.to_owned(), Some(name.to_ascii_lowercase())))
        }
        _ => Err(Refusal::From),
    }
}

/// Returns true if the source can be looked up by its name.
fn is_plain(source: &str) -> bool {
    !source.is_empty() && !source.contains(['*', '?', '['])
}

/// Returns the text of a word whose value is completely known.
pub fn known(word: Word) -> Result<String, Refusal> {
    match word.unknown {
        None => Ok(word.text),
        Some(name) => Err(Refusal::Unknown { name }),
    }
}

/// Handles `NAME=VALUE`, or `NAME` for a variable from before the first FROM.
fn argument(
    one: &Instruction,
    scope: &mut Scope<'_>,
    globals: Option<&Scope<'_>>,
) -> Result<(), Refusal> {
    for word in scope.words(&one.rest)? {
        let (name, value) = match word.text.split_once('=') {
            Some((name, value)) => {
                (name, Some(value.to_owned()).filter(|_| word.unknown.is_none()))
            }
            None => {
                let name = word.text.as_str();
                (name, globals.and_then(|globals| globals.values.get(name).cloned()))
            }
        };
        if let Some(value) = value {
            scope.values.insert(name.to_owned(), value);
        }
        if scope.values.len() > VARIABLES_MAX {
            return Err(Refusal::Variables);
        }
    }
    Ok(())
}

/// The state of a stage at some line.
#[derive(Clone)]
pub struct Stage<'a> {
    /// The image of the first stage that it is based on.
    pub image: String,
    pub scope: Scope<'a>,
    pub variables: BTreeMap<String, String>,
    pub folder: String,
    pub copies: Vec<Copy>,
}

/// Everything that is known so far.
pub struct Build<'a> {
    pub with: With<'a>,
    globals: Scope<'a>,
    stages: Vec<StageText<'a>>,
    done: BTreeMap<usize, Stage<'a>>,
    pub notes: Notes,
    pub installs: Vec<Recipe>,
    pub python: Option<Box<str>>,
    pub commands: usize,
    pub files: usize,
    /// The number of sources of COPY and ADD.
    pub copied: usize,
    spent: &'a Cell<usize>,
}

impl<'a> Build<'a> {
    pub fn new(
        instructions: &'a [Instruction],
        with: With<'a>,
        spent: &'a Cell<usize>,
    ) -> Result<Build<'a>, BadDockerfile> {
        let (globals, stages) = stages(instructions, spent)?;
        Ok(Build {
            with,
            globals,
            stages,
            done: BTreeMap::new(),
            notes: Notes::default(),
            installs: Vec::new(),
            python: None,
            commands: 0,
            files: 0,
            copied: 0,
            spent,
        })
    }

    /// Processes the stage that an image would be built from.
    pub fn last_stage(&mut self) -> Result<Stage<'a>, BadDockerfile> {
        let last = self.stages.len().checked_sub(1).ok_or(BadDockerfile::NoFrom)?;
        let stage = self.stage(last)?;
        for copy in stage.copies.iter().filter(|copy| !copy.is_used) {
            let why = "jobs do not see files of the context; put them into the job's code";
            self.not_done(&copy.shown, why);
        }
        Ok(stage)
    }

    /// Adds a note that something makes no difference here, and why.
    pub fn not_done(&mut self, what: &str, why: &str) {
        self.notes.add(&format!("skipped: {}: {why}", shown(what)));
    }

    fn stage_called(&self, name: &str, before: usize) -> Option<usize> {
        let is_it = |stage: &StageText<'_>| {
            stage.name.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(name))
        };
        let by_name = self.stages[..before].iter().rposition(is_it);
        by_name.or_else(|| name.parse().ok().filter(|index| *index < before))
    }

    /// Processes a stage, after those that it is based on.
    fn stage(&mut self, index: usize) -> Result<Stage<'a>, BadDockerfile> {
        if let Some(done) = self.done.get(&index) {
            return Ok(done.clone());
        }
        let (image, instructions) =
            (self.stages[index].image.clone(), self.stages[index].instructions);
        let mut stage = match self.stage_called(&image, index) {
            Some(earlier) => self.stage(earlier)?,
            None => Stage {
                image,
                scope: Scope { values: BTreeMap::new(), spent: self.spent },
                variables: BTreeMap::new(),
                folder: "/".to_owned(),
                copies: Vec::new(),
            },
        };
        // Arguments end with their stage.
        stage.scope.values = stage.variables.clone();
        for one in instructions {
            self.instruction(index, &mut stage, one)?;
        }
        self.done.insert(index, stage.clone());
        Ok(stage)
    }

    fn instruction(
        &mut self,
        index: usize,
        stage: &mut Stage<'a>,
        one: &Instruction,
    ) -> Result<(), BadDockerfile> {
        let refused = |why| one.refused(why);
        let words =
            |stage: &Stage<'_>| stage.scope.words(&one.rest).map_err(|why| refused(why.into()));
        match one.name.as_str() {
            "ARG" => argument(one, &mut stage.scope, Some(&self.globals)).map_err(refused)?,
            "ENV" => self.environment(stage, words(stage)?, one).map_err(refused)?,
            "WORKDIR" => {
                let folder = words(stage)?.into_iter().map(known).collect::<Result<Vec<_>, _>>();
                stage.folder = absolute(&stage.folder, &folder.map_err(refused)?.join(" "));
            }
            "COPY" | "ADD" => self.copy(index, stage, one)?,
            "RUN" => self.run(stage, one).map_err(refused)?,
            "CMD" | "ENTRYPOINT" => self.not_done(&one.shown(), "a job has its own command"),
            "USER" => self.not_done(&one.shown(), "jobs run as the user of their node"),
            "SHELL" => self.not_done(&one.shown(), "commands are translated, not run"),
            "LABEL" | "MAINTAINER" | "EXPOSE" | "VOLUME" | "STOPSIGNAL" | "HEALTHCHECK"
            | "ONBUILD" => {
                self.not_done(&one.shown(), "no image is built");
            }
            other => return Err(refused(Refusal::Instruction(brief(other)))),
        }
        Ok(())
    }

    /// Handles `ENV A=b C=d`, and the old form `ENV A b`.
    fn environment(
        &mut self,
        stage: &mut Stage<'a>,
        words: Vec<Word>,
        one: &Instruction,
    ) -> Result<(), Refusal> {
        let is_old = words.first().is_some_and(|word| !word.text.contains('='));
        let pairs: Vec<Word> = match (is_old, words.split_first()) {
            (true, Some((name, values))) => {
                let texts: Vec<&str> = values.iter().map(|word| word.text.as_str()).collect();
                let unknown = values.iter().find_map(|word| word.unknown.clone());
                vec![Word { text: format!("{}={}", name.text, texts.join(" ")), unknown }]
            }
            _ => words,
        };
        for Word { text, unknown } in pairs {
            let (name, value) = text.split_once('=').unwrap_or((&text, ""));
            match (variables::check(name, value), unknown) {
                (Err(Unfit::Malformed), _) => return Err(Refusal::Instruction(brief(&text))),
                (Err(Unfit::LeftOut(why)), _) => self.not_done(&one.shown(), why),
                (Ok(()), Some(unknown)) => {
                    let why = format!("the value of {unknown} in the image is not known");
                    self.not_done(&one.shown(), &why);
                }
                (Ok(()), None) => {
                    stage.scope.values.insert(name.to_owned(), value.to_owned());
                    stage.variables.insert(name.to_owned(), value.to_owned());
                }
            }
            if stage.scope.values.len() > VARIABLES_MAX {
                return Err(Refusal::Variables);
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        index: usize,
        stage: &mut Stage<'a>,
        one: &Instruction,
    ) -> Result<(), BadDockerfile> {
        let refused = |why| one.refused(why);
        let words = self.copy_words(stage, &one.rest).map_err(refused)?;
        let (flags, words): (Vec<String>, Vec<String>) =
            words.into_iter().partition(|word| word.starts_with("--"));
        if let Some(from) = flags.iter().find_map(|flag| flag.strip_prefix("--from=")) {
            match self.stage_called(from, index) {
                // What that stage installed may be what is copied.
                Some(earlier) => {
                    self.stage(earlier)?;
                    self.not_done(&one.shown(), "only the Python packages of that stage are used");
                }
                None => self.not_done(&one.shown(), "files of images are not available"),
            }
            return Ok(());
        }
        let copy = Copy::new(words, &stage.folder, one.shown()).map_err(refused)?;
        self.copied += copy.sources().len();
        if self.copied > COPIES_MAX {
            return Err(refused(Refusal::Copies));
        }
        for source in copy.sources().iter().filter(|source| is_plain(source)) {
            match self.with.files.has(source) {
                Ok(true) => {}
                Ok(false) => return Err(refused(Refusal::NotThere { path: brief(source) })),
                Err(words) => return Err(refused(Refusal::Context(words))),
            }
        }
        stage.copies.push(copy);
        Ok(())
    }

    fn copy_words(&self, stage: &Stage<'_>, rest: &str) -> Result<Vec<String>, Refusal> {
        let (flags, list) = rest.find('[').map_or((rest, ""), |at| rest.split_at(at));
        let is_flag = |word: &str| word.starts_with("--");
        if let Ok(list) = serde_json::from_str::<Vec<String>>(list)
            && flags.split_whitespace().all(is_flag)
        {
            return Ok(flags.split_whitespace().map(str::to_owned).chain(list).collect());
        }
        stage.scope.words(rest)?.into_iter().map(known).collect()
    }
}
