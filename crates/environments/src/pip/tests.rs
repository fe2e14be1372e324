use super::*;

fn lines(text: &str) -> Vec<String> {
    let recipe = parse(text, &[]).unwrap_or_else(|why| panic!("{text:?}: {why}"));
    recipe.requirements.iter().map(|line| line.to_string()).collect()
}

fn refusal(text: &str) -> String {
    parse(text, &[]).expect_err(text).to_string()
}

#[test]
fn requirements_have_one_spelling() {
    for (text, wanted) in [
        ("numpy", "numpy"),
        ("  NumPy  ", "numpy"),
        ("scikit_learn >= 1.2 , < 2", "scikit-learn<2,>=1.2"),
        ("zope.interface(>=5.0)", "zope-interface>=5.0"),
        ("Foo.-_bar==1.0.*", "foo-bar==1.0.*"),
        ("uvicorn[Standard, http_tools]~=0.20.1", "uvicorn[http-tools,standard]~=0.20.1"),
        ("six[]", "six"),
        ("six # why", "six"),
        ("a; python_version<'3.8'", "a ; python_version < \"3.8\""),
        ("torch==2.1.0+cpu", "torch==2.1.0+cpu"),
        ("six==1.16.0 \\\n  # not part of it", "six==1.16.0"),
    ] {
        assert_eq!(lines(text), [wanted], "{text}");
    }
    let hash = "0".repeat(64);
    let text = format!("six==1.16.0 \\\n    --hash=sha256:{hash} \\\n    --hash sha256:{hash}\n");
    assert_eq!(lines(&text), [format!("six==1.16.0 --hash=sha256:{hash}")]);
}

#[test]
fn order_comments_and_repetition_mean_nothing() {
    let text = "# all\n\nb\n a >=1\r\nb\n--only-binary :all:\n--prefer-binary\n";
    assert_eq!(lines(text), ["a>=1", "b"]);
    assert_eq!(lines(""), Vec::<String>::new());
}

#[test]
fn what_is_read_reads_back_as_the_same() {
    let text = "a[x,y]!=1,>=0.5 ; os_name == 'posix' and (extra == \"q\")\nb\nc===1.0\n";
    let once = lines(text);
    assert_eq!(lines(&once.join("\n")), once);
}

#[test]
fn what_is_refused_is_named_with_a_remedy() {
    for (text, wanted) in [
        (
            "six\nfoo @ https://x/foo.whl",
            "line 2, 'foo @ https://x/foo.whl': packages are installed as wheels",
        ),
        ("https://x/foo.whl", "not from a URL"),
        ("foo @ git+https://x/y", "not from a repository"),
        ("git+https://x/y#egg=z", "not from a repository"),
        ("-e git+https://x/y", "not from a repository"),
        ("-e .", "files of this host"),
        ("--editable=./x", "files of this host"),
        ("./foo", "files of this host"),
        ("/etc/passwd", "files of this host"),
        ("foo-1.0-py3-none-any.whl", "files of this host"),
        ("foo @ file:///etc", "not from a URL"),
        ("-r other.txt", "other files are not read"),
        ("--requirement=other.txt", "other files are not read"),
        ("-c constraints.txt", "other files are not read"),
        ("--index-url https://x/simple", "package-indexes (now: none)"),
        ("--extra-index-url=https://x/simple", "package-indexes (now: none)"),
        ("-f https://x", "not from a URL"),
        ("--find-links /opt/x", "not from a URL"),
        ("--no-binary :all:", "'--no-binary' is not supported; only wheels"),
        ("--pre", "NAME==2.0rc1"),
        ("--what", "'--what' is not supported"),
        ("six --install-option=x", "'--install-option' is not supported"),
        ("six --hash=md5:00", "a hash is sha256:"),
        ("six --hash=sha256:00", "too few"),
        ("six=1.0", "its versions are not valid"),
        ("six 1.0", "its versions are not valid"),
        ("six>=1.0 and more", "its versions are not valid"),
        ("-six", "'-six' is not supported"),
        ("_six", "does not begin with the name of a package"),
        ("six[a", "a bracket is not closed"),
        ("six (>=1", "a parenthesis is not closed"),
        ("six[a b]", "its extras"),
        ("six; nothing", "its condition"),
        ("six==1;os_name=='${HOME}'", "its condition"),
        ("\u{1b}[31m", "line 1, '\u{fffd}[31m'"),
    ] {
        let said = refusal(text);
        assert!(said.contains(wanted), "{text:?}: {said}");
    }
}

#[test]
fn an_index_is_one_that_the_operator_allows() {
    let allowed = ["https://a/simple".to_owned(), "https://b/simple/".to_owned()];
    let text = "--index-url https://a/simple/\n--extra-index-url=https://b/simple\nsix\n";
    let recipe = parse(text, &allowed).unwrap();
    assert_eq!(recipe.index.as_deref(), Some("https://a/simple"), "as the operator spells it");
    assert_eq!(recipe.extra_indexes, ["https://b/simple/".into()]);
    let said = parse("-i https://c/simple", &allowed).unwrap_err().to_string();
    assert!(said.contains("(now: https://a/simple, https://b/simple/)"), "{said}");
    let said = parse("-i https://a/simple\n-i https://b/simple", &allowed).unwrap_err();
    assert!(said.to_string().contains("there is one index already"), "{said}");
}

#[test]
fn there_are_bounds() {
    let many = |count: usize| (0..count).map(|n| format!("p{n}\n")).collect::<String>();
    assert_eq!(parse(&many(REQUIREMENTS_MAX), &[]).unwrap().requirements.len(), REQUIREMENTS_MAX);
    assert_eq!(parse(&many(REQUIREMENTS_MAX + 1), &[]), Err(PipError::TooMany));
    let long = format!("six{}", " ".repeat(TEXT_BYTES_MAX));
    assert!(matches!(parse(&long, &[]), Err(PipError::TooLong { .. })));
    let long = format!("six{}; os_name == 'x'", ">=1,".repeat(LINE_BYTES_MAX / 4));
    assert!(matches!(parse(&long, &[]), Err(PipError::LongLine { line: 1, .. })));
    let name = "x".repeat(NAME_BYTES_MAX + 1);
    assert!(parse(&name, &[]).is_err() && parse(&name[1..], &[]).is_ok());
}
