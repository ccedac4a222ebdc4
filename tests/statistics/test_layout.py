"""Any shape and strides are read right and without copies of the whole; what holds no data is refused."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import pytest

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, Refusal
from torchlens_conformance.statistics import compute, compute_many

from .oracle import BACKENDS, DTYPES, assert_same_sums, exact_fields, torch


def base(dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of shape (6, 8, 10) with all sorts of values."""
    values = torch.arange(480, dtype=torch.float64).sub_(200).div_(7).reshape(6, 8, 10)
    values[0, 0, :4] = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0])
    return values.to(dtype)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "whole": lambda t: t,
    "scalar": lambda t: t[1, 2, 3],
    "empty": lambda t: t[:0],
    "transposed": lambda t: t.permute(2, 0, 1),
    "slice": lambda t: t[1:3],
    "columns": lambda t: t[:, 2:5, 1:],
    "every other": lambda t: t[::2, ::3, ::2],
    "expanded": lambda t: t[:, :1].expand(6, 4, 10),
    "expanded scalar": lambda t: t[0, 0, 5].expand(3, 700),
    "expanded with gaps": lambda t: t[:, 0, ::2].unsqueeze(1).expand(6, 3, 5),
    "expanded to nothing": lambda t: t[:, :1].expand(6, 0, 10) if t.shape[1] == 0 else t[:, :0],
    "overlapping": lambda t: t.flatten().unfold(0, 5, 2),
    "diagonal": lambda t: t[0].diagonal(),
    "channels last": lambda t: t.unsqueeze(0).contiguous(memory_format=torch.channels_last),
    "one row of a transposed": lambda t: t.permute(2, 1, 0)[:1],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_views_have_the_statistics_of_their_copies(name: str, dtype: torch.dtype, backend: str) -> None:
    """Order and strides do not matter: a view counts exactly what its contiguous copy counts (STAT-1)."""
    view = VIEWS[name](base(dtype))
    got, wanted = (
        compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend)
        for tensor in (view, view.clone(memory_format=torch.contiguous_format))
    )
    assert exact_fields(got) == exact_fields(wanted)
    assert_same_sums(got, wanted)


@pytest.mark.parametrize("name", VIEWS)
def test_copies_are_small(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor with gaps is copied in pieces, which together are the whole (STAT-1)."""
    from torchlens_conformance.statistics import layout

    view = VIEWS[name](base(torch.float32))
    for limit in (1, 7, 100):
        parts = list(layout.pieces(view, limit=limit))
        assert all(part.numel() <= limit and part.is_contiguous() for part in parts)
        together = torch.cat([part.flatten() for part in parts])
        assert together.view(torch.int32).sort()[0].equal(view.flatten().view(torch.int32).sort()[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_expanded_tensor_costs_what_it_stores(backend: str) -> None:
    """A number expanded to 2**50 elements is read once and counted as often as it stands there (STAT-1)."""
    got = compute(torch.tensor(1.5).expand(2**20, 2**30), descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    assert (got.elements, got.finite, got.mean, got.std) == (2**50, 2**50, 1.5, 0.0)
    assert got.counts is not None and sum(got.counts) == max(got.counts) == 2**50


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_negated_view_is_read_with_its_sign(backend: str) -> None:
    """The sign that torch keeps beside the bits of a conjugate's imaginary part is applied (STAT-1)."""
    for view in (torch.tensor([1 + 2j, 3 - 4j]).conj().imag, torch._neg_view(torch.tensor([2.0, -4.0]))):
        assert view.is_neg()
        got = compute(view, backend=backend)
        assert (got.minimum, got.maximum, got.total) == (-2.0, 4.0, 2.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_tensors_at_once(backend: str) -> None:
    """Tensors of mixed dtypes and layouts give, in order, what each gives alone (STAT-1)."""
    tensors = [view(base(dtype)) for view in VIEWS.values() for dtype in DTYPES]
    together = compute_many(tensors, descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    assert together == [compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend) for tensor in tensors]
    assert compute_many([], backend=backend) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nothing_outside_is_touched(dtype: torch.dtype, backend: str) -> None:
    """The tensor, its graph, its version and every random number generator stay as they were (STAT-1)."""
    leaf = base(dtype).requires_grad_()
    tensor = leaf * 1
    before = tensor.detach().clone()
    states = (torch.get_rng_state(), random.getstate(), tensor._version, tensor.grad_fn)
    got = compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    words = {8: torch.int64, 4: torch.int32, 2: torch.int16}[tensor.element_size()]
    assert before.view(words).equal(tensor.detach().view(words))
    assert torch.get_rng_state().equal(states[0])
    assert (random.getstate(), tensor._version, tensor.grad_fn) == states[1:]
    assert leaf.grad is None and tensor.requires_grad
    assert exact_fields(got) == exact_fields(compute(before, descriptor=DEFAULT_DESCRIPTOR, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_inside_autocast_and_inference_mode(backend: str) -> None:
    """Neither autocast nor inference mode changes a number (STAT-1)."""
    tensor = torch.linspace(-1, 3, 5000, dtype=torch.float64)
    wanted = compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend)
    with torch.autocast("cpu"), torch.inference_mode():
        assert compute(tensor, descriptor=DEFAULT_DESCRIPTOR, backend=backend) == wanted


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_subclass_that_holds_its_data_is_read(backend: str) -> None:
    """Parameters, and subclasses that only add methods, are tensors like others (STAT-1)."""

    class Named(torch.Tensor):
        pass

    values = torch.tensor([1.0, -3.0])
    for tensor in (torch.nn.Parameter(values), values.as_subclass(Named)):
        assert compute(tensor, backend=backend).total == -2.0


def unsupported_dtypes() -> list[torch.Tensor]:
    """Return one tensor of each dtype that has no statistics."""
    names = ("int64", "int8", "uint8", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")
    return [torch.ones(2).to(getattr(torch, name)) for name in names if hasattr(torch, name)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_dtypes_are_refused(backend: str) -> None:
    """Integers, truth values, complex and 8-bit floats refuse ``statistics_dtype_unsupported`` (STAT-1)."""
    for tensor in unsupported_dtypes():
        with pytest.raises(Refusal) as refused:
            compute(tensor, backend=backend)
        assert refused.value.code == "statistics_dtype_unsupported"
        assert refused.value.fields["dtype"] == str(tensor.dtype)


def fake() -> torch.Tensor:
    """Return a tensor that pretends to hold data."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def freed() -> torch.Tensor:
    """Return a tensor whose storage was given back, as sharded training does."""
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


def nested() -> torch.Tensor:
    """Return a nested tensor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def compressed() -> torch.Tensor:
    """Return a sparse tensor of compressed rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.eye(3).to_sparse_csr()


HOLLOW: dict[str, Callable[[], object]] = {
    "meta": lambda: torch.ones(3, device="meta"),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "compressed": compressed,
    "nested": nested,
    "fake": fake,
    "freed": freed,
    "list": lambda: [1.0, 2.0],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", HOLLOW)
def test_what_holds_no_dense_data_is_refused(name: str, backend: str) -> None:
    """Sparse, nested, meta, fake and freed tensors refuse ``statistics_layout_unsupported`` (STAT-1)."""
    with pytest.raises(Refusal) as refused:
        compute(HOLLOW[name](), backend=backend)  # type: ignore[arg-type]
    assert refused.value.code == "statistics_layout_unsupported"


def test_inside_a_transform_is_refused() -> None:
    """A tensor inside ``vmap`` gives no access to its data and is refused, not read as something else (STAT-1)."""
    found: list[str] = []

    def watched(row: torch.Tensor) -> torch.Tensor:
        with pytest.raises(Refusal) as refused:
            compute(row)
        found.append(refused.value.code)
        return row

    torch.func.vmap(watched)(torch.ones(2, 3))
    assert found == ["statistics_layout_unsupported"]
