"""Tools, tool choice and response formats as they come in."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from gateway.schema.scalars import MAX_TOOLS, FunctionName


class FunctionDefinition(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A function on offer; `parameters` is a JSON schema."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """A tool that is a function. There is no other kind here."""

    function: FunctionDefinition


Tools = Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)]


class FunctionNameOnly(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a function."""

    name: str


class NamedToolChoice(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="function"):
    """The model must call this very function."""

    function: FunctionNameOnly


WireToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


class TextFormat(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """No constraint."""


class JsonObject(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"):
    """Some JSON object."""


class JsonSchema(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A named schema. It is always enforced, also with `strict` false."""

    name: FunctionName
    json_schema: dict[str, Any] = field(name="schema")
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"):
    """JSON that a schema accepts."""

    json_schema: JsonSchema


WireResponseFormat = TextFormat | JsonObject | JsonSchemaFormat
