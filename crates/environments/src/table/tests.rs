use super::*;
use muster_core::ErrorChain;

#[test]
fn curated_names_have_what_they_promise() {
    let table = Table::default();
    for (id, wanted) in [
        ("azureml:AzureML-sklearn-1.0-ubuntu20.04-py38-cpu@latest", "scikit-learn"),
        ("azureml:AzureML-sklearn-0.24-ubuntu18.04-py37-cpu:9", "scikit-learn"),
        ("AzureML-sklearn-1.0-ubuntu20.04-py38-cpu", "scikit-learn"),
        (
            "azureml://registries/azureml/environments/sklearn-1.5/versions/3",
            "scikit-learn<1.6,>=1.5",
        ),
        ("azureml://registries/azureml/environments/sklearn-1.1/labels/latest", "scikit-learn<1.2"),
        ("azureml:AzureML-pytorch-1.10-ubuntu18.04-py38-cuda11-gpu@latest", "torch"),
        ("azureml:AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu@latest", "torch"),
        ("azureml://registries/azureml/environments/acpt-pytorch-2.2-cuda12.1/versions/1", "torch"),
        ("azureml://registries/azureml/environments/lightgbm-3.3/versions/1", "lightgbm<5"),
        ("azureml:AzureML-tensorflow-2.7-ubuntu20.04-py38-cuda11-gpu@latest", "tensorflow"),
        (
            "azureml://registries/azureml/environments/responsibleai-ubuntu20.04-py38-cpu/versions/1",
            "responsibleai",
        ),
        ("AZUREML:azureml-MINIMAL-ubuntu18.04-py37-cpu-inference:1", "mlflow-skinny"),
    ] {
        let found = table.curated(id, curated_name(id)).unwrap_or_else(|why| panic!("{id}: {why}"));
        let recipe = found.recipe.expect("it has packages");
        let is_there = recipe.requirements.iter().any(|line| line.starts_with(wanted));
        assert!(is_there, "{id}: {:?}", recipe.requirements);
        assert_eq!(&*found.id, id);
        assert!(found.notes[0].starts_with("the curated environment '"), "{:?}", found.notes);
        assert!(found.notes[0].ends_with("is used instead"), "{:?}", found.notes);
    }
}

/// A new release of a package must not break jobs that ran yesterday.
#[test]
fn what_is_shipped_has_bounds_and_the_mlflow_that_writes_to_folders() {
    let table = Table::default();
    for row in table.rows() {
        let Some((name, recipe)) = row.recipe else { continue };
        let mlflow = recipe.requirements.iter().filter(|line| line.starts_with("mlflow"));
        let mlflow: Vec<&str> = mlflow.map(|line| &**line).collect();
        let of_each_python = [
            "mlflow-skinny==2.17.* ; python_version < \"3.9\"",
            "mlflow-skinny==2.22.* ; python_version >= \"3.9\"",
        ];
        assert_eq!(mlflow, of_each_python, "{name}");
        for package in
            ["scikit-learn", "numpy", "pandas", "torch", "tensorflow", "lightgbm", "azureml"]
        {
            for line in recipe.requirements.iter().filter(|line| line.starts_with(package)) {
                assert!(line.contains('<'), "{name}: {line} has no upper bound");
            }
        }
    }
}

#[test]
fn a_recipe_comes_with_the_packages_of_another() {
    let table = Table::default();
    let own = "[recipes.a]\npip = ['one']\n[recipes.b]\nwith = 'a'\npip = ['two']\n[[images]]\nname = 'x'\nrecipe = 'b'";
    let found = table.with(own, &[]).unwrap().image("x", "x").recipe.unwrap();
    assert_eq!(found.requirements, ["one".into(), "two".into()]);
    for bad in [
        own.replace("with = 'a'", "with = 'c'"),
        own.replace("with = 'a'", "with = 'b'"),
        own.replace("pip = ['two']", "conda = 'dependencies: [numpy]'"),
    ] {
        let error = table.with(&bad, &[]).unwrap_err();
        assert!(matches!(error, BadTable::With { .. }), "{error}");
    }
}

#[test]
fn an_unknown_name_gets_the_nearest_ones() {
    let table = Table::default();
    let error = table.curated("azureml:AzureML-sklern-1.0", "AzureML-sklern-1.0").unwrap_err();
    assert!(error.nearest.iter().any(|name| name.contains("AzureML-sklearn")), "{error}");
    let error = table.curated("x", "qqqq").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no curated environment 'qqqq' here; choose another"),
        "{error}"
    );
    assert!(table.has_curated("sklearn-1.5") && !table.has_curated("my-own"));
    assert!(table.curated("x", &"sklearn".repeat(10_000)).is_err());
}

#[test]
fn every_image_has_a_substitute() {
    let table = Table::default();
    for (image, package) in [
        ("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04:latest", None),
        ("mcr.microsoft.com/azureml/curated/sklearn-1.5:12", Some("scikit-learn<1.6,>=1.5")),
        ("mcr.microsoft.com/azureml/curated/acpt-pytorch-2.2-cuda12.1:9", Some("torch")),
        ("python:3.10", None),
        ("docker.io/library/python:3.10-slim", None),
        ("x", None),
        ("", None),
    ] {
        let found = table.image("id", image);
        match (&found.recipe, package) {
            (None, None) => assert!(found.notes[0].contains("own python3"), "{:?}", found.notes),
            (Some(recipe), Some(package)) => {
                let is_there = recipe.requirements.iter().any(|line| line.starts_with(package));
                assert!(is_there, "{image}: {recipe:?}");
            }
            other => panic!("{image}: {other:?}"),
        }
        assert_eq!(found.notes.len(), 1);
        assert!(!found.notes[0].contains('\n'));
    }
}

#[test]
fn an_operators_rows_come_first_and_may_use_what_is_shipped() {
    let own = r#"
        [recipes.house]
        python = "3.11"
        pip = ["house-tools==1.2"]
        [recipes.sklearn]
        conda = "dependencies: [numpy=1.26, house-lib]"
        [[environments]]
        name = "house-*"
        recipe = "house"
        [[environments]]
        name = "AzureML-sklearn-*"
        recipe = "sklearn"
        [[images]]
        name = "registry.example/ml:*"
        recipe = "sklearn-1.5"
        [[images]]
        name = "mcr.microsoft.com/azureml/curated/sklearn-1.5:7"
        [conda]
        same = ["house-lib"]
    "#;
    let table = Table::default().with(own, &[]).unwrap();
    let packages = |environment: JobEnvironment| -> Vec<String> {
        let lines = environment.recipe.map(|recipe| recipe.requirements).unwrap_or_default();
        lines.iter().map(|line| line.to_string()).collect()
    };
    assert_eq!(packages(table.curated("x", "HOUSE-1").unwrap()), ["house-tools==1.2"]);
    let changed = table.curated("x", "AzureML-sklearn-1.0-ubuntu").unwrap();
    assert!(changed.notes.iter().any(|note| note.contains("numpy=1.26")), "{:?}", changed.notes);
    assert_eq!(packages(changed), ["house-lib", "numpy==1.26.*"]);
    assert!(packages(table.image("x", "registry.example/ml:3")).len() > 3);
    let plain = table.image("x", "mcr.microsoft.com/azureml/curated/sklearn-1.5:7");
    assert_eq!(plain.recipe, None);
    assert!(table.has_curated("lightgbm-3.3"), "shipped entries are kept");
}

#[test]
fn a_bad_file_is_refused_with_its_place() {
    let table = Table::default();
    for (text, wanted) in [
        ("x = 1", "line 1: "),
        ("[[images]]\nnam = 'x'", "line 2: "),
        ("[recipes.a]", "the recipe 'a' has neither pip nor conda"),
        ("[recipes.a]\npip = []\nconda = ''", "has pip and conda"),
        ("[recipes.a]\npip = ['-e .']", "the recipe 'a' cannot be used: line 1, '-e .'"),
        ("[recipes.a]\npip = []\npython = '2.7'", "Python 2 is not supported"),
        ("[recipes.a]\nconda = 'dependencies: [qqqq]'", "the conda package 'qqqq'"),
        ("[[images]]\nname = 'x'\nrecipe = 'y'", "'x' names the recipe 'y', which does not exist"),
        ("[conda]\nsame = ['-']", "its conda names cannot be used"),
    ] {
        let error = table.with(text, &[]).expect_err(text);
        let said = ErrorChain(&error).to_string();
        assert!(said.contains(wanted), "{text:?}: {said}");
    }
    let long = " ".repeat(TEXT_BYTES_MAX + 1);
    assert!(matches!(table.with(&long, &[]), Err(BadTable::TooLong { .. })));
    let many = "[[images]]\nname = 'x'\n".repeat(ROWS_MAX + 1);
    assert_eq!(table.with(&many, &[]).unwrap_err(), BadTable::TooMany);
}

#[test]
fn stars_stand_for_any_letters() {
    for (pattern, text, is_fit) in [
        ("*", "", true),
        ("a*c", "abbc", true),
        ("a*c", "ac", true),
        ("a*c", "axy", false),
        ("*b*", "xBx", true),
        ("a", "ab", false),
        ("ab", "a", false),
        ("", "", true),
        ("a**", "a", true),
        ("*ab*ab", "abab", true),
        ("*ab*ab", "abb", false),
    ] {
        assert_eq!(fits(pattern, text), is_fit, "{pattern} {text}");
    }
    assert!(!fits(&"*a".repeat(500), &"a".repeat(400)));
}

#[test]
fn a_name_is_found_in_whatever_leads_to_it() {
    for (id, name) in [
        ("azureml:a@latest", "a"),
        ("azureml:a:1", "a"),
        ("a@latest", "a"),
        ("a", "a"),
        ("azureml://registries/azureml/environments/a/versions/1", "a"),
        ("azureml://registries/azureml/environments/a", "a"),
        ("AZUREML://Registries/x/Environments/a/labels/latest", "a"),
        ("", ""),
        ("azureml:", ""),
        ("ééééééé", "ééééééé"),
        (
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/environments/AzureML-X/versions/3",
            "AzureML-X",
        ),
    ] {
        assert_eq!(curated_name(id), name, "{id}");
    }
}

#[test]
fn a_recipe_gives_variables() {
    let table = Table::default();
    let found = table.curated("x", "AzureML-tensorflow-2.16-cuda12").unwrap();
    // As in Azure's image, programs for Keras 2 work.
    assert_eq!(found.variables["TF_USE_LEGACY_KERAS"], "1");
    assert!(table.curated("x", "sklearn-1.5").unwrap().variables.is_empty());

    let own =
        "[recipes.a]\npip = ['one']\nvariables = { A = 'b' }\n[[images]]\nname = 'x'\nrecipe = 'a'";
    let own = table.with(own, &[]).unwrap();
    assert_eq!(own.image("x", "x").variables["A"], "b");
    let again = own.with("[[images]]\nname = 'y'\nrecipe = 'a'", &[]).unwrap();
    assert_eq!(again.image("y", "y").variables["A"], "b");

    for bad in ["PATH = 'x'", "'A-B' = 'x'", "A = '${{inputs.x}}'"] {
        let text = format!("[recipes.a]\npip = ['one']\nvariables = {{ {bad} }}");
        let why = table.with(&text, &[]).unwrap_err();
        assert!(matches!(why, BadTable::Variable { .. }), "{bad}: {why}");
    }
}
