//! Variables that an environment gives its jobs.

/// The most that one may give.
pub const VARIABLES_MAX: usize = 200;

/// What leads to the environment that is made here.
const OWN: [&str; 4] = ["PATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"];

/// Why a variable is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// It is none.
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
        return Err(Unfit::LeftOut("jobs find the environment that is made here"));
    }
    // A job's own would be filled in there.
    match value.contains("${{") {
        true => Err(Unfit::LeftOut("${{ stands for inputs of jobs")),
        false => Ok(()),
    }
}
