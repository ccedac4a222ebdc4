"""Something that stands in place of a model's forward for a while, and leaves no trace afterwards (TIER-3, CLOSE-3)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import FrameType, MethodType
from typing import Any, TypeAlias

from torch import nn

Forward: TypeAlias = Callable[..., Any]

Around: TypeAlias = Callable[[Forward, tuple[Any, ...], Mapping[str, Any]], Any]
"""Called with the plain forward and the arguments of one call; returns what the call gives."""

_NAME = "forward"


class ForwardWrap:
    """Puts itself before the forward of one model.

    It lives in the instance's own dictionary, so class, hooks and every other module stay as they are, and after
    :meth:`remove` ``model.forward`` is the very bound method that it was.

    Args:
        model: The model; not a scripted one.
        around: Called in place of the forward.
    """

    def __init__(self, model: nn.Module, around: Around) -> None:
        self._model = model
        self._around = around
        self._stand_in: _StandIn | None = None

    @property
    def installed(self) -> bool:
        """Whether calls of the model come here."""
        return self._stand_in is not None

    def install(self) -> None:
        """Take the place of the forward; a second time does nothing."""
        if self._stand_in is None:
            self._stand_in = _StandIn(self._model, self._around)
            self._model.__dict__[_NAME] = self._stand_in

    def remove(self) -> None:
        """Give the place back. Whatever was put over it meanwhile stays, and runs the plain forward below itself."""
        stand_in, self._stand_in = self._stand_in, None
        if stand_in is None:
            return
        stand_in.around = None
        place = self._model.__dict__
        while isinstance(place.get(_NAME), _StandIn) and place[_NAME].around is None:
            below = place[_NAME].below
            if below is None:
                del place[_NAME]
            else:
                place[_NAME] = below


class _StandIn:
    """What lies in the model's dictionary. In a copied or pickled model it is the plain forward of that model.

    Attributes:
        around: None when it was removed while something lay over it.
        below: What the dictionary held before, or None when the forward came from the class.
    """

    def __init__(self, model: nn.Module, around: Around) -> None:
        self._model = model
        self._plain: Forward = model.forward
        self.around: Around | None = around
        self.below: Forward | None = model.__dict__.get(_NAME)
        functools.update_wrapper(self, self._plain, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.around is None:
            return self._plain(*args, **kwargs)
        return self.around(self._plain, args, kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Forward:
        copied = memo.get(id(self._model), self._model)
        if self.below is not None and not isinstance(self.below, _StandIn):
            from copy import deepcopy

            return deepcopy(self.below, memo)
        return MethodType(type(self._model).forward, copied)

    def __reduce__(self) -> tuple[Any, ...]:
        # While the model is loaded its own forward is still that of its class; no code of ours is needed for it.
        return (getattr, (self._model, _NAME))


STAND_IN_CALL = _StandIn.__call__.__code__
"""What runs whenever something that stands in a forward's place is called."""


def is_stand_in_of(frame: FrameType, model: nn.Module) -> bool:
    """Return whether a frame of :data:`STAND_IN_CALL` is that of what stands in the forward's place of ``model``."""
    return frame.f_locals["self"]._model is model
