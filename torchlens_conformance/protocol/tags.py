"""The tag grammar: how series are named and what a safe name is (TAG-1..5)."""

from __future__ import annotations

from .refusals import Refusal

FAMILIES = ("parameters", "gradients", "activations", "activation_grads", "updates", "nonfinite")
"""The families that data series belong to (TAG-1)."""

RESERVED_ROOT = "torchlens"
"""The root of everything that is not data: ``run/<key>``, ``meta/<kind>``, ``check/<name>`` (TAG-1)."""

STATISTICS = ("mean", "std", "norm", "min", "max", "count", "zero_fraction")
"""The scalar statistics of a site, in the order they are emitted (STAT-1)."""

NONFINITE_KINDS = ("nan", "posinf", "neginf")
"""The three sorts of non-finite values (STAT-2, TAG-5)."""

CHECK_OUTCOMES = {"pass": 0, "warn": 1, "fail": 2}
"""The value of a ``torchlens/check/<name>`` series by outcome (TAG-1)."""

UNSAFE_CHARACTERS = frozenset("?#%\"'\\`|<>")
"""Printable ASCII characters that no safe tag holds (TAG-3)."""


def unsafe_reason(tag: str) -> str | None:
    """Say why ``tag`` is unsafe, or None when it is safe.

    Safe is printable ASCII without :data:`UNSAFE_CHARACTERS` and without an empty, ``.`` or ``..`` component.

    Clause: TAG-3.
    """
    for character in tag:
        if not " " <= character <= "~":
            return f"holds the character {character!r}, which is not printable ASCII"
        if character in UNSAFE_CHARACTERS:
            return f"holds the character {character!r}"
    for component in tag.split("/"):
        if component in ("", ".", ".."):
            return f"has the component {component!r}"
    return None


def require_safe_tag(tag: str, *, site: str | None = None) -> str:
    """Return ``tag`` when it is safe; refuse ``tracker_tag_unsafe`` and name the site otherwise.

    A tag is never rewritten. Clause: TAG-3.
    """
    reason = unsafe_reason(tag)
    if reason is None:
        return tag
    raise Refusal(
        "tracker_tag_unsafe",
        f"The tag {tag!r} {reason}.",
        remedy="Rename the module or parameter, or leave it out by select=.",
        tag=tag,
        site=site if site is not None else tag,
        reason=reason,
    )


def require_component(value: str, *, what: str) -> str:
    """Return ``value`` when it is one safe, non-empty component; refuse ``tracker_name_invalid`` otherwise.

    Clause: TAG-2.
    """
    if isinstance(value, str) and "/" not in value and unsafe_reason(value) is None:
        return value
    raise Refusal(
        "tracker_name_invalid",
        f"{what}={value!r} is not one safe, non-empty component.",
        remedy="Use printable ASCII without '/' and without ? # % \" ' \\ ` | < >.",
        **{what: value},
    )


def scalar_tag(family: str, statistic: str, leaf: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return ``[namespace/]family/[name/]statistic/leaf``. Raises ``tracker_name_invalid``. Clause: TAG-1, TAG-2."""
    return _join(family, (statistic, leaf), name, namespace)


def histogram_tag(family: str, leaf: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return ``[namespace/]family/[name/]hist/leaf``. Raises ``tracker_name_invalid``. Clause: TAG-1, TAG-2."""
    return _join(family, ("hist", leaf), name, namespace)


def overflow_tag(family: str, leaf: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return the series of values beyond the grid, ``family/[name/]overflow/leaf``. Clause: GRID-2, TAG-2."""
    return _join(family, ("overflow", leaf), name, namespace)


def nonfinite_tag(family: str, kind: str, leaf: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return ``nonfinite/[name/]<family>_<kind>/leaf``; ``kind`` is nan, posinf or neginf. Clause: TAG-2, TAG-5."""
    return _join("nonfinite", (f"{family}_{kind}", leaf), name, namespace)


def run_tag(key: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return ``torchlens/run/[name/]key``, a run-health series. Clause: TAG-1, TAG-2."""
    return _join(f"{RESERVED_ROOT}/run", (key,), name, namespace)


def meta_tag(kind: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return ``torchlens/meta/[name/]kind``, a text about the run. Clause: TAG-1, TAG-2."""
    return _join(f"{RESERVED_ROOT}/meta", (kind,), name, namespace)


def check_tag(check: str, *, name: str | None = None, namespace: str | None = None) -> str:
    """Return ``torchlens/check/[name/]check``, whose value is one of :data:`CHECK_OUTCOMES`. Clause: TAG-1, TAG-2."""
    return _join(f"{RESERVED_ROOT}/check", (check,), name, namespace)


def _join(root: str, rest: tuple[str, ...], name: str | None, namespace: str | None) -> str:
    parts = [root, *rest]
    if name is not None:
        parts.insert(1, require_component(name, what="name"))
    if namespace is not None:
        parts.insert(0, require_component(namespace, what="namespace"))
    return "/".join(parts)
