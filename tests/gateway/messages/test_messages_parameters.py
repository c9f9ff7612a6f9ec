"""The tables of the Messages API, the Structs and the SDK agree."""

from typing import Any

import msgspec
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_count_tokens_params as beta_count_tokens_params
from anthropic.types.beta import message_create_params as beta_create_params

from gateway.schema.messages_api import CountTokensRequest, MessagesRequest
from gateway.schema.messages_api_parameters import COUNT_TOKENS, INSIDE, MESSAGES
from gateway.schema.parameters import Parameter, reason

SENT_AS_HEADERS = {"betas", "user_profile_id", "workspace_id"}


@pytest.mark.parametrize(("struct", "table"), [(MessagesRequest, MESSAGES), (CountTokensRequest, COUNT_TOKENS)])
def test_the_table_has_every_field_once_and_refused_ones_are_typed_none(
    struct: type[msgspec.Struct], table: tuple[Parameter, ...]
) -> None:
    assert sorted(row.name for row in table) == sorted(struct.__struct_fields__)
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for row in table:
        assert (fields[row.name] in (None, type(None))) == (row.treatment == "refused"), row.name
        assert row.treatment == "honoured" or row.note


def test_the_tables_name_every_parameter_of_the_sdk() -> None:
    params: list[tuple[Any, tuple[Parameter, ...]]] = [
        (message_create_params.MessageCreateParamsStreaming, MESSAGES),
        (beta_create_params.MessageCreateParamsStreaming, MESSAGES),
        (message_count_tokens_params.MessageCountTokensParams, COUNT_TOKENS),
        (beta_count_tokens_params.MessageCountTokensParams, COUNT_TOKENS),
    ]
    for typed, table in params:
        known = {row.name for row in table}
        names = {name for cls in (typed, *typed.__orig_bases__) for name in getattr(cls, "__annotations__", {})}
        assert names - known - SENT_AS_HEADERS == set()


def test_every_refusal_has_a_reason() -> None:
    for table in (MESSAGES, COUNT_TOKENS, INSIDE):
        assert all(reason(table, row.name) for row in table if row.treatment == "refused")
