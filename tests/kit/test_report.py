"""The report: canonical, digested, valid, and readable in every form."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.kit.report_examples import FINDING, PROFILE, report, with_facts
from torchlens_conformance.kit.model import COULD_NOT_RUN, FAILED, NOT_DECLARED, VERDICTS
from torchlens_conformance.kit.report import (
    Steadied,
    canonical,
    document_digest,
    result_from_document,
    result_row,
    write_report,
)
from torchlens_conformance.kit.verify import load_report, problems_of
from torchlens_conformance.protocol import Refusal


def altered(change: Any, *, redigest: bool = False) -> list[str]:
    """Return the problems of a report that ``change`` altered."""
    document = json.loads(canonical(report(values_text=FAILED).document))
    change(document)
    if redigest:
        document["digest"] = document_digest(document)
    return problems_of(document)


def test_counts_come_first() -> None:
    """The first thing in the file is what was executed and expected (PROT-1)."""
    text = canonical(report().document)
    assert text.startswith('{\n "checks": {')
    assert text.index('"executed"') < text.index('"controls"')


def test_a_report_verifies() -> None:
    """What the kit writes matches its schema, digest, counts and verdict (PROT-1)."""
    for made in (report(), report(values_text=FAILED, values_image=NOT_DECLARED), report(values_text=COULD_NOT_RUN)):
        assert problems_of(made.document, canonical(made.document)) == []


def test_two_runs_differ_in_environment_only() -> None:
    """Outside ``environment`` two runs of one subject give the same document, digest apart (PROT-1)."""
    first, second = (dict(report(values_text=FAILED).document) for _ in range(2))
    for document in (first, second):
        document.pop("environment")
        document.pop("digest")
    assert canonical(first) == canonical(second)


@pytest.mark.parametrize(
    ("change", "redigest", "word"),
    [
        (lambda document: document["environment"].update(host="elsewhere"), False, "digest"),
        (lambda document: document.update(verdict="conformant"), False, "digest"),
        (lambda document: document.update(verdict="conformant"), True, "follows"),
        (lambda document: document.update(verdict="splendid"), True, "schema"),
        (lambda document: document["checks"].update(failed=0), True, "counts"),
        (lambda document: document["results"].pop(), True, "counts"),
        (lambda document: document["results"].append(document["results"][0]), True, "checks are not"),
        (lambda document: document["results"][0].update(level="should"), True, "level"),
        (lambda document: document["profile"].update(digest="sha256:" + "0" * 64), True, "digest of its profile"),
        (lambda document: document["profile"].update(id="1999.1"), True, "not known"),
        (lambda document: document.pop("controls"), True, "schema"),
        (lambda document: document.update(note="x"), True, "schema"),
    ],
)
def test_altered_reports_do_not_verify(change: Any, redigest: bool, word: str) -> None:
    """An altered report is found out, also when its digest was made anew (PROT-1)."""
    problems = altered(change, redigest=redigest)
    assert problems
    assert word in " ".join(problems)


def test_text_that_was_reformatted(tmp_path: Path) -> None:
    """A file that is not the canonical text of its content was altered (PROT-1)."""
    document = report().document
    path = tmp_path / "report.json"
    path.write_text(canonical(document))
    assert load_report(path)["verdict"] == "conformant"
    path.write_text(json.dumps(document))
    with pytest.raises(Refusal, match="canonical") as refused:
        load_report(path)
    assert refused.value.code == "kit_report_invalid"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"a": NaN}', b"[" * 100_000])
def test_files_that_are_no_report(tmp_path: Path, content: bytes) -> None:
    """Whatever else is in the file, the refusal names it (PROT-9)."""
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(Refusal) as refused:
        load_report(path)
    assert refused.value.code == "kit_report_invalid"


def test_rows_come_back() -> None:
    """A result survives the way into the document and out of it (PROT-1)."""
    result = report(values_text=FAILED).results[PROFILE_TEXT]
    assert result_from_document(result_row(result, "must", Steadied())) == result


PROFILE_TEXT = list(PROFILE.levels).index("values.text")


def test_steadied() -> None:
    """Nonces, addresses of objects and folders go; the bits of a number stay (PROT-1)."""
    steady = Steadied({"n123": "NONCE"})
    text = "tag n123/a: <X object at 0x7f00deadbeef> in /tmp/conformance-ab12cd34/place, 0.1 (bits 0x3fb999999999999a)"
    assert steady(text) == (
        "tag NONCE/a: <X object at 0x...> in /tmp/conformance-.../place, 0.1 (bits 0x3fb999999999999a)"
    )
    assert steady("\ud800") == "\\ud800"
    assert len(steady("x" * 10_000)) < 2_000


class _Page(HTMLParser):
    """Collects tags and checks that they nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page() -> None:
    """The page escapes what the subject says, nests right, and loads nothing from anywhere (PROT-1)."""
    document = report(with_facts(version="<script>alert(1)</script>"), values_text=FAILED).document
    from torchlens_conformance.kit.html import report_page

    page = report_page(document)
    parser = _Page()
    parser.feed(page)
    assert parser.open == []
    assert not parser.seen & {"script", "b2", "img", "link", "iframe"}
    assert parser.links == []
    assert "url(" not in page
    assert "My &lt;sink&gt;" in page
    assert "&lt;b&gt;0.10000000149" in page
    assert "torchlens-conformance certify mysinks:SUBJECT --check values.text" in page
    assert "the store has no images" in page


def test_junit() -> None:
    """JUnit XML has a case a check, and the words stay apart (PROT-1)."""
    from torchlens_conformance.kit.junit import junit_xml

    made = report(values_text=FAILED, values_image=NOT_DECLARED, values_graph=COULD_NOT_RUN)
    suite = ElementTree.fromstring(junit_xml(made.document).encode())[0]
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds["values.text"] == ["failure"]
    assert kinds["values.image"] == ["skipped"]
    assert kinds["values.graph"] == ["error"]
    assert kinds["values.scalar"] == kinds["controls"] == []
    assert kinds["verdict"] == ["failure"]
    assert suite.get("tests") == str(len(PROFILE.levels) + 2)


def test_badge() -> None:
    """The badge has the endpoint's four fields, and a colour for every verdict (PROT-1)."""
    from torchlens_conformance.kit.badge import COLOURS, badge

    assert set(COLOURS) == set(VERDICTS)
    made = badge(report(values_text=FAILED).document)
    assert made["schemaVersion"] == 1
    assert made["message"].startswith("nonconformant (")
    assert made["color"] == "red"


def test_files(tmp_path: Path) -> None:
    """All four files are written, whole, into a folder that is made (PROT-1)."""
    paths = write_report(report().document, tmp_path / "deep" / "report")
    assert sorted(paths) == ["badge.json", "junit.xml", "report.html", "report.json"]
    assert sorted(path.name for path in (tmp_path / "deep" / "report").iterdir()) == sorted(paths)
    assert load_report(paths["report.json"])["subject"]["name"] == "My <sink>"


def test_finding_shows_values() -> None:
    """A finding keeps what was expected and what was seen (PROT-1)."""
    row = next(row for row in report(values_text=FAILED).document["results"] if row["check"] == "values.text")
    assert row["findings"][0]["expected"] == FINDING.expected
    assert row["findings_in_all"] == 1
