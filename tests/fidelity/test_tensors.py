"""Where the tensors come from, said honestly."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelity.tensors import _TEXT, TensorDigest, _byte_tokens, find_source
from torchlens_conformance.protocol import Refusal


@pytest.fixture
def empty_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A hub cache with nothing in it."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_without_a_checkpoint_the_source_says_that_weights_are_not_the_published_ones(empty_hub: Path) -> None:
    """The default source names its seed and claims nothing (FID-4)."""
    provenance = find_source(seed=7)
    assert (provenance.source, provenance.seed) == ("seeded", 7)
    assert "not the published weights" in provenance.description
    assert "seed 7" in provenance.description


def test_the_local_cache_comes_before_the_seed_and_the_path_before_both(empty_hub: Path, tmp_path: Path) -> None:
    """Path, then cache, then network on demand, then seed (FID-4)."""
    assert find_source(download=True).source == "hub"
    snapshot = empty_hub / "models--distilbert--distilgpt2" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    assert find_source().source == "seeded"
    (snapshot / "model.safetensors").write_bytes(b"")
    assert find_source(download=True).source == "hub-cache"
    assert find_source(checkpoint=snapshot).source == "checkpoint"


def test_a_folder_without_a_model_is_refused(empty_hub: Path, tmp_path: Path) -> None:
    """A checkpoint path without config.json is refused before anything is loaded (FID-4)."""
    with pytest.raises(Refusal) as caught:
        find_source(checkpoint=tmp_path / "nothing")
    assert caught.value.code == "fidelity_checkpoint_invalid"


def test_the_text_becomes_single_byte_tokens_of_gpt2() -> None:
    """GPT-2's first tokens are bytes: "!" is 0, "A" is 32, a space is 220, a line feed 198 (FID-4)."""
    pytest.importorskip("torch")
    assert _byte_tokens(b"!A \n").tolist() == [0, 32, 220, 198]
    tokens = _byte_tokens(bytes(range(256)))
    assert sorted(tokens.tolist()) == list(range(256))
    assert len(_byte_tokens(_TEXT.read_bytes())) > 1000


def test_the_digest_sees_name_shape_and_bytes() -> None:
    """Two tensors differ in their digest by name, shape or one bit (FID-4)."""
    torch = pytest.importorskip("torch")

    def digest(name: str, tensor: object) -> str:
        sum_of = TensorDigest()
        sum_of.add(name, tensor)  # type: ignore[arg-type]
        return sum_of.hexdigest()

    zeros = torch.zeros(2, 3)
    others = [digest("b", zeros), digest("a", zeros.reshape(3, 2)), digest("a", -zeros), digest("a", zeros.double())]
    assert len({digest("a", zeros), *others}) == 5
    assert digest("a", zeros.t().contiguous().t()) == digest("a", zeros)


def test_a_checkpoint_is_loaded_and_another_model_is_refused(empty_hub: Path, tmp_path: Path) -> None:
    """A GPT-2 of another shape given as checkpoint is refused with its size (FID-4)."""
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from fidelity.tensors import gradient_snapshots

    small = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=300, n_positions=128)
    transformers.GPT2LMHeadModel(small).save_pretrained(tmp_path / "small")
    with pytest.raises(Refusal) as caught:
        next(gradient_snapshots(find_source(checkpoint=tmp_path / "small"), checkpoint=tmp_path / "small"))
    assert caught.value.code == "fidelity_checkpoint_invalid"
    assert "16 tensors" in str(caught.value)
