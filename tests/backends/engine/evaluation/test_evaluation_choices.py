"""Precisions as they are written on the command line."""

import pytest

from backends.engine.config import EngineConfig
from backends.engine.evaluation.choice import DEFAULT_CHOICES, Choice, parse_choice


@pytest.mark.parametrize(
    ("text", "prefill", "decode", "kv"),
    [
        ("prefill=bf16,decode=int4-g64,kv=int8", "bf16", "int4-g64", "int8"),
        ("prefill=int8", "int8", "auto", "auto"),  # its decode weights are loaded, but read nothing
        ("decode=int4-g128", "decode", "int4-g128", "auto"),
        ("kv=int8", "decode", "fp32", "int8"),
        ("decode=fp32 , kv=fp32", "decode", "fp32", "fp32"),
    ],
)
def test_a_choice_becomes_settings_of_the_engine(text: str, prefill: str, decode: str, kv: str) -> None:
    config = EngineConfig(path="", **parse_choice(text).settings())
    assert (config.prefill, config.decode, config.head, config.kv) == (prefill, decode, "auto", kv)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"'' is not one of prefill=, decode=, head=, kv= given once"),
        ("bf16", r"'bf16' is not one of"),
        ("prefill=bf16,prefill=int8", r"'prefill=int8' is not one of"),
        ("slots=8", r"'slots=8' is not one of"),
        ("decode=int4", r"decode is 'int4', it can be auto, bf16, fp32, int8, int4-g32, int4-g64, int4-g128"),
        ("prefill=bf16,kv=fp32", r"beside these weights kv can be bf16 or int8"),
        ("prefill=fp32,decode=int8,kv=fp32", r"beside these weights kv can be bf16 or int8"),
        ("kv=bf16", r"beside only fp32 weights kv can be fp32 or int8"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_choice(text)


def test_the_default_has_every_set_of_weights_alone_and_what_is_served() -> None:
    assert all(parse_choice(choice.text) == choice for choice in DEFAULT_CHOICES)
    alone = {choice.text for choice in DEFAULT_CHOICES if not (choice.prefill and choice.decode)}
    assert alone == {
        *(f"prefill={name}" for name in ("fp32", "bf16", "int8")),
        *(f"decode={name}" for name in ("auto", "int8", "int4-g32", "int4-g64", "int4-g128")),
        "kv=int8",
    }
    assert Choice(prefill="bf16", decode="auto") in DEFAULT_CHOICES
