//! `make soak`: new seeds for hours, to find what the fixed ones do not. It writes down how far it has come, and goes on
//! from there when it is started again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use muster_sim::{Scenario, run_many};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "usage: muster-soak RECORD FIRST-SEED SEEDS DAYS";
/// How many seeds are simulated between two records: a minute or so on two cores.
const CHUNK: u64 = 64;

/// What is to be simulated, and how much of it is done. The record has these numbers, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Soak {
    first: u64,
    seeds: u64,
    days: u32,
    done: u64,
}

impl Soak {
    fn parse(text: &str) -> Option<Soak> {
        let mut words = text.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (first, seeds, days) = (number()?, number()?, u32::try_from(number()?).ok()?);
        let done = number()?;
        let is_sound = days > 0 && done <= seeds && first.checked_add(seeds).is_some();
        (words.next().is_none() && is_sound).then_some(Soak { first, seeds, days, done })
    }

    /// What was begun and not finished, or else what is asked for.
    fn begin(record: &Path, asked: Soak) -> Result<Soak, String> {
        let Ok(text) = std::fs::read_to_string(record) else { return Ok(asked) };
        let record = record.display();
        let soak = Soak::parse(&text).ok_or_else(|| {
            format!("{record} does not say how far the last run came; delete it to begin anew")
        })?;
        println!(
            "going on after {} of {} seeds; delete {record} to begin anew",
            soak.done, soak.seeds
        );
        Ok(soak)
    }

    fn save(&self, record: &Path) -> std::io::Result<()> {
        let Soak { first, seeds, days, done } = self;
        let beside = record.with_extension("new");
        std::fs::write(&beside, format!("{first} {seeds} {days} {done}\n"))?;
        std::fs::rename(&beside, record)
    }

    /// The next seeds; returns how many of them broke a promise.
    fn advance(&mut self) -> usize {
        let chunk = CHUNK.min(self.seeds - self.done);
        let from = self.first + self.done;
        let scenarios: Vec<Scenario> =
            (from..from + chunk).map(|seed| Scenario::new(seed, self.days)).collect();
        let results = run_many(&scenarios, |result| {
            if let Err(failure) = result {
                println!("{failure}");
            }
        });
        self.done += chunk;
        println!("{} of {} seeds, the last of them {}", self.done, self.seeds, from + chunk - 1);
        results.iter().filter(|result| result.is_err()).count()
    }
}

fn soak() -> Result<usize, String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [record, first, seeds, days] = &arguments[..] else { return Err(USAGE.to_owned()) };
    let asked = Soak::parse(&format!("{first} {seeds} {days} 0")).ok_or(USAGE)?;
    let record = PathBuf::from(record);
    let mut soak = Soak::begin(&record, asked)?;
    println!("{} seeds from {}, {} days each", soak.seeds, soak.first, soak.days);
    let mut broken = 0;
    while soak.done < soak.seeds {
        broken += soak.advance();
        soak.save(&record)
            .map_err(|error| format!("cannot write {}: {error}", record.display()))?;
    }
    std::fs::remove_file(&record).map_err(|error| error.to_string())?;
    Ok(broken)
}

fn main() -> ExitCode {
    match soak() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(broken) => {
            eprintln!(
                "{broken} seeds broke a promise. Add each to FOUND in crates/sim/tests/sim/seeds.rs, and fix it."
            );
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
