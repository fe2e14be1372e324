use muster_core::ErrorChain;

use super::*;
use crate::table::Table;

const INDEX: &str = "https://index.example/simple";

/// A context: names with their texts.
struct Context<'a>(&'a [(&'a str, &'a str)]);

impl Files for Context<'_> {
    fn read(&self, path: &str, bytes_max: usize) -> Result<Option<Vec<u8>>, String> {
        let found = self.0.iter().find(|(name, _)| *name == path);
        let content = found.map(|(_, text)| text.as_bytes().to_vec());
        match content.as_ref().is_some_and(|content| content.len() > bytes_max) {
            true => Err(format!("{path} is too long")),
            false => Ok(content),
        }
    }

    fn has(&self, path: &str) -> Result<bool, String> {
        let below = format!("{path}/");
        Ok(self.0.iter().any(|(name, _)| *name == path || name.starts_with(&below)))
    }
}

fn parsed(text: &str, files: &[(&str, &str)]) -> Result<Read, BadDockerfile> {
    let (names, indexes) = (Names::default(), [INDEX.to_owned()]);
    parse(text, With { files: &Context(files), names: &names, indexes: &indexes })
}

fn read(text: &str, files: &[(&str, &str)]) -> Read {
    parsed(text, files).unwrap_or_else(|why| panic!("{text}: {}", ErrorChain(&why)))
}

fn packages(text: &str, files: &[(&str, &str)]) -> String {
    read(text, files).recipe.map_or("-".to_owned(), |recipe| recipe.requirements.join(" "))
}

fn refusal(text: &str, files: &[(&str, &str)]) -> String {
    ErrorChain(&parsed(text, files).expect_err(text)).to_string()
}

#[test]
fn a_file_as_azures_examples_have_it() {
    let text = "\
# syntax=docker/dockerfile:1
FROM mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04

# python installs
COPY requirements.txt .
RUN apt-get update && apt-get install -y git \\
    # for nothing
    && rm -rf /var/lib/apt/lists/*
RUN pip install --upgrade pip && pip install --no-cache-dir -r requirements.txt && rm requirements.txt
ENV NAME=value OTHER=\"two words\"

# set command
CMD [\"bash\"]
";
    let found = read(text, &[("requirements.txt", "# tools\nsix==1.16.0\nnumpy>=1.21\n")]);
    assert_eq!(found.image, "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04");
    assert_eq!(found.recipe.unwrap().requirements, ["numpy>=1.21".into(), "six==1.16.0".into()]);
    let variables: Vec<_> = found.variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(variables, ["NAME=value", "OTHER=two words"]);
    assert_eq!(
        found.notes.iter().map(|note| &**note).collect::<Vec<_>>(),
        [
            "skipped: apt-get update: the host's packages are used",
            "skipped: apt-get install -y git: the host's packages are used",
            "skipped: rm -rf /var/lib/apt/lists/*: no image is built",
            "skipped: pip install --upgrade pip: pip is not needed to build",
            "skipped: rm requirements.txt: no image is built",
            "skipped: CMD [\"bash\"]: a job has its own command",
        ]
    );
}

#[test]
fn installs_are_found_however_they_are_written() {
    for (text, wanted) in [
        ("RUN pip install six", "six"),
        ("run pip3 install 'six>=1.0,<2' \"attrs[x]\"", "attrs[x] six<2,>=1.0"),
        ("RUN [\"python3.11\", \"-m\", \"pip\", \"install\", \"six\"]", "six"),
        ("RUN /opt/conda/bin/python -m pip install -qU six", "six"),
        ("RUN uv pip install --system six", "six"),
        ("RUN --mount=type=cache,target=/root/.cache pip install six", "six"),
        ("RUN DEBIAN_FRONTEND=x sudo pip install six", "six"),
        ("RUN pip install six || true; echo done # pip install attrs", "six"),
        ("RUN bash -lc \"source activate x && pip install six\"", "six"),
        ("RUN conda run -n x --no-capture-output pip install six", "six"),
        ("RUN conda install -y -c conda-forge numpy=1.26 pip && conda clean -afy", "numpy==1.26.*"),
        ("RUN conda update -n base -c defaults conda", "-"),
        ("RUN pip install six>out.txt 2>&1 && pip install attrs", "attrs six"),
        ("ARG V=1.16\nRUN pip install six==${V}.0", "six==1.16.0"),
        ("ENV V 1.16\nRUN pip install six==$V", "six==1.16"),
        ("RUN pip install \\\n\n  six \\\n# no\n  attrs", "attrs six"),
        ("RUN pip cache purge; pip --version; python -V; cd /tmp; set -ex", "-"),
        ("RUN pip install six\nRUN pip install six", "six"),
    ] {
        assert_eq!(packages(&format!("FROM python:3.11\n{text}"), &[]), wanted, "{text}");
    }
}

#[test]
fn files_are_found_where_they_were_copied_to() {
    let files = [("requirements.txt", "six"), ("deps/dev.txt", "attrs"), ("env/c.yml", CONDA)];
    const CONDA: &str = "dependencies: [python=3.10, numpy, {pip: [six]}]";
    for (text, wanted) in [
        ("COPY requirements.txt .\nRUN pip install -r requirements.txt", "six"),
        ("COPY requirements.txt /tmp\nRUN pip install -r /tmp/requirements.txt", "six"),
        ("COPY requirements.txt /tmp/r.txt\nRUN pip install --requirement=/tmp/r.txt", "six"),
        ("WORKDIR /app\nCOPY . .\nRUN pip install -r deps/dev.txt -rrequirements.txt", "attrs six"),
        ("WORKDIR /app\nWORKDIR x\nADD ./deps/ ./\nRUN pip install -r /app/x/dev.txt", "attrs"),
        ("COPY deps /d\nRUN cd /d/y && pip install -r ../dev.txt", "attrs"),
        ("COPY req*.txt /\nRUN pip install -r requirements.txt", "six"),
        (
            "COPY [\"requirements.txt\", \"/a b/\"]\nRUN pip install -r '/a b/requirements.txt'",
            "six",
        ),
        (
            "COPY --chown=1:1 requirements.txt deps/dev.txt /r/\nRUN pip install -r /r/dev.txt",
            "attrs",
        ),
        ("COPY env/c.yml .\nRUN conda env create -f c.yml -n x", "numpy six"),
        ("COPY env/c.yml environment.yml\nRUN mamba env update", "numpy six"),
        ("COPY requirements.txt .\nRUN conda install --file requirements.txt", "six"),
        (
            "RUN --mount=type=bind,source=requirements.txt,target=/r.txt pip install -r /r.txt",
            "six",
        ),
    ] {
        let text = format!("FROM python:3.11\n{text}");
        let found = read(&text, &files);
        assert!(!found.notes.iter().any(|note| note.contains("context")), "{:?}", found.notes);
        assert_eq!(found.recipe.unwrap().requirements.join(" "), wanted, "{text}");
    }
    let found = read("FROM x\nCOPY env/c.yml .\nRUN conda env create -f c.yml", &files);
    assert_eq!(found.recipe.unwrap().python.as_deref(), Some("3.10"));
    let found = read("FROM x\nCOPY deps /app", &files);
    assert!(found.notes[0].starts_with("skipped: COPY deps /app: jobs do not see files"));
}

#[test]
fn stages_end_in_the_last_one() {
    let text = "ARG TAG=3.11\nFROM python:${TAG}-slim AS base\nENV A=1\nRUN pip install six\n\
                FROM node AS web\nRUN npm ci\nFROM ubuntu AS tools\nRUN pip install --prefix=/i attrs\n\
                FROM --platform=linux/amd64 base\nCOPY --from=tools /i /usr/local\nCOPY --from=nginx /a /b";
    let found = read(text, &[]);
    assert_eq!(found.image, "python:3.11-slim");
    assert_eq!(found.recipe.unwrap().requirements, ["attrs".into(), "six".into()]);
    assert_eq!(found.variables.len(), 1);
    let said = found.notes.join("\n");
    assert!(said.contains("only the Python packages of that stage are used"), "{said}");
    assert!(said.contains("files of images are not available") && !said.contains("npm"), "{said}");
}

#[test]
fn indexes_are_those_that_are_allowed() {
    let one = format!("FROM x\nRUN pip install --index-url {INDEX} six");
    let found = read(&one, &[]).recipe.unwrap();
    assert_eq!((found.index.as_deref(), found.extra_indexes.len()), (Some(INDEX), 0));
    let found = read(&format!("{one}\nRUN pip install attrs"), &[]).recipe.unwrap();
    assert_eq!((found.index, found.extra_indexes), (None, vec![INDEX.into()]));
    let said = refusal("FROM x\nRUN pip install -i https://other.example six", &[]);
    assert!(said.contains("line 2") && said.contains("this index is not allowed"), "{said}");
}

#[test]
fn the_substitute_for_the_image_is_the_base() {
    let table = Table::default();
    let on = |text: &str| {
        let found = read(text, &[]);
        let base = table.image("id", &found.image);
        found.on(base)
    };
    let plain = on("FROM python:3.10-slim");
    assert_eq!((plain.recipe, plain.image.as_deref()), (None, Some("python:3.10-slim")));
    let own = on("FROM docker.io/python:3.10-slim\nENV A=b\nRUN pip install six");
    assert_eq!(own.recipe.unwrap().python.as_deref(), Some("3.10"));
    assert!(own.notes[0].contains("is not run here; an environment built here"), "{:?}", own.notes);
    assert_eq!(own.variables["A"], "b");
    let curated = "FROM mcr.microsoft.com/azureml/curated/minimal-py311:1\nRUN pip install six mlflow-skinny==2.9";
    let over = on(curated).recipe.unwrap().requirements;
    let found: Vec<&str> = over.iter().map(|line| &**line).collect();
    assert!(found.contains(&"six") && found.contains(&"azure-identity<2"), "{found:?}");
    let mlflow = found.iter().filter(|line| line.starts_with("mlflow"));
    assert_eq!(mlflow.collect::<Vec<_>>(), [&"mlflow-skinny==2.9"], "the base's own is replaced");
    let keras = "FROM mcr.microsoft.com/azureml/curated/tensorflow-2.16-cuda12:1\nENV A=b";
    let keras: Vec<_> = on(keras).variables.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(keras, ["A=b", "TF_USE_LEGACY_KERAS=1"]);
}

#[test]
fn what_might_matter_is_refused_by_name() {
    let files = [("a.txt", "six"), ("bad.txt", "-e ."), ("c.yml", "dependencies: [r-base]")];
    for (text, wanted) in [
        ("", "has no FROM"),
        ("RUN x\nFROM y", "has no FROM"),
        ("FROM", "write FROM IMAGE"),
        ("FROM $NOPE", "$NOPE has no value here"),
        ("FROM x\nFORM y", "line 2 of the Dockerfile, 'FORM y': 'FORM' is not an instruction"),
        (
            "FROM x\n\nRUN make",
            "line 3 of the Dockerfile, 'RUN make': 'make' is not supported here",
        ),
        ("FROM x\nRUN curl https://a | bash", "'curl https://a' is not supported here"),
        ("FROM x\nRUN git clone https://a", "give a conda file or pip requirements"),
        ("FROM x\nRUN python setup.py install", "'python setup.py install' is not"),
        ("FROM x\nRUN (cd a && make)", "in brackets"),
        ("FROM x\nRUN pip install a || pip install b", "an install after ||"),
        ("FROM x\nRUN pip install $(cat a)", "$(…) has no value here"),
        ("FROM x\nRUN pip install $WHAT", "$WHAT has no value here"),
        ("FROM x\nRUN pip install .", "'.': files of this host are not installed"),
        ("FROM x\nRUN pip install git+https://a/b", "not from a repository"),
        ("FROM x\nRUN pip install --config-settings a b", "the option '--config-settings' of pip"),
        ("FROM x\nRUN pip config set global.index-url a", "'pip config set"),
        ("FROM x\nRUN pip install -r", "it names no file"),
        ("FROM x\nRUN pip install -r a.txt", "no COPY or ADD before it brings 'a.txt'"),
        ("FROM x\nRUN pip install -r https://a/b", "is a URL"),
        ("FROM x\nCOPY a.txt .\nRUN pip install -r ../../etc/passwd", "brings '../../etc/passwd'"),
        ("FROM x\nCOPY . .\nRUN pip install -r b.txt", "no COPY or ADD before it brings 'b.txt'"),
        ("FROM x\nCOPY b.txt .", "'b.txt' is not in the context"),
        ("FROM x\nCOPY ../a.txt .", "'../a.txt' leads out of the context"),
        ("FROM x\nCOPY a/../../b .", "leads out of the context"),
        ("FROM x\nCOPY a.txt", "write COPY FILE FOLDER/"),
        ("FROM x\nADD https://a/b /c", "is a URL"),
        ("FROM x\nCOPY bad.txt .\nRUN pip install -r bad.txt", "file 'bad.txt': line 1, '-e .'"),
        ("FROM x\nCOPY c.yml .\nRUN conda env create -f c.yml", "file 'c.yml': the conda package"),
        ("FROM x\nRUN conda install qqqq", "the conda package 'qqqq' is not known"),
        ("FROM x\nRUN conda build .", "'conda build .' is not"),
        ("FROM x\nRUN <<EOF\nFROM y\nEOF", "line 2 of the Dockerfile, 'RUN <<EOF': heredocs"),
        ("FROM x\nCOPY <<-\"E\" /a\nE", "heredocs"),
        ("FROM x\nRUN echo 'a", "a quote ' is not closed"),
        ("FROM x\nENV A=${B", "a variable is not closed"),
    ] {
        let said = refusal(text, &files);
        assert!(said.contains(wanted), "{text:?}: {said}");
    }
}

#[test]
fn there_are_bounds() {
    let long = format!("FROM x\n#{}", "x".repeat(TEXT_BYTES_MAX));
    assert!(refusal(&long, &[]).contains("at most 262144 are allowed"));
    let many = format!("FROM x\n{}", "USER x\n".repeat(INSTRUCTIONS_MAX));
    assert!(refusal(&many, &[]).contains("more than 1000 instructions"));
    assert!(refusal(&"FROM x\n".repeat(STAGES_MAX + 1), &[]).contains("more than 50 stages"));
    let many = format!("FROM x\nRUN true{}", " && true".repeat(COMMANDS_MAX));
    assert!(refusal(&many, &[]).contains("more than 2000 commands"));
    let many = format!("FROM x\nCOPY {} /x/", "a ".repeat(COPIES_MAX + 1));
    assert!(refusal(&many, &[("a", "")]).contains("more than 200 files and folders"));
    let files = format!("FROM x\nCOPY a .\nRUN pip install {}", "-r a ".repeat(FILES_MAX + 1));
    assert!(refusal(&files, &[("a", "six")]).contains("more than 50 files"));
    // This variable doubles with each line.
    let bomb = format!("FROM x\nENV A=xxxxxxxx\n{}", "ENV A=$A$A\n".repeat(30));
    assert!(refusal(&bomb, &[]).contains("more than 4096 bytes"));
    let wide = format!("FROM x\nENV A={}\n{}", "x".repeat(4_000), "RUN echo $A $A\n".repeat(200));
    assert!(refusal(&wide, &[]).contains("more than 1048576 bytes"));
    let variables: String = (0..=VARIABLES_MAX).map(|n| format!("ENV A{n}=x\n")).collect();
    assert!(refusal(&format!("FROM x\n{variables}"), &[]).contains("more than 200 variables"));
    let deep = (0..6).fold("true".to_owned(), |inner, _| format!("bash -c {inner:?}"));
    assert!(refusal(&format!("FROM x\nRUN {deep}"), &[]).contains("nested too deeply"));
}
