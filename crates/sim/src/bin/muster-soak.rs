//! `make soak`: runs new seeds for hours, to find bugs that the fixed seeds miss. It records its progress and resumes
//! there when it is started again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use muster_sim::{Scenario, run_many};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The simulator draws nothing at random, so the caller passes a seed that it has drawn.
const USAGE: &str = "usage: muster-soak RECORD DRAWN-SEED FIRST-SEED SEEDS DAYS, of which the last three may be empty";
const SEEDS: u64 = 10_000;
const DAYS: u32 = 30;
/// How many seeds are simulated between two records: a minute or so on two cores.
const CHUNK: u64 = 64;

/// What is to be simulated, how much of it is done, and which seeds have failed. The record contains these numbers in
/// this order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Soak {
    first: u64,
    seeds: u64,
    days: u32,
    done: u64,
    failed: Vec<u64>,
}

/// What the caller asks for. What is left out is drawn or has a default.
#[derive(Debug, Clone, Copy)]
struct Asked {
    first: Option<u64>,
    seeds: Option<u64>,
    days: Option<u32>,
}

impl Asked {
    /// Uses the names that `make soak` has for the arguments.
    fn parse([first, seeds, days]: [&str; 3]) -> Result<Asked, String> {
        let number = |name: &str, text: &str, least: u64, most: u64| match text {
            "" => Ok(None),
            text => match text.parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
                _ => Err(format!("{name} is '{text}'; give a whole number from {least} to {most}")),
            },
        };
        let first = number("FROM", first, 0, u64::MAX / 2)?;
        let seeds = number("SEEDS", seeds, 1, u64::MAX / 4)?;
        let days = number("DAYS", days, 1, 365)?.and_then(|days| u32::try_from(days).ok());
        Ok(Asked { first, seeds, days })
    }

    fn begin(self, drawn: u64) -> Soak {
        Soak {
            first: self.first.unwrap_or(drawn),
            seeds: self.seeds.unwrap_or(SEEDS),
            days: self.days.unwrap_or(DAYS),
            done: 0,
            failed: Vec::new(),
        }
    }

    fn differs_from(self, soak: &Soak) -> bool {
        self.first.is_some_and(|first| first != soak.first)
            || self.seeds.is_some_and(|seeds| seeds != soak.seeds)
            || self.days.is_some_and(|days| days != soak.days)
    }
}

impl Soak {
    fn is_sound(&self) -> bool {
        let is_some = self.seeds > 0 && self.days > 0;
        is_some && self.done <= self.seeds && self.first.checked_add(self.seeds).is_some()
    }

    fn parse(text: &str) -> Option<Soak> {
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        let [first, seeds, days, done, ref failed @ ..] = numbers.ok()?[..] else { return None };
        let days = u32::try_from(days).ok()?;
        let soak = Soak { first, seeds, days, done, failed: failed.to_vec() };
        soak.is_sound().then_some(soak)
    }

    /// Resumes an unfinished soak, or begins the requested one.
    fn resume(record: &Path, drawn: u64, asked: Asked) -> Result<Soak, String> {
        let Ok(text) = std::fs::read_to_string(record) else {
            return Ok(asked.begin(drawn));
        };
        let path = record.display();
        let soak = Soak::parse(&text)
            .ok_or_else(|| format!("{path} is not a valid soak record; delete it to start over"))?;
        if asked.differs_from(&soak) {
            return Err(format!(
                "a soak of {} seeds from {}, {} days each, is unfinished; run `make soak` to continue it, or delete \
                 {path} to start over",
                soak.seeds, soak.first, soak.days
            ));
        }
        println!(
            "resuming after {} of {} seeds; delete {path} to start over",
            soak.done, soak.seeds
        );
        Ok(soak)
    }

    fn save(&self, record: &Path) -> std::io::Result<()> {
        let Soak { first, seeds, days, done, failed } = self;
        let failed: String = failed.iter().map(|seed| format!(" {seed}")).collect();
        let beside = record.with_extension("new");
        std::fs::write(&beside, format!("{first} {seeds} {days} {done}{failed}\n"))?;
        std::fs::rename(&beside, record)
    }

    /// Simulates the next seeds.
    fn advance(&mut self) {
        let chunk = CHUNK.min(self.seeds - self.done);
        let from = self.first + self.done;
        let scenarios: Vec<Scenario> =
            (from..from + chunk).map(|seed| Scenario::new(seed, self.days)).collect();
        for failure in run_many(&scenarios).into_iter().filter_map(Result::err) {
            println!("{failure}");
            self.failed.push(failure.scenario.seed);
        }
        self.done += chunk;
        println!("{} of {} seeds, the last of them {}", self.done, self.seeds, from + chunk - 1);
    }
}

fn run() -> Result<Soak, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [record, drawn, first, seeds, days] = &arguments[..] else { return Err(USAGE.to_owned()) };
    let drawn = drawn.parse().map_err(|_| USAGE)?;
    let asked = Asked::parse([first, seeds, days])?;
    let record = PathBuf::from(record);
    let mut soak = Soak::resume(&record, drawn, asked)?;
    println!("{} seeds from {}, {} days each", soak.seeds, soak.first, soak.days);
    while soak.done < soak.seeds {
        soak.advance();
        soak.save(&record)
            .map_err(|error| format!("cannot write {}: {error}", record.display()))?;
    }
    std::fs::remove_file(&record)
        .map_err(|error| format!("cannot delete {}: {error}", record.display()))?;
    Ok(soak)
}

fn main() -> ExitCode {
    match run() {
        Ok(soak) if soak.failed.is_empty() => ExitCode::SUCCESS,
        Ok(soak) => {
            eprintln!(
                "these seeds broke a promise within {} days: {:?}; add them to FOUND in \
                 crates/sim/tests/sim/seeds.rs, and fix what they show",
                soak.days, soak.failed
            );
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}
