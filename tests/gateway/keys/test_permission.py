"""Keys that are meant for some models."""

import pytest

from gateway.identity import ANONYMOUS, Identity
from gateway.keys.permission import ModelNotAllowed, check_model, visible_models

SMALL = Identity(key_id="key_1", tenant="t", models=frozenset({"small", "org/tiny"}))


def test_key_for_all_models_may_use_any():
    check_model(ANONYMOUS, "whatever")
    assert visible_models(ANONYMOUS, ["b", "a"]) == ["b", "a"]


def test_key_for_some_models_may_use_those_and_sees_no_others():
    check_model(SMALL, "org/tiny")
    assert visible_models(SMALL, ["large", "org/tiny", "small"]) == ["org/tiny", "small"]


@pytest.mark.parametrize("model", ["large", "Small", "", "small ", "x" * 10_000])
def test_other_models_are_refused_by_name(model):
    with pytest.raises(ModelNotAllowed) as refused:
        check_model(SMALL, model)
    error = refused.value
    assert (error.status, error.code, error.param, error.type) == (403, "model_not_allowed", "model", "invalid_request_error")
    assert len(error.message) < 300
