"""Whole evaluations of small random models: what is read by which weights, and what comes out."""

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from backends.child.errors import LoadError
from backends.engine.evaluation.choice import parse_choice
from backends.engine.evaluation.evaluate import evaluate
from backends.engine.evaluation.forward import read_window, scored
from backends.engine.evaluation.report import Report
from backends.engine.tokenizers.load import load_tokenizer
from kernels.cpu import grouped
from tests.backends.engine.evaluation.spoken_model import save_speaking
from tests.backends.engine.model.harness import EXACT, load
from tests.backends.engine.model.random_models import reference_logits, save_random, text

INT8 = "int8-g32" if grouped.AVAILABLE else "int8"
PROSE = "The quick brown fox jumps over the lazy dog. " * 40


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_speaking(tmp_path_factory.mktemp("speaking"))


def _evaluate(path: Path, *choices: str, tokens: int = 256) -> Report:
    return evaluate(
        path,
        {"prose": PROSE, "other": PROSE[7::3]},
        [parse_choice(choice) for choice in choices],
        tokens=tokens,
        threads=1,
        tell=lambda done, total, what: None,
    )


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.parametrize("settings", [EXACT, {"prefill": "int8", "decode": "int4-g32", "kv": "int8"}], ids=["fp32", "rounded"])
def test_a_window_is_read_as_the_engine_reads_a_prompt_and_an_answer(
    tmp_path: Path, kind: str, settings: dict[str, str]
) -> None:
    save_random(kind, tmp_path)
    loaded = load(tmp_path, **settings)
    tokens = text(101)
    engine = loaded.engine(context=104, slots=1)
    with torch.inference_mode():
        states = read_window(engine.engine, tokens, decode=True)
        found = engine.engine.model.logits(states)
    expected = loaded.engine().all_logits(tokens, num_prompt=50)[50:100]
    assert len(found) == 50
    # Several rows at once are summed in another order than single ones.
    assert float((found - expected).abs().max()) < (1e-3 if settings is EXACT else 0.02) * float(expected.std())


def test_a_window_read_by_one_set_of_weights_is_that_of_transformers(tmp_path: Path) -> None:
    model = save_random("llama", tmp_path)
    tokens = text(101)
    engine = load(tmp_path, **EXACT).engine(context=104, slots=1).engine
    with torch.inference_mode():
        found = engine.model.logits(read_window(engine, tokens, decode=False))
    torch.testing.assert_close(found, reference_logits(model, tokens)[50:100], rtol=0, atol=1e-3)
    assert scored(tokens) == (tokens[50:100], tokens[51:])


def test_fp32_beside_itself_is_the_same(speaking: Path) -> None:
    report = _evaluate(speaking, "decode=fp32", "prefill=fp32,decode=fp32")
    for one in report.texts:
        for measured in one.measured:
            quality = measured.quality
            assert quality.kl.high < 1e-8
            assert (quality.same_top, quality.flips.high) == (1, 0)
            assert quality.perplexity_ratio.mean == pytest.approx(1, abs=1e-5)
            assert quality.perplexity == pytest.approx(one.perplexity, rel=1e-5)


def test_fewer_bits_are_farther_away_and_the_phases_add_up(speaking: Path) -> None:
    weights = ["prefill=bf16", "prefill=int8", "decode=int8", "decode=int4-g32", "decode=int4-g128", "kv=int8"]
    report = _evaluate(speaking, *weights, "prefill=bf16,decode=int4-g32", tokens=512)
    for one in report.texts:
        kl = {measured.choice.text: measured.quality.kl.mean for measured in one.measured}
        assert 0 < kl["prefill=bf16"] < kl["decode=int8"] < kl["decode=int4-g32"] < kl["decode=int4-g128"]
        assert kl["prefill=bf16"] < kl["prefill=int8"] < kl["decode=int4-g32"]
        assert 0 < kl["kv=int8"] < kl["decode=int4-g32"]
        # Keys and values by better weights make better answers, and the answers are no better than their own weights.
        assert kl["prefill=bf16"] < kl["prefill=bf16,decode=int4-g32"] < kl["decode=int4-g32"]


def test_a_report_says_what_was_read_and_by_what(speaking: Path) -> None:
    report = _evaluate(speaking, "prefill=int8", "decode=int8,head=bf16", "kv=int8", "prefill=bf16,decode=auto")
    assert (report.architecture, report.quantization, report.window) == ("llama", "F32", 256)
    assert [(one.name, one.windows, one.tokens) for one in report.texts] == [("prose", 1, 127), ("other", 1, 127)]
    assert [measured.used for measured in report.texts[1].measured] == [
        {"prefill": "int8", "decode": None, "head": "bf16", "kv": "bf16"},
        {"prefill": None, "decode": INT8, "head": "bf16", "kv": "bf16"},
        {"prefill": "fp32", "decode": None, "head": "fp32", "kv": "int8"},
        {"prefill": "bf16", "decode": "bf16", "head": "bf16", "kv": "bf16"},
    ]


def test_the_order_of_choices_and_repetitions_change_nothing(speaking: Path) -> None:
    first = _evaluate(speaking, "kv=int8", "decode=int8", "kv=int8")
    second = _evaluate(speaking, "decode=int8", "kv=int8")
    for one, other in zip(first.texts, second.texts, strict=True):
        assert one.measured == other.measured[::-1]
        assert (one.sha256, one.perplexity) == (other.sha256, other.perplexity)


def test_every_window_begins_as_the_model_wants_it(speaking: Path, tmp_path: Path) -> None:
    folder = save_speaking(tmp_path / "with bos", bos=True)
    assert load_tokenizer(folder).adds_bos
    plain, begun = (_evaluate(path, "decode=fp32").texts[0] for path in (speaking, folder))
    assert plain.sha256 != begun.sha256
    assert plain.tokens == begun.tokens


def test_progress_counts_every_window_of_every_model(speaking: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    choices = [parse_choice(choice) for choice in ("decode=int8", "kv=int8", "decode=int8")]
    evaluate(speaking, {"a": 2 * PROSE}, choices, tokens=3000, threads=1, tell=lambda *what: seen.append(what))
    assert [done for done, _, _ in seen] == [0, 1, 2, 2, 3, 4, 4, 5, 6]
    assert {of for _, of, _ in seen} == {6}
    assert [what for _, _, what in seen[::3]] == ["the reference, fp32", "decode=int8", "kv=int8"]


def test_a_text_too_short_is_found_before_anything_is_computed(speaking: Path) -> None:
    with pytest.raises(LoadError, match="'a' gives a window of 5 tokens"):
        evaluate(speaking, {"a": "short"}, [], tokens=256, threads=1, tell=lambda *what: pytest.fail("it began"))


def test_a_model_that_does_not_fit_in_fp32_is_refused_with_the_numbers(speaking: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=300_000))
    with pytest.raises(LoadError, match=r"takes 1.0 MB in fp32, and 0.3 MB of memory are free"):
        _evaluate(speaking, "kv=int8")
