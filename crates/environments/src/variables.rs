//! Variables that an environment sets for its jobs.

/// The most variables that an environment may set.
pub const VARIABLES_MAX: usize = 200;

/// The variables that lead to the environment that is built here.
const OWN: [&str; 4] = ["PATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"];

/// Why a variable is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is not a valid variable.
    Malformed,
    /// It can be left out, for this reason.
    LeftOut(&'static str),
}

pub fn check(name: &str, value: &str) -> Result<(), Unfit> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name || value.contains('\0') {
        return Err(Unfit::Malformed);
    }
    if OWN.contains(&name) {
        return Err(Unfit::LeftOut("jobs use the environment that is built here"));
    }
    // An expression in the value would be replaced by an input of the job.
    match value.contains("${{") {
        true => Err(Unfit::LeftOut("${{ refers to inputs of jobs")),
        false => Ok(()),
    }
}
