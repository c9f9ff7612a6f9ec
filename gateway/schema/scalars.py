"""Numbers and strings with the ranges that the API allows them.

Every optional field is `X | None = None`, because SDKs send an explicit `null` for what their user did not set.
Source: OpenAI API reference, "Create chat completion"; extensions follow the names and ranges of vLLM and llama-server.
"""

from typing import Annotated

from msgspec import Meta

MAX_MESSAGES = 2048
MAX_PARTS = 1024
MAX_TOOLS = 128
MAX_CHOICES = 128
MAX_PROMPTS = 128
MAX_INPUTS = 2048
MAX_TOKEN_ID = 2**31 - 1

ModelName = Annotated[str, Meta(min_length=1)]
MaxTokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
ChoiceCount = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Temperature = Annotated[float, Meta(ge=0.0, le=2.0)]
TopP = Annotated[float, Meta(gt=0.0, le=1.0)]
TopK = Annotated[int, Meta(ge=0, le=2**31 - 1)]
MinP = Annotated[float, Meta(ge=0.0, le=1.0)]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]
RepetitionPenalty = Annotated[float, Meta(gt=0.0, le=2.0)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId = Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
Bias = Annotated[float, Meta(ge=-100.0, le=100.0)]
LogitBias = Annotated[dict[TokenId, Bias], Meta(max_length=300)]
StopString = Annotated[str, Meta(max_length=512)]
Stop = StopString | Annotated[list[StopString], Meta(max_length=4)]
StopTokenIds = Annotated[list[TokenId], Meta(max_length=128)]
TopLogprobs = Annotated[int, Meta(ge=0, le=20)]
LegacyLogprobs = Annotated[int, Meta(ge=0, le=5)]
FunctionName = Annotated[str, Meta(pattern=r"\A[a-zA-Z0-9_-]{1,64}\Z")]
SpeakerName = Annotated[str, Meta(max_length=64)]
Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]],
    Meta(max_length=16),
]
PromptInput = str | list[str | TokenId | list[TokenId]]
"""A text, texts, token ids or lists of token ids; msgspec cannot tell list types apart, so mixtures are refused later."""
