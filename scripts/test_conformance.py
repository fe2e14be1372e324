"""Tests of the parser of docs/conformance.md: what it accepts, and what it refuses."""

import importlib.machinery
import importlib.util
import pathlib
import sys

import pytest


def load():
    """Loads the script as a module. Its file has no extension, because people run it."""
    path = pathlib.Path(__file__).with_name("conformance")
    loader = importlib.machinery.SourceFileLoader("conformance", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("conformance", loader))
    sys.modules["conformance"] = module
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


conformance = load()

DOCUMENT = """\
Shown: 2 of 4.

## First

| id | promise | shown by |
|---|---|---|
| S0:11a | It grows | `muster-core::scenarios it_grows`, `clients/test_x.py::test_y` |
| S0:11b | It shrinks | |

## Second

| id | promise | shown by |
|---|---|---|
| S0:17+S1:117 | It is shared | not yet: one of two parts |
| S1:5 | It stays | `muster-cli::bin/muster place::tests::it_stays` |
"""


def row(cell, id_="S0:1"):
    return f"| {id_} | A promise | {cell} |\n"


def test_rows_have_their_section_and_their_tests():
    rows = conformance.parse(DOCUMENT)
    assert [row.id for row in rows] == ["S0:11a", "S0:11b", "S0:17+S1:117", "S1:5"]
    assert [row.section for row in rows] == ["First", "First", "Second", "Second"]
    assert rows[0].tests == ("muster-core::scenarios it_grows", "clients/test_x.py::test_y")
    assert (rows[1].tests, rows[2].tests) == ((), ())
    assert rows[3].tests == ("muster-cli::bin/muster place::tests::it_stays",)
    assert rows[2].refs == ("S0:17", "S1:117")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (row("`no_binary`"), "no_binary"),
        (row("`tests/test_x.py::test_y`"), "tests/test_x.py::test_y"),
        (row("`muster-core it_grows` mostly"), "mostly"),
        (row("soon"), "soon"),
        (row("not yet, but `muster-core it_grows`"), "keep one"),
        (row("", id_="S0"), "'S0'"),
        (row("", id_="S0:1") * 2, "2 rows"),
        ("| S0:1 |  | |\n", "promises nothing"),
        ("| S0:1 | A promise |\n", "2 columns"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, word):
    with pytest.raises(conformance.Unreadable, match=word):
        conformance.parse(text)


def test_the_count_must_agree():
    rows = conformance.parse(DOCUMENT)
    assert conformance.miscount(DOCUMENT, rows) is None
    lost = DOCUMENT.replace("`muster-cli::bin/muster place::tests::it_stays`", "not yet")
    assert "show 1 of 4" in conformance.miscount(lost, conformance.parse(lost))
    uncounted = DOCUMENT.replace("Shown: 2 of 4.", "")
    assert "there are 0" in conformance.miscount(uncounted, rows)


def test_a_row_of_the_source_list_is_missed():
    source = "| ref | feature | what |\n|---|---|---|\n"
    source += "| S0:11 | a | b |\n| S0:11 | c | d |\n| S0:17, S1:117 | e | f |\n| S1:5 | g | h |\n"
    rows = conformance.parse(DOCUMENT)
    assert not conformance.forgotten(source, rows)
    assert conformance.forgotten(source, rows[1:]) == {("S0:11",): 1}
    assert conformance.forgotten(source, rows[:2] + rows[3:]) == {("S0:17", "S1:117"): 1}


def test_the_check_finds_what_is_missing(tmp_path, monkeypatch):
    rows = conformance.parse(DOCUMENT)
    source = tmp_path / "list.md"
    monkeypatch.setattr(conformance, "SOURCE", source)
    monkeypatch.setattr(conformance, "existing", lambda rows: set(conformance.named_tests(rows)))
    assert list(conformance.problems_with(DOCUMENT, rows)) == [], "the source list may be absent"
    source.write_text("| S3:9 | a | b |\n")
    assert "S3:9" in "".join(conformance.problems_with(DOCUMENT, rows))
    source.unlink()
    monkeypatch.setattr(conformance, "existing", lambda rows: {"clients/test_x.py::test_y"})
    problems = list(conformance.problems_with(DOCUMENT, rows))
    assert [problem.split()[0] for problem in problems] == ["S0:11a", "S1:5"]


REPORT = """\
<testsuites><testsuite name="muster-core::scenarios">
<testcase name="good"/>
<testcase name="bad"><failure/></testcase>
<testcase name="skipped"><skipped/></testcase>
<testcase name="cases[one]"/><testcase name="cases[two]"><error/></testcase>
</testsuite></testsuites>
"""


def test_a_test_passes_only_if_it_ran_and_all_its_cases_passed(tmp_path):
    report = tmp_path / "junit.xml"

    def name(_suite, case):
        return conformance.without_case(case.get("name"))

    with pytest.raises(SystemExit, match="did not run"):
        conformance.results(report, name)
    report.write_text(REPORT)
    passed = {"good": True, "bad": False, "skipped": False, "cases": False}
    assert conformance.results(report, name) == passed


def test_a_row_is_shown_only_if_all_of_its_tests_passed():
    rows = conformance.parse(DOCUMENT)
    outcomes = dict.fromkeys(conformance.named_tests(rows), "passed")
    shown, not_yet = conformance.SHOWN, conformance.NOT_YET
    assert [conformance.state(row, outcomes) for row in rows] == [shown, not_yet, not_yet, shown]
    for result in ("failed", "missing"):
        outcomes["clients/test_x.py::test_y"] = result
        assert conformance.state(rows[0], outcomes) == conformance.BROKEN
