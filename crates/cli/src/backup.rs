//! `muster backup` and `muster restore`: a whole installation in a folder, and back. Both work on the state directory
//! itself, as its owner, and need no server.

use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use indicatif::{ProgressBar, ProgressStyle};
use muster_server::backup::{
    self, BackupError, Checked, Damaged, Link, Manifest, OnDamage, Step, Verify,
};
use muster_server::state_dir::StateDir;

use crate::env::shell_quoted;
use crate::failure::{CliResult, Failure, printable};
use crate::output::{self, Print};
use crate::server_location::StateDirArg;

/// Of files that are left out; manifest.json has them all.
const LEFT_OUT_LINES_MAX: usize = 20;
const TICK: Duration = Duration::from_millis(100);

/// Make a backup of the whole installation, also while its server runs
///
/// Both databases are copied as of one moment; blobs, logs, keys, certificates and the configuration file in the state
/// directory follow. Blobs are hard links where DIR is on the same file system, so it takes little space: copy DIR to
/// another machine. Nodes and Python environments are left out; they are made again. Blobs and logs that are damaged are
/// left out and named.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 it has everything, 4 it was made without files that are damaged or lost, others: it was not \
                  made.\n\nMutating, exposes: DIR holds all keys of the installation, and only its owner can read it."
)]
pub struct Args {
    /// The folder to make; it may be there if it is empty
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Read everything again when it is made, also blobs that are hard links
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// Make a state directory from a backup
///
/// Everything is checked before it is put in place: the digest of every file, both databases, and that every file that
/// they name is there. Stop the server that it is to replace first.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 everything is there, 4 it was restored (or can be) without files that are damaged or lost, \
                  others: it was not restored.\n\nMutating, exposes: NEW holds the keys of the backup, and who had access \
                  then has it."
)]
pub struct RestoreArgs {
    /// What `muster backup` made
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// The state directory to make; it may be there if it is empty
    #[arg(long, value_name = "NEW", required_unless_present = "check")]
    state_dir: Option<PathBuf>,
    /// Only check the backup
    #[arg(long, conflicts_with = "state_dir")]
    check: bool,
    /// Leave out blobs, logs and post-mortems that are damaged, instead of refusing the backup
    #[arg(long)]
    skip_damaged: bool,
    #[command(flatten)]
    print: Print,
}

pub fn run(args: &Args) -> CliResult {
    let state_dir = StateDir::new(&args.place.path()?);
    let mut bar = Bar::new();
    let version = env!("CARGO_PKG_VERSION");
    let verify = if args.verify { Verify::Everything } else { Verify::Usual };
    let made = backup::make(&state_dir, &args.to, version, verify, &mut |step| bar.tell(step));
    let manifest = made.map_err(|why| told(&why))?;
    drop(bar);
    output::say(&format!(
        "the backup is on disk: {} files, {} bytes, up to change {}",
        manifest.files, manifest.bytes, manifest.revision
    ));
    for Link { path, to } in &manifest.links {
        output::say(&format!(
            "note: {} is a symbolic link to {}; the backup has what it leads to, and a restore makes no link",
            printable(path),
            printable(to)
        ));
    }
    tell_elsewhere(&manifest);
    tell_left_out(&manifest, &[]);
    show(&args.print, &manifest)?;
    check_complete("the backup", &manifest, &[])
}

pub fn restore(args: &RestoreArgs) -> CliResult {
    let mut bar = Bar::new();
    let mut tell = |step| bar.tell(step);
    let on_damage = if args.skip_damaged { OnDamage::Skip } else { OnDamage::Refuse };
    let Some(to) = &args.state_dir else {
        let checked = backup::check(&args.from, on_damage, &mut tell);
        let Checked { manifest, skipped } = checked.map_err(|why| told(&why))?;
        drop(bar);
        tell_left_out(&manifest, &skipped);
        show(&args.print, &manifest)?;
        check_complete("the backup", &manifest, &skipped)?;
        output::say("the backup is whole");
        return Ok(());
    };
    let restored = backup::restore(&args.from, to, SystemTime::now(), on_damage, &mut tell);
    let Checked { manifest, skipped } = restored.map_err(|why| told(&why))?;
    drop(bar);
    let root = StateDir::new(to).root().to_string_lossy().into_owned();
    output::say(&format!("restored what was there at {}", printable(&manifest.made_at)));
    output::say(&format!(
        "next: see that the server it replaces is stopped, then start this one: {} --state-dir {}",
        StateDir::new(to).start_command(),
        shell_quoted(&root)
    ));
    output::say(
        "note: users and keys that were removed since the backup are back, and jobs that ran then start again",
    );
    tell_elsewhere(&manifest);
    tell_left_out(&manifest, &skipped);
    show(&args.print, &manifest)?;
    check_complete("the state directory", &manifest, &skipped)
}

fn tell_elsewhere(manifest: &Manifest) {
    if let Some(address) = &manifest.blob_store {
        output::say(&format!(
            "note: the bytes of blobs are in {}, and not in the backup",
            printable(address)
        ));
    }
}

/// Says which files are not there, up to a number of lines.
fn tell_left_out(manifest: &Manifest, skipped: &[Damaged]) {
    let damaged = manifest.damaged.iter().chain(skipped).map(|file| {
        format!(
            "warning: {} is left out: {}{}",
            printable(&file.path),
            printable(&file.what),
            whose(file)
        )
    });
    let lost = manifest.lost.iter().map(|path| {
        format!("warning: {} was lost before the backup, and rows name it", printable(path))
    });
    let count = manifest.damaged.len() + skipped.len() + manifest.lost.len();
    damaged.chain(lost).take(LEFT_OUT_LINES_MAX).for_each(|line| output::say(&line));
    if count > LEFT_OUT_LINES_MAX {
        output::say(&format!("warning: and {} files more", count - LEFT_OUT_LINES_MAX));
    }
}

/// In brackets, if it is known.
fn whose(file: &Damaged) -> String {
    let workspace = file.workspace.iter().map(|name| format!("workspace {name}"));
    let blobs = file.blobs.iter().map(|name| format!("blob {name}"));
    let jobs = file.jobs.iter().map(|name| format!("job {name}"));
    let owners: Vec<String> = workspace.chain(blobs).chain(jobs).collect();
    match owners.is_empty() {
        true => String::new(),
        false => format!(" ({})", printable(&owners.join(", "))),
    }
}

/// What was made is of use, and whoever made it by a timer should hear that something is missing.
fn check_complete(what: &str, manifest: &Manifest, skipped: &[Damaged]) -> CliResult {
    let (damaged, lost) = (manifest.damaged.len() + skipped.len(), manifest.lost.len());
    if damaged + lost == 0 {
        return Ok(());
    }
    Err(Failure::incomplete(format!(
        "{what} lacks {damaged} damaged and {lost} lost files; everything else is there"
    ))
    .hint(
        "put these files back into the state directory from a backup on another disk, or delete the blobs and jobs that they belong to",
    ))
}

fn show(print: &Print, manifest: &Manifest) -> CliResult {
    print.show(manifest, || {
        let [files, bytes, revision] =
            [manifest.files, manifest.bytes, manifest.revision].map(|it| it.to_string());
        let row = vec![printable(&manifest.made_at), files, bytes, revision];
        output::table(&["Made at", "Files", "Bytes", "Revision"], vec![row], "")
    })
}

fn told(why: &BackupError) -> Failure {
    let words = printable(&muster_core::ErrorChain(why).to_string());
    match why {
        BackupError::NothingThere { .. } | BackupError::NoBackup { .. } => {
            Failure::not_found(words)
        }
        BackupError::Inside { .. }
        | BackupError::NoParent { .. }
        | BackupError::Filled { .. }
        | BackupError::InUse { .. } => Failure::refused(words),
        _ => Failure::error(words),
    }
}

/// On a terminal, how far it is; else nothing.
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new() -> Bar {
        let bar = match stderr().is_terminal() {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        bar.enable_steady_tick(TICK);
        Bar { bar }
    }

    fn tell(&mut self, step: Step) {
        match step {
            Step::Databases { bytes } => {
                let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
                let style = ProgressStyle::with_template(style).expect("a template that is right");
                self.bar.set_style(style);
                self.bar.reset();
                self.bar.set_length(bytes);
                self.bar.set_message("copying");
            }
            Step::Files => {
                let style = "{spinner} {msg} {bytes} {bytes_per_sec}";
                let style = ProgressStyle::with_template(style).expect("a template that is right");
                self.bar.set_style(style);
                self.bar.reset();
                self.bar.set_message("files");
            }
            Step::Checking => self.bar.set_message("checking"),
            Step::Bytes(bytes) => self.bar.inc(bytes),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
