"""A report as JUnit XML, for the test pages of continuous integration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

from .model import COULD_NOT_RUN, FAILED, PASSED

# XML 1.0 has no form at all for these, escaped or not.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(document: Mapping[str, Any]) -> str:
    """Return one test suite: a case a check, one for all controls and one for the verdict.

    Failed checks are failures, also the known deviations' (named as such, so a page never shows them as passed); what
    could not run is an error; not applicable and not declared are skipped, with the word that holds.
    """
    name = f"{document['subject']['name']} {document['profile']['id']}"
    cases = [_controls_case(document), *map(_case, document["results"]), _verdict_case(document)]
    suite = ElementTree.Element(
        "testsuite",
        name=_text(name),
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors=str(sum(case.find("error") is not None for case in cases)),
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        timestamp=document["environment"]["date"].removesuffix("Z"),
        time=_seconds(document["environment"]["milliseconds"]),
    )
    suite.extend(cases)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(row: Mapping[str, Any]) -> ElementTree.Element:
    case = _new_case(row["check"])
    if row["outcome"] == FAILED:
        title = "failed" if row["deviation"] is None else f"known {row['deviation']}"
        body = "\n\n".join(
            f"{finding['message']}\nexpected: {finding['expected']}\nseen: {finding['seen']}\n"
            f"where: {finding['where']}\nloss: {finding['loss']}"
            for finding in row["findings"]
        )
        _child(case, "failure", title, body)
    elif row["outcome"] == COULD_NOT_RUN:
        _child(case, "error", f"could not run: {row['reason']}")
    elif row["outcome"] != PASSED:
        _child(case, "skipped", f"{row['outcome']}: {row['reason']}".rstrip(": "))
    return case


def _controls_case(document: Mapping[str, Any]) -> ElementTree.Element:
    case = _new_case("controls")
    broken = [control for control in document["controls"] if not control["ok"]]
    if broken or not document["controls"]:
        lines = [f"{row['control']}: expected {row['expected']}, seen {row['seen']}" for row in broken]
        _child(case, "error", "a control did not hold" if broken else "no control ran", "\n".join(lines))
    return case


def _verdict_case(document: Mapping[str, Any]) -> ElementTree.Element:
    case = _new_case("verdict")
    if document["verdict"] != "conformant":
        _child(case, "failure", f"{document['verdict']}: {document['why']}")
    return case


def _new_case(name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname="torchlens_conformance", name=name, time="0.000")


def _child(case: ElementTree.Element, kind: str, message: str, body: str = "") -> None:
    child = ElementTree.SubElement(case, kind, message=_text(message))
    child.text = _text(body) or None


def _text(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
