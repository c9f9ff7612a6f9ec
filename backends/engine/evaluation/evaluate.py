"""Evaluates precisions of a model: one set of weights in memory after the other, each over all windows of all texts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch

from backends.child.errors import LoadError
from backends.engine.evaluation.choice import Choice
from backends.engine.evaluation.forward import read_window, scored
from backends.engine.evaluation.loader import Loader, used_precisions
from backends.engine.evaluation.report import Measured, Report, TextReport
from backends.engine.evaluation.scores import TokenScores, compare, join, perplexity, summarise
from backends.engine.evaluation.windows import Windows, cut_windows
from backends.engine.model.transformer import Transformer
from backends.engine.precision.precisions import Precisions
from backends.engine.tokenizers.load import load_tokenizer
from backends.engine.weights.open_source import open_source
from backends.engine.weights.take_inventory import take_inventory
from backends.gguf.errors import shown

Tell = Callable[[int, int, str], None]
"""Told how many windows have been read, in all precisions together, of how many, and what is read now."""

_WINDOW = 1024
_LOGITS_AT_ONCE = 32


@dataclass(slots=True)
class _Progress:
    tell: Tell
    total: int
    done: int = 0
    what: str = ""

    def begin(self, what: str) -> None:
        self.what = what
        self.tell(self.done, self.total, what)

    def advance(self) -> None:
        self.done += 1
        self.tell(self.done, self.total, self.what)


@dataclass(frozen=True, slots=True)
class _Reference:
    """The model in float32, after it has read everything.

    Of its results only the hidden states are kept, and of its weights those that turn them into logits whenever these are
    compared: the logits of 1,000 tokens of a large vocabulary would take a gigabyte.

    Args:
        states: for every text and window [scored tokens, hidden] float32.
        model: has a head, but no layers.
    """

    states: list[list[torch.Tensor]]
    model: Transformer


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one choice came to, and its scores on every text."""

    used: dict[str, str | None]
    scores: list[TokenScores]


def evaluate(
    path: Path, texts: Mapping[str, str], choices: Sequence[Choice], *, tokens: int, threads: int, tell: Tell
) -> Report:
    """Compare a model in some precisions with the same model dequantised to float32.

    Memory: the weights in float32 at first, then those of one choice and the float32 head.

    Args:
        path: a GGUF file or a Hugging Face folder.
        texts: by their names.
        tokens: how many of each text to read; half of them are scored.

    Raises:
        LoadError: the model cannot be loaded, or a text is too short.
        Rejected: a text cannot be tokenised.
    """
    choices = list(dict.fromkeys(choices))
    inventory = take_inventory(path)
    _check_memory(path, inventory.parameters)
    window = min(_WINDOW, inventory.shape.context, tokens)
    cut = _tokenise(path, texts, window, tokens)
    progress = _Progress(tell, (1 + len(choices)) * sum(len(text.windows) for text in cut))
    torch.set_num_threads(threads)
    source = open_source(path)
    try:
        with torch.inference_mode():
            outcomes = _measure(Loader(source, str(path), window, threads), cut, choices, progress)
    finally:
        source.close()
    return Report(
        model=path.name,
        architecture=inventory.shape.architecture,
        quantization=inventory.quantization,
        window=window,
        texts=[_report(text, number, outcomes) for number, text in enumerate(cut)],
    )


def _check_memory(path: Path, parameters: int) -> None:
    needed, free = 4 * parameters, psutil.virtual_memory().available
    if needed > free:
        raise LoadError(f"{shown(path.name)} takes {needed / 1e6:,.1f} MB in fp32, and {free / 1e6:,.1f} MB of memory are free")


def _tokenise(path: Path, texts: Mapping[str, str], window: int, most: int) -> list[Windows]:
    vocabulary = load_tokenizer(path)
    bos = vocabulary.bos if vocabulary.adds_bos else None
    result = []
    for name, text in texts.items():
        ids = vocabulary.tokenize(text, add_special=False, parse_special=False)
        result.append(cut_windows(name, ids, window=window, most=most, bos=bos))
    return result


def _measure(loader: Loader, texts: list[Windows], choices: Sequence[Choice], progress: _Progress) -> dict[Choice, _Outcome]:
    """Measure choices, in their order; those with the same weights are measured together."""
    reference = _read_reference(loader, texts, progress)
    neighbours: dict[Precisions, list[Choice]] = {}
    for choice in choices:
        neighbours.setdefault(loader.precisions(choice), []).append(choice)
    outcomes = {
        choice: _outcome(loader, choice, texts, reference, progress) for group in neighbours.values() for choice in group
    }
    return {choice: outcomes[choice] for choice in choices}


def _read_reference(loader: Loader, texts: list[Windows], progress: _Progress) -> _Reference:
    progress.begin("the reference, fp32")
    engine = loader.load(Choice())
    states: list[list[torch.Tensor]] = []
    for text in texts:
        states.append([])
        for tokens in text.windows:
            states[-1].append(read_window(engine, tokens, decode=False))
            progress.advance()
    model = engine.model
    only_head = replace(model.weights, prefill=[], decode=[], embed=model.weights.head)
    return _Reference(states, Transformer(model.shape, only_head, model.ops))


def _outcome(loader: Loader, choice: Choice, texts: list[Windows], reference: _Reference, progress: _Progress) -> _Outcome:
    progress.begin(choice.text)
    engine = loader.load(choice)
    results = []
    for text, references in zip(texts, reference.states, strict=True):
        parts: list[TokenScores] = []
        for tokens, expected in zip(text.windows, references, strict=True):
            states, targets = read_window(engine, tokens, decode=choice.decode is not None), torch.tensor(scored(tokens)[1])
            for at in range(0, len(targets), _LOGITS_AT_ONCE):
                rows = slice(at, at + _LOGITS_AT_ONCE)
                logits = engine.model.logits(states[rows])
                parts.append(compare(reference.model.logits(expected[rows]), logits, targets[rows]))
            progress.advance()
        results.append(join(parts))
    return _Outcome(used_precisions(engine, choice), results)


def _report(text: Windows, number: int, outcomes: Mapping[Choice, _Outcome]) -> TextReport:
    some = next(iter(outcomes.values())).scores[number]
    return TextReport(
        name=text.name,
        windows=len(text.windows),
        tokens=len(some.nll),
        sha256=text.sha256(),
        perplexity=perplexity(some.reference_nll),
        measured=[
            Measured(choice=choice, used=outcome.used, quality=summarise(outcome.scores[number]))
            for choice, outcome in outcomes.items()
        ],
    )
