//! `muster backup` and `muster restore`: copy a whole installation to a folder, and back. Both work on the state
//! directory itself, as its owner, and need no server.

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

/// How many missing files are listed; manifest.json has them all.
const LEFT_OUT_LINES_MAX: usize = 20;
const TICK: Duration = Duration::from_millis(100);

/// Back up the whole installation, even while its server is running
///
/// Both databases are copied as of one moment, followed by blobs, logs, keys, certificates and the configuration file
/// in the state directory. If DIR is on the same file system, blobs are hard links, so the backup takes little space:
/// copy DIR to another machine. Nodes and Python environments are left out, because they can be created again. Damaged
/// blobs and logs are left out and listed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 the backup is complete, 4 it lacks files that are damaged or lost, others: no backup was \
                  created.\n\nMutating, exposes: DIR contains all keys of the installation; only its owner can read it."
)]
pub struct Args {
    /// Folder to create; it may exist if it is empty
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Read everything again afterwards, including blobs that are hard links
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    place: StateDirArg,
    #[command(flatten)]
    print: Print,
}

/// Create a state directory from a backup
///
/// Everything is checked before it is put in place: the digest of every file, both databases, and that every file that
/// they refer to exists. Stop the server that this replaces first.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 everything was restored, 4 it was restored (or can be) without files that are damaged or lost, \
                  others: nothing was restored.\n\nMutating, exposes: NEW contains the keys of the backup, so users of \
                  that time have access again."
)]
pub struct RestoreArgs {
    /// Folder that `muster backup` created
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// State directory to create; it may exist if it is empty
    #[arg(long, value_name = "NEW", required_unless_present = "check")]
    state_dir: Option<PathBuf>,
    /// Only check the backup
    #[arg(long, conflicts_with = "state_dir")]
    check: bool,
    /// Skip damaged blobs, logs and post-mortems, instead of refusing the backup
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
    let made = backup::make(&state_dir, &args.to, version, verify, &mut |step| bar.update(step));
    let manifest = made.map_err(|why| failure_of(&why))?;
    drop(bar);
    output::say(&format!(
        "the backup is on disk: {} files, {} bytes, up to change {}",
        manifest.files, manifest.bytes, manifest.revision
    ));
    for Link { path, to } in &manifest.links {
        output::say(&format!(
            "note: {} is a symbolic link to {}; the backup contains its target, and a restore does not create the link",
            printable(path),
            printable(to)
        ));
    }
    note_external_blobs(&manifest);
    list_missing(&manifest, &[]);
    show(&args.print, &manifest)?;
    check_complete("the backup", &manifest, &[])
}

pub fn restore(args: &RestoreArgs) -> CliResult {
    let mut bar = Bar::new();
    let mut progress = |step| bar.update(step);
    let on_damage = if args.skip_damaged { OnDamage::Skip } else { OnDamage::Refuse };
    let Some(to) = &args.state_dir else {
        let checked = backup::check(&args.from, on_damage, &mut progress);
        let Checked { manifest, skipped } = checked.map_err(|why| failure_of(&why))?;
        drop(bar);
        list_missing(&manifest, &skipped);
        show(&args.print, &manifest)?;
        check_complete("the backup", &manifest, &skipped)?;
        output::say("the backup is complete");
        return Ok(());
    };
    let restored = backup::restore(&args.from, to, SystemTime::now(), on_damage, &mut progress);
    let Checked { manifest, skipped } = restored.map_err(|why| failure_of(&why))?;
    drop(bar);
    let root = StateDir::new(to).root().to_string_lossy().into_owned();
    output::say(&format!("restored the state of {}", printable(&manifest.made_at)));
    output::say(&format!(
        "next: make sure that the server it replaces is stopped, then start this one: {} --state-dir {}",
        StateDir::new(to).start_command(),
        shell_quoted(&root)
    ));
    output::say(
        "note: users and keys that were removed after the backup exist again, and jobs that were running start again",
    );
    note_external_blobs(&manifest);
    list_missing(&manifest, &skipped);
    show(&args.print, &manifest)?;
    check_complete("the state directory", &manifest, &skipped)
}

fn note_external_blobs(manifest: &Manifest) {
    if let Some(address) = &manifest.blob_store {
        output::say(&format!(
            "note: the bytes of blobs are in {}, not in the backup",
            printable(address)
        ));
    }
}

/// Lists the missing files, up to a number of lines.
fn list_missing(manifest: &Manifest, skipped: &[Damaged]) {
    let damaged = manifest.damaged.iter().chain(skipped).map(|file| {
        format!(
            "warning: {} is left out: {}{}",
            printable(&file.path),
            printable(&file.what),
            whose(file)
        )
    });
    let lost = manifest.lost.iter().map(|path| {
        format!("warning: {} was lost before the backup, but is still referenced", printable(path))
    });
    let count = manifest.damaged.len() + skipped.len() + manifest.lost.len();
    damaged.chain(lost).take(LEFT_OUT_LINES_MAX).for_each(|line| output::say(&line));
    if count > LEFT_OUT_LINES_MAX {
        output::say(&format!("warning: and {} more files", count - LEFT_OUT_LINES_MAX));
    }
}

/// What the file belongs to, in brackets, if it is known.
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

/// An incomplete backup is useful, but a timer that runs the command must notice that something is missing.
fn check_complete(what: &str, manifest: &Manifest, skipped: &[Damaged]) -> CliResult {
    let (damaged, lost) = (manifest.damaged.len() + skipped.len(), manifest.lost.len());
    if damaged + lost == 0 {
        return Ok(());
    }
    Err(Failure::incomplete(format!(
        "{what} lacks {damaged} damaged and {lost} lost files; everything else is there"
    ))
    .hint(
        "restore these files into the state directory from a backup on another disk, or delete the blobs and jobs that they belong to",
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

fn failure_of(why: &BackupError) -> Failure {
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

/// The progress on a terminal; elsewhere nothing.
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

    fn update(&mut self, step: Step) {
        match step {
            Step::Databases { bytes } => {
                let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec}";
                let style = ProgressStyle::with_template(style).expect("a valid template");
                self.bar.set_style(style);
                self.bar.reset();
                self.bar.set_length(bytes);
                self.bar.set_message("copying");
            }
            Step::Files => {
                let style = "{spinner} {msg} {bytes} {bytes_per_sec}";
                let style = ProgressStyle::with_template(style).expect("a valid template");
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
