"""The form for accelerators: exact, without waiting, one transfer, fixed scratch; on the CPU and on fake devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torchlens_conformance.protocol import DEFAULT_DESCRIPTOR, GridDescriptor
from torchlens_conformance.statistics import TensorStatistics, collect, compute, start_many

from .dispatch import Watcher
from .oracle import DTYPES, assert_same_sums, exact_fields, torch

from torch._subclasses import FakeTensorMode  # isort: skip

from torchlens_conformance.statistics import plain, plain_device  # isort: skip
from torchlens_conformance.statistics.layout import densify  # isort: skip
from torchlens_conformance.statistics.moments import finish  # isort: skip

GRIDS = [DEFAULT_DESCRIPTOR, GridDescriptor(lo_exp=-140, hi_exp=3), None]


def on_device(tensors: list[Any], descriptor: GridDescriptor | None) -> list[TensorStatistics]:
    """Return the statistics by the form for accelerators."""
    started = plain_device.start([densify(tensor) for tensor in tensors], descriptor)
    assert started.bytes == sum(8 * batch.packed.numel() for batch in started.batches)
    return [finish(tally, descriptor) for tally in plain_device.fetch([started])[0]]


@pytest.fixture
def fake_devices() -> Iterator[None]:
    """Let tensors of devices exist that this machine does not have; they hold no values."""
    plain.torch_grid.cache_clear()
    with FakeTensorMode():
        yield
    plain.torch_grid.cache_clear()


@pytest.mark.parametrize("descriptor", GRIDS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_numbers(dtype: Any, descriptor: GridDescriptor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone, stacked, in chunks, empty, with gaps, non-finite or too large: as on a CPU (STAT-1, GRID-2)."""
    monkeypatch.setattr(plain_device, "CHUNK", 3000)
    monkeypatch.setattr(plain_device, "ELEMENTS_PER_LANE", 100)
    generator = torch.Generator().manual_seed(7)
    tensors = [torch.randn(size, generator=generator).to(dtype) for size in (10_000, 0, 1, *[700] * 6, 0)]
    tensors[0][[0, 5000, 9999]] = torch.tensor([torch.nan, -torch.inf, -0.0], dtype=dtype)
    tensors += [torch.full((size,), torch.nan, dtype=dtype) for size in (5, 9000)]
    tensors[-1][8999] = 2  # Two chunks have no finite value.
    tensors.append(torch.randn(90, 100, generator=generator).to(dtype)[:, ::2])
    tensors += [torch.full((9000,), sign * torch.finfo(dtype).max, dtype=dtype) for sign in (1, -1)]
    for tensor, got in zip(tensors, on_device(tensors, descriptor), strict=True):
        wanted = compute(tensor, descriptor=descriptor, backend="torch")
        assert exact_fields(got) == exact_fields(wanted)
        assert_same_sums(got, wanted)


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_chunks_are_joined_stably(offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks with means of their own, far from zero, lose nothing when they are joined on the device (STAT-1)."""
    generator = torch.Generator().manual_seed(8)
    tensor = torch.randn(20_000, generator=generator, dtype=torch.float64) + torch.linspace(0, 50, 20_000) + offset
    wanted = compute(tensor, backend="torch")
    monkeypatch.setattr(plain_device, "CHUNK", 999)
    (got,) = on_device([tensor], None)
    assert got.squared_deviation == pytest.approx(wanted.squared_deviation, rel=1e-11)
    assert_same_sums(got, wanted)


def test_bytes_do_not_depend_on_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element or many chunks of them, with gaps or without, send the same (XFER-1)."""
    monkeypatch.setattr(plain_device, "CHUNK", 1000)
    for dtype, rows in ((torch.float32, 1), (torch.float64, 2)):
        sizes = set()
        for tensor in (torch.ones(0), torch.ones(1), torch.ones(12_345), torch.ones(300, 40)[:, ::2]):
            sizes.add(plain_device.start([densify(tensor.to(dtype))], DEFAULT_DESCRIPTOR).bytes)
        assert sizes == {8 * (10 * rows + 513 + 2)}


@pytest.mark.usefixtures("fake_devices")
@pytest.mark.parametrize("descriptor", GRIDS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_transfer_and_no_waiting(dtype: Any, descriptor: GridDescriptor | None) -> None:
    """Nothing asks the device for a value; everything started, by any call, travels in one vector (XFER-1)."""
    shapes: list[tuple[int, ...]] = [(3 * plain_device.CHUNK + 5,), (0,), (), (64, 64), (64, 64), (7, 9)]
    first = [torch.empty(shape, dtype=dtype, device="cuda:0") for shape in shapes]
    second = [torch.empty(30, 40, dtype=dtype, device="cuda:0")]
    constants = plain.torch_grid(descriptor, plain.form_of(dtype), torch.device("cuda:0")) if descriptor else None
    with Watcher() as seen:
        started = [plain_device.start([densify(each) for each in group], descriptor) for group in (first, second)]
        assert seen.transfers == [] and seen.waits == []
        host = plain_device._to_host([batch.packed for part in started for batch in part.batches])
    assert constants is None or constants.thresholds.device.type == "cuda"
    assert all(vector.device.type == "cpu" for vector in host)
    assert seen.waits == []
    assert seen.transfers == [sum(part.bytes for part in started)]


@pytest.mark.usefixtures("fake_devices")
def test_each_device_is_asked_once() -> None:
    """Tensors on two devices need two transfers, however many there are of them (XFER-1)."""
    tensors = [torch.empty(50, device=f"cuda:{index % 2}") for index in range(8)]
    with Watcher() as seen:
        started = plain_device.start([densify(each) for each in tensors], None)
        plain_device._to_host([batch.packed for batch in started.batches])
    assert seen.transfers == [4 * 80, 4 * 80]


@pytest.mark.parametrize("descriptor", GRIDS, ids=str)
def test_scratch_is_fixed(descriptor: GridDescriptor | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory beside the tensors does not grow with them, for long ones, many short ones and ones with gaps (XFER-1)."""
    chunk = 1 << 14
    monkeypatch.setattr(plain_device, "CHUNK", chunk)
    peaks = []
    for times in (1, 6):
        cases = [[torch.ones(times * chunk)], [torch.ones(512)] * (chunk // 512 * times)]
        cases += [[torch.ones(times * 32, 512)[:, ::2]], [torch.ones(times * chunk, dtype=torch.float64)]]
        for tensors in cases:
            dense = [densify(tensor) for tensor in tensors]
            plain_device.start(dense, descriptor)  # Constants of a grid are kept for good.
            with Watcher() as seen:
                started = plain_device.start(dense, descriptor)
            peaks.append(seen.peak - started.bytes)
            assert seen.largest <= max(8 * chunk, started.bytes)
    assert max(peaks) < 48 * chunk


def test_small_tensors_share_their_operations() -> None:
    """Two hundred tensors of one length ask for as many operations as two (XFER-1)."""
    counts = []
    for number in (2, 200):
        dense = [densify(torch.ones(768)) for _ in range(number)]
        plain_device.start(dense, DEFAULT_DESCRIPTOR)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            plain_device.start(dense, DEFAULT_DESCRIPTOR)
        names = [event.name for event in profile.events()]
        counts.append(sum(names.count(f"aten::{name}") for name in ("sum", "where", "scatter_add_")))
    assert counts[0] == counts[1] > 5


def test_two_halves_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor may change as soon as its statistics were started; calls may be collected in any company (XFER-1)."""
    import sys

    module = sys.modules[compute.__module__]
    tensors = [torch.arange(6.0), torch.ones(2, 1).expand(2, 3), torch.zeros(0)]
    wanted = [compute(tensor.clone(), descriptor=DEFAULT_DESCRIPTOR, backend="torch") for tensor in tensors]
    for reducer in (module._reducer, lambda backend, device: None):
        monkeypatch.setattr(module, "_reducer", reducer)
        given = [tensors[0].clone(), *tensors[1:]]
        pending = start_many(given, descriptor=DEFAULT_DESCRIPTOR)
        given[0].zero_()
        others = start_many([torch.ones(3)])
        found, rest = collect([pending, others])
        assert found == wanted and rest[0].total == 3.0
    assert pending.bytes == 3 * 8 * 525 and collect([]) == []
