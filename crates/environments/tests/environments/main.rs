//! Environments built by the real uv, from an index on loopback, and once from PyPI itself.
#![allow(clippy::unwrap_used)]

mod index;

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use index::{File, Index};
use muster_core::ids::ClusterId;
use muster_core::model::Recipe;
use muster_environments::id_of;
use muster_environments::store::{Config, State, Store, Timing};

const LONG: Duration = Duration::from_secs(120);
const DEMO: [File<'static>; 2] = [
    ("demo.py", "VALUE = 'from the wheel'\ndef main():\n    print(VALUE)\n"),
    ("DIST-INFO/entry_points.txt", "[console_scripts]\ndemo-tool = demo:main\n"),
];

struct Bench {
    index: Index,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench { index: Index::start(), dir: tempfile::tempdir().unwrap() };
        bench.index.add("demo", &DEMO);
        bench
    }

    fn config(&self) -> Config {
        Config {
            dir: self.dir.path().join("environments"),
            uv: Some(uv()),
            indexes: vec![self.index.url()],
            build_within: LONG,
            bytes_max: u64::MAX,
            timing: Timing::default(),
        }
    }

    fn open(&self) -> Store {
        Store::open(self.config()).unwrap()
    }

    fn recipe(&self, lines: &[&str]) -> Recipe {
        let lines = lines.iter().map(|line| Box::from(*line)).collect();
        Recipe { index: Some(self.index.url().into()), ..Recipe::new(None, lines) }
    }

    fn place(&self, recipe: &Recipe) -> PathBuf {
        self.dir.path().join("environments/ready").join(id_of(recipe).to_string())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.dir.path().join("environments").join(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// The uv of `make setup-uv`, or the one in MUSTER_UV.
fn uv() -> PathBuf {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/uv/bin/uv");
    let named = std::env::var_os("MUSTER_UV").map(PathBuf::from);
    let made = made.exists().then_some(made);
    let found = named.or(made).map(Ok);
    found.unwrap_or_else(|| muster_environments::store::find_uv(None)).expect("make setup-uv")
}

fn says(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn is_ready(state: &State) -> bool {
    matches!(state, State::Ready { .. })
}

fn failure(state: State) -> String {
    match state {
        State::Failed { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_environment_is_built_once_and_found_again() {
    let bench = Bench::new();
    let store = bench.open();
    let recipe = bench.recipe(&["demo==1.0"]);
    let state = store.get(&recipe, LONG).await;
    let wanted = State::Ready { folder: id_of(&recipe).to_string(), notes: Vec::new() };
    assert_eq!(state, wanted);
    let place = bench.place(&recipe);
    // Created elsewhere and moved here, it still finds its own files.
    assert_eq!(
        says(&place.join("bin/python"), &["-c", "import demo; print(demo.VALUE)"]),
        "from the wheel"
    );
    assert_eq!(says(&place.join("bin/demo-tool"), &[]), "from the wheel");
    let prefix = says(&place.join("bin/python"), &["-c", "import sys; print(sys.prefix)"]);
    assert_eq!(Path::new(&prefix), place.canonicalize().unwrap());
    let packages = says(&place.join("bin/python"), &["-c", "import demo; print(demo.__file__)"]);
    let module = Path::new(&packages).metadata().unwrap();
    assert!(module.nlink() >= 2, "it is a link to the file in the cache");
    assert_eq!(module.mode() & 0o7777, 0o444);
    let compiled = Path::new(&packages).parent().unwrap().join("__pycache__");
    assert_eq!(compiled.metadata().unwrap().mode() & 0o777, 0o555);
    let compiled: Vec<_> = std::fs::read_dir(compiled).unwrap().map(|one| one.unwrap()).collect();
    assert!(compiled.iter().any(|one| one.file_name().to_string_lossy().starts_with("demo.")));
    assert!(bench.names("building").is_empty(), "{:?}", bench.names("building"));
    let log = std::fs::read_to_string(
        bench.dir.path().join("environments/logs").join(format!("{}.log", id_of(&recipe))),
    );
    assert!(log.unwrap().contains("demo==1.0"));

    let asked = bench.index.all_asked();
    assert_eq!(store.get(&recipe, LONG).await, wanted);
    assert_eq!(bench.open().get(&recipe, LONG).await, wanted);
    assert_eq!(bench.index.all_asked(), asked, "nothing is fetched again");
}

#[tokio::test]
async fn many_simultaneous_requests_share_one_build() {
    let bench = Bench::new();
    let store = bench.open();
    let recipe = bench.recipe(&["demo"]);
    bench.index.hold(true);
    let started = Instant::now();
    while !matches!(
        store.get(&recipe, Duration::from_millis(50)).await,
        State::Building { said } if said.len() > 1
    ) {
        assert!(started.elapsed() < LONG);
    }
    let asking: Vec<_> = (0..20)
        .map(|_| {
            let (store, recipe) = (store.clone(), recipe.clone());
            tokio::spawn(async move { store.get(&recipe, LONG).await })
        })
        .collect();
    assert!(!bench.place(&recipe).exists(), "nothing is visible before it is complete");
    bench.index.hold(false);
    for one in asking {
        assert!(is_ready(&one.await.unwrap()));
    }
    assert_eq!(bench.index.asked("demo"), 1);
}

#[tokio::test]
async fn a_cluster_sees_only_what_its_own_jobs_asked_for() {
    let bench = Bench::new();
    let store = bench.open();
    let (one, other) = (ClusterId(1), ClusterId(2));
    store.open_to(one).unwrap();
    store.open_to(other).unwrap();
    let recipe = bench.recipe(&["demo"]);
    let id = id_of(&recipe).to_string();
    assert!(is_ready(&store.get_for(one, &recipe, LONG).await));
    let mut seen = vec![id.clone(), "plain".to_owned()];
    seen.sort();
    assert_eq!(
        (bench.names("shown/1"), bench.names("shown/2")),
        (seen.clone(), vec!["plain".into()])
    );
    assert!(is_ready(&store.get_for(other, &recipe, LONG).await));
    assert_eq!((bench.names("shown/2"), bench.index.asked("demo")), (seen.clone(), 1));
    // The bytes exist once, and are read-only.
    let shown = |cluster: &str| bench.dir.path().join("environments/shown").join(cluster).join(&id);
    let file = |top: PathBuf| std::fs::metadata(top.join("pyvenv.cfg")).unwrap();
    let inodes = [bench.place(&recipe), shown("1"), shown("2")].map(|top| file(top).ino());
    assert!(inodes.iter().all(|inode| *inode == inodes[0]), "{inodes:?}");
    let modes = [shown("1"), shown("1").join("lib"), shown("1").join("pyvenv.cfg")];
    let modes = modes.map(|path| std::fs::metadata(path).unwrap().mode() & 0o777);
    assert_eq!(modes, [0o555, 0o555, 0o444]);
    let ran = Command::new(shown("2").join("bin/python")).args(["-c", "import demo"]).status();
    assert!(ran.unwrap().success());

    // An earlier version left no folders for clusters: the environment is kept, and shown when it is requested.
    store.stop();
    for cluster in ["1", "2"] {
        let top = bench.dir.path().join("environments/shown").join(cluster);
        assert!(Command::new("rm").arg("-rf").arg(top).status().unwrap().success());
    }
    let timing = Timing { young_for: Duration::ZERO, ..Timing::default() };
    let store = Store::open(Config { bytes_max: 1, timing, ..bench.config() }).unwrap();
    assert!(is_ready(&store.get_for(other, &recipe, LONG).await));
    assert_eq!((bench.names("shown/2"), bench.index.asked("demo")), (seen, 1));
    // What is removed is removed for all, and so are the folders of deleted clusters.
    store.open_to(one).unwrap();
    store.tidy(&BTreeSet::new(), &BTreeSet::from([other])).unwrap();
    assert_eq!(
        (bench.names("shown"), bench.names("shown/2")),
        (vec!["2".into()], vec!["plain".into()])
    );
    assert_eq!(bench.names("ready"), ["plain"]);
}

#[tokio::test]
async fn a_stop_in_the_middle_leaves_nothing_visible() {
    let bench = Bench::new();
    let store = bench.open();
    let recipe = bench.recipe(&["demo"]);
    bench.index.hold(true);
    let asking = {
        let (store, recipe) = (store.clone(), recipe.clone());
        tokio::spawn(async move { store.get(&recipe, LONG).await })
    };
    let started = Instant::now();
    while bench.index.asked("demo") == 0 {
        assert!(started.elapsed() < LONG);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let stopping = store.clone();
    tokio::task::spawn_blocking(move || stopping.stop()).await.unwrap();
    // The request reports neither success nor failure, and is repeated with the next server.
    assert!(matches!(asking.await.unwrap(), State::Building { .. }));
    assert_eq!(bench.names("ready"), ["plain"]);
    assert!(bench.names("building").is_empty());
    assert!(matches!(store.get(&recipe, LONG).await, State::Building { .. }), "it builds no more");
    // The state if the host had been switched off instead.
    let half = bench.dir.path().join("environments/building").join(id_of(&recipe).to_string());
    std::fs::create_dir_all(half.join("bin")).unwrap();
    std::fs::write(half.join("bin/python"), "half").unwrap();
    bench.index.hold(false);
    let store = bench.open();
    assert!(bench.names("building").is_empty());
    assert!(is_ready(&store.get(&recipe, LONG).await));
}

#[tokio::test]
async fn a_failure_is_remembered_for_a_while() {
    let bench = Bench::new();
    let timing = Timing { failed_for: Duration::from_secs(3), ..Timing::default() };
    let store = Store::open(Config { timing, ..bench.config() }).unwrap();
    let recipe = bench.recipe(&["demo", "elusive"]);
    let said = failure(store.get(&recipe, LONG).await);
    assert!(
        said.starts_with("uv cannot install its packages: ") && said.contains("elusive"),
        "{said}"
    );
    let State::Failed { said: lines, .. } = store.get(&recipe, LONG).await else { panic!() };
    let state_dir = bench.dir.path().to_str().unwrap();
    assert!(lines.len() > 2 && !lines.iter().any(|line| line.contains(state_dir)), "{lines:?}");
    let asked = bench.index.asked("elusive");
    for _ in 0..100 {
        assert_eq!(failure(store.get(&recipe, LONG).await), said);
    }
    assert_eq!(bench.index.asked("elusive"), asked);
    assert_eq!(bench.names("ready"), ["plain"]);
    bench.index.add("elusive", &[("found.py", "")]);
    let started = Instant::now();
    loop {
        let state = store.get(&recipe, LONG).await;
        if is_ready(&state) {
            break;
        }
        assert!(started.elapsed() < LONG, "{state:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(started.elapsed() > Duration::from_secs(1));
}

#[tokio::test]
async fn a_package_without_a_wheel_is_not_built() {
    let bench = Bench::new();
    bench.index.put("sourceful", "sourceful-1.0.tar.gz", b"never read".to_vec());
    let said = failure(bench.open().get(&bench.recipe(&["sourceful"]), LONG).await);
    assert!(said.contains("sourceful") && said.contains("only wheels are installed"), "{said}");
}

#[tokio::test]
async fn nothing_of_a_package_is_run_during_a_build() {
    let bench = Bench::new();
    let mark = bench.dir.path().join("mark");
    // Python runs such a line whenever it starts in an environment that contains it.
    let line = format!("import pathlib; pathlib.Path({:?}).touch()\n", mark.to_str().unwrap());
    bench.index.add("eager", &[("eager.pth", &line), ("eager.py", "")]);
    let recipe = bench.recipe(&["eager"]);
    assert!(is_ready(&bench.open().get(&recipe, LONG).await));
    assert!(!mark.exists());
    says(&bench.place(&recipe).join("bin/python"), &["-c", "pass"]);
    assert!(mark.exists(), "the line runs outside of a build");
}

#[tokio::test]
async fn a_build_has_its_time() {
    let bench = Bench::new();
    bench.index.hold(true);
    let config = Config { build_within: Duration::from_secs(2), ..bench.config() };
    let said = failure(Store::open(config).unwrap().get(&bench.recipe(&["demo"]), LONG).await);
    assert!(said.contains("install its packages failed: it took longer than 1 minutes"), "{said}");
    assert!(bench.names("building").is_empty());
}

#[tokio::test]
async fn surplus_environments_are_removed_oldest_first() {
    let bench = Bench::new();
    let timing = Timing { young_for: Duration::ZERO, ..Timing::default() };
    let open =
        |bytes_max, timing| Store::open(Config { bytes_max, timing, ..bench.config() }).unwrap();
    let store = open(1, timing);
    let recipes = [&["demo"][..], &["demo==1.0"], &["demo>=1.0"]].map(|lines| bench.recipe(lines));
    for recipe in &recipes {
        assert!(is_ready(&store.get(recipe, LONG).await));
    }
    let is_there = || recipes.each_ref().map(|recipe| bench.place(recipe).exists());
    let [_, in_use, _] = recipes.each_ref().map(id_of);
    // Nothing is old enough.
    open(1, Timing::default()).tidy(&BTreeSet::new(), &BTreeSet::new()).unwrap();
    assert_eq!(is_there(), [true; 3]);
    // There is room for all except a little.
    let bytes = {
        let sizes = open(u64::MAX, timing);
        sizes.tidy(&BTreeSet::new(), &BTreeSet::new()).unwrap();
        assert_eq!(is_there(), [true; 3]);
        let du = Command::new("du").args(["-s", "-B1"]).arg(store.ready_dir()).output().unwrap();
        String::from_utf8(du.stdout)
            .unwrap()
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    open(bytes - 16_384, timing).tidy(&BTreeSet::new(), &BTreeSet::new()).unwrap();
    assert_eq!(is_there(), [false, true, true], "the one whose last request is longest ago");
    store.tidy(&BTreeSet::from([in_use]), &BTreeSet::new()).unwrap();
    assert_eq!(is_there(), [false, true, false], "what is in use is kept");
    assert!(bench.names("cache").is_empty(), "the cache is emptied too");
    let python = bench.place(&recipes[1]).join("bin/python");
    assert_eq!(says(&python, &["-c", "import demo; print(demo.VALUE)"]), "from the wheel");
    assert!(is_ready(&store.get(&recipes[0], LONG).await), "it is built again");
}

#[tokio::test]
async fn one_whose_interpreter_is_gone_is_built_again() {
    let bench = Bench::new();
    let store = bench.open();
    let recipe = bench.recipe(&["demo"]);
    assert!(is_ready(&store.get(&recipe, LONG).await));
    let bin = bench.place(&recipe).join("bin");
    let status = Command::new("chmod").args(["u+w"]).arg(&bin).status().unwrap();
    assert!(status.success());
    std::fs::remove_file(bin.join("python")).unwrap();
    symlink("/usr/bin/python3.0", bin.join("python")).unwrap();
    assert!(is_ready(&store.get(&recipe, LONG).await));
    assert_eq!(says(&bin.join("python"), &["-c", "print(1)"]), "1");
}

#[tokio::test]
async fn another_python_than_requested_is_reported() {
    let bench = Bench::new();
    let recipe = Recipe { python: Some("3.6".into()), ..bench.recipe(&["demo"]) };
    let State::Ready { notes, .. } = bench.open().get(&recipe, LONG).await else { panic!() };
    assert!(notes[0].starts_with("python 3.6 is not on this host, which has 3."), "{notes:?}");
}

#[tokio::test]
async fn a_build_that_cannot_start_is_explained() {
    let bench = Bench::new();
    let config = Config { uv: Some("/nowhere/uv".into()), ..bench.config() };
    let said = failure(Store::open(config).unwrap().get(&bench.recipe(&["demo"]), LONG).await);
    assert!(said.contains("/nowhere/uv") && said.contains("pip install uv"), "{said}");
    // This index was allowed once but is not any more.
    let config = Config { indexes: Vec::new(), ..bench.config() };
    let said = failure(Store::open(config).unwrap().get(&bench.recipe(&["demo"]), LONG).await);
    assert!(said.contains("this index is not allowed"), "{said}");
    assert_eq!(bench.index.all_asked(), 0);
}

#[tokio::test]
async fn a_package_of_pypi_is_installed() {
    let bench = Bench::new();
    let recipe = Recipe::new(None, vec!["six==1.17.0".into()]);
    let state = bench.open().get(&recipe, LONG).await;
    assert!(is_ready(&state), "{state:?}");
    let python = bench.place(&recipe).join("bin/python");
    assert_eq!(says(&python, &["-c", "import six; print(six.__version__)"]), "1.17.0");
    assert!(says(&bench.place(&recipe).join("bin/pip"), &["list"]).contains("six"));
    // Azure's older SDK imports it, and expects it to be there.
    let of_setuptools =
        "import pkg_resources; print(pkg_resources.get_distribution('six').version)";
    assert_eq!(says(&python, &["-W", "ignore", "-c", of_setuptools]), "1.17.0");
}

#[test]
fn python_is_found_where_only_python3_is() {
    let bench = Bench::new();
    let store = bench.open();
    let python = store.ready_dir().join("plain/bin/python");
    assert_eq!(says(&python, &["-c", "print(1)"]), "1");
    let _again = bench.open();
    assert_eq!(says(&python, &["-c", "print(2)"]), "2");
}
