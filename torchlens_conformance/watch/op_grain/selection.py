"""What a caller writes to choose operations and to split what they give (TIER-3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ...protocol.refusals import Refusal, short_repr

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class FunctionSelector:
    """Selects every operation of one function; made by :func:`func`. Clause: TIER-3."""

    name: str


@dataclass(frozen=True, slots=True)
class HeadSplit:
    """Splits one axis into equal consecutive parts; made by :func:`split_heads`. Clause: TIER-3."""

    heads: int
    dim: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parts: ``head_0`` and so on."""
        return tuple(f"head_{index}" for index in range(self.heads))

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a tensor of this shape can be split."""
        return -len(shape) <= self.dim < len(shape) and shape[self.dim] > 0 and shape[self.dim] % self.heads == 0

    def parts(self, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, view) for every part."""
        yield from zip(self.names, tensor.chunk(self.heads, dim=self.dim))


FacetKey: TypeAlias = "str | FunctionSelector"
"""A label of an operation, or a function, which stands for all of its selected operations."""


def func(name: str) -> FunctionSelector:
    """Select the operations of one function, for ``select=`` and as a key of ``facets=``. Experimental.

    Args:
        name: The function as a user writes it: ``softmax``, ``linear``, ``add_``.

    Raises ``watch_selector_invalid`` for anything but a name. Clause: TIER-3.
    """
    if not isinstance(name, str) or not name.isidentifier():
        refuse_selector(name, 'Give the name of a function of torch, such as func("softmax").')
    return FunctionSelector(name)


def split_heads(heads: int, *, dim: int = 1) -> HeadSplit:
    """Split an axis into ``heads`` equal parts, each of which gets a series ``<op label>/head_<i>``. Experimental.

    Args:
        heads: How many parts, from 1.
        dim: The axis; its size must be a multiple of ``heads``. Attention weights are (batch, heads, query, key).

    Raises ``watch_facet_shape_invalid``. Clause: TIER-3.
    """
    if type(heads) is not int or heads < 1 or type(dim) is not int:
        raise Refusal(
            "watch_facet_shape_invalid",
            "A split needs a number of heads from 1 and an axis.",
            remedy="Give integers, for example split_heads(12, dim=1).",
            heads=short_repr(heads),
            dim=short_repr(dim),
        )
    return HeadSplit(heads, dim)


@dataclass(frozen=True, slots=True)
class OperationChoice:
    """What ``select=`` and ``facets=`` say at op grain.

    Attributes:
        functions: Functions whose operations are taken.
        facets: How operations are split, by label or function.
    """

    functions: tuple[FunctionSelector, ...]
    facets: Mapping[FacetKey, HeadSplit]


def without_functions(select: object) -> tuple[object, tuple[FunctionSelector, ...]]:
    """Return what is left of ``select=`` without the function selectors, and these."""
    if isinstance(select, FunctionSelector):
        return None, (select,)
    if isinstance(select, str) or not isinstance(select, Iterable):
        return select, ()
    given = list(select)
    functions = tuple(dict.fromkeys(each for each in given if isinstance(each, FunctionSelector)))
    rest = [each for each in given if not isinstance(each, FunctionSelector)]
    return (rest or None) if functions else given, functions


def require_facets(facets: object) -> dict[FacetKey, HeadSplit]:
    """Return the facets by label or function, or refuse ``watch_settings_invalid``. Clause: TIER-3."""
    if facets is None:
        return {}
    if not isinstance(facets, Mapping) or not all(
        isinstance(key, (str, FunctionSelector)) and isinstance(split, HeadSplit) for key, split in facets.items()
    ):
        raise Refusal(
            "watch_settings_invalid",
            "facets must map labels of operations to splits.",
            remedy='Give for example facets={"softmax_1_8": split_heads(12, dim=1)}, or func("softmax") as the key.',
            setting="facets",
            value=short_repr(facets),
        )
    return dict(facets)


def refuse_selector(given: object, remedy: str) -> NoReturn:
    """Refuse ``watch_selector_invalid``."""
    raise Refusal(
        "watch_selector_invalid",
        "This selects nothing here.",
        remedy=remedy,
        select=short_repr(given),
    )
