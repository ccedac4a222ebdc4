"""What can be watched in a model: parameters and modules by name, and selectors over them (TAG-6, ATTACH-5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ..protocol.refusals import Refusal, short_repr
from .wrappers import clean_name

ROOT_LEAF = "_root"
"""The leaf of the root module's own output (TAG-2)."""

CENSUS = 40
"""Names that a refused selector lists."""


@dataclass(frozen=True, slots=True)
class ParameterSite:
    """One watched parameter.

    Attributes:
        leaf: Its name without wrappers.
        path: Its name as ``named_parameters()`` gives it.
        aliases: Further (leaf, path) pairs of the same tensor.
        shape: Its shape at attach; empty for one that is created lazily.
        dtype: Its dtype, as text.
        elements: Number of elements at attach.
        trainable: Whether it required gradients at attach.
        lazy: Whether it had no values at attach.
    """

    leaf: str
    path: str
    aliases: tuple[tuple[str, str], ...]
    shape: tuple[int, ...]
    dtype: str
    elements: int
    trainable: bool
    lazy: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that selects it, with and without wrappers."""
        return (self.leaf, self.path, *(name for alias in self.aliases for name in alias))


@dataclass(frozen=True, slots=True)
class ModuleSite:
    """One watched module; ``leaf`` is its name without wrappers, ``path`` the raw one."""

    leaf: str
    path: str

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that selects it."""
        return (self.leaf, self.path) if self.path else (self.leaf,)


def parameter_sites(model: nn.Module) -> list[ParameterSite]:
    """Return the parameters of ``model``, tied ones once under their first name. Clause: TAG-6."""
    found: dict[int, ParameterSite] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        leaf = clean_name(model, path)
        known = found.get(id(parameter))
        if known is not None:
            found[id(parameter)] = replace(known, aliases=(*known.aliases, (leaf, path)))
            continue
        lazy = is_lazy(parameter)
        found[id(parameter)] = ParameterSite(
            leaf,
            path,
            (),
            () if lazy else tuple(parameter.shape),
            str(parameter.dtype).removeprefix("torch."),
            0 if lazy else parameter.numel(),
            parameter.requires_grad,
            lazy,
        )
    return list(found.values())


def module_sites(model: nn.Module) -> list[ModuleSite]:
    """Return the modules of ``model``, wrappers left out and the root as ``_root``. Clause: TAG-2, TAG-6."""
    found: dict[str, ModuleSite] = {}
    for path, _ in model.named_modules():
        leaf = clean_name(model, path) or ROOT_LEAF
        # A wrapper and what it wraps have one name; the inner one, which comes later, runs in every case.
        found[leaf] = ModuleSite(leaf, path)
    return list(found.values())


def require_selectors(select: object) -> tuple[str, ...] | None:
    """Return the selectors as a tuple of prefixes, or refuse ``watch_selector_invalid``; None selects everything."""
    if select is None:
        return None
    given = [select] if isinstance(select, str) else list(select) if isinstance(select, Iterable) else [None]
    if any(not isinstance(prefix, str) or not prefix for prefix in given):
        raise Refusal(
            "watch_selector_invalid",
            "A selector is a name or a prefix of names.",
            remedy='Give texts such as select=("encoder.0", "head").',
            select=short_repr(select),
        )
    return tuple(dict.fromkeys(given))


def matches(prefix: str, names: Iterable[str]) -> bool:
    """Return whether ``prefix`` takes one of ``names``, by whole components: ``h.1`` does not take ``h.11``."""
    return any(name == prefix or name.startswith(f"{prefix}.") for name in names)


def select_sites(
    selectors: Sequence[str] | None,
    parameters: Sequence[ParameterSite] | None,
    modules: Sequence[ModuleSite] | None,
) -> tuple[list[ParameterSite], list[ModuleSite]]:
    """Return the sites that the selectors take; each selector must take one of either kind.

    Args:
        selectors: Prefixes, or None for everything.
        parameters: What exists, or None when no signal reads parameters.
        modules: The same for modules.

    Raises ``watch_selector_matched_no_sites`` with the census of what exists; also when a kind that was asked for has
    no site at all. Clause: ATTACH-5, TAG-6.
    """
    existing: list[ParameterSite | ModuleSite] = [*(parameters or ()), *(modules or ())]
    for prefix in selectors or ():
        if not any(matches(prefix, site.names) for site in existing):
            raise _no_sites([prefix], existing)
    kept = [site for site in parameters or () if _taken(selectors, site)]
    kept_modules = [site for site in modules or () if _taken(selectors, site)]
    if parameters is not None and not kept:
        raise _no_sites(selectors or (), parameters)
    if modules is not None and not kept_modules:
        raise _no_sites(selectors or (), modules)
    return kept, kept_modules


def _taken(selectors: Sequence[str] | None, site: ParameterSite | ModuleSite) -> bool:
    return selectors is None or any(matches(prefix, site.names) for prefix in selectors)


def _no_sites(selectors: Sequence[str], existing: Sequence[ParameterSite | ModuleSite]) -> Refusal:
    return Refusal(
        "watch_selector_matched_no_sites",
        "The selectors name nothing that the signals could be watched at.",
        remedy="Use whole dotted components of the names in the census.",
        selectors=list(selectors),
        census=[site.leaf for site in existing[:CENSUS]],
        exist=len(existing),
    )


def current_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return every parameter by its raw name, as the model holds them now."""
    return dict(model.named_parameters(remove_duplicate=False))


def live_sites(
    sites: Sequence[ParameterSite], model: nn.Module
) -> Iterator[tuple[ParameterSite, torch.Tensor | None, str | None]]:
    """Yield every site with its present parameter, or None and the name of the skip that says why not.

    A parameter that was tied to an earlier site after attach counts once; an alias that was untied is named, since its
    series has no name. Clause: TAG-6.
    """
    current = current_parameters(model)
    taken: set[int] = set()
    for site in sites:
        parameter = current.get(site.path)
        if parameter is None:
            yield site, None, "parameter_missing"
        elif id(parameter) in taken:
            yield site, None, "tied_after_attach"
        elif is_lazy(parameter):
            yield site, None, "parameter_uninitialized"
        else:
            taken.add(id(parameter))
            untied = any(current.get(path) is not parameter for _, path in site.aliases)
            yield site, parameter, "untied_after_attach" if untied else None
