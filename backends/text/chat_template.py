"""A model's chat template: compiled once, rendered for every conversation.

The template is code from a model file: it runs in `template_sandbox`, bounded in length, time and output. What a user wrote is
data: where it spells one of the vocabulary's control tokens (`<|im_end|>`), the prompt is cut inside that spelling, so that no
tokeniser run sees it whole and nobody fakes a turn; everything else tokenises as it always did. Knows no tokeniser: it returns
text.
Source: transformers `utils/chat_template_utils.py`; the variables are those of `apply_chat_template`.
"""

import re
import secrets
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, meta

from backends.errors import Rejected
from backends.text.template_budget import MAX_CHARS, TemplateLimit, spending
from backends.text.template_input import template_kwargs, template_messages, template_tools
from backends.text.template_sandbox import RaisedByTemplate, TemplateEnvironment
from backends.text.tool_parser import ToolFormat, detect_format
from backends.text.tool_prompt import without_tools
from backends.types import Chat

MAX_TEMPLATE_CHARS = 64 << 10
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""For models that bring no template."""

_MAX_REASON_CHARS = 300
# Whatever code may raise: the interpreter's limits included, since a template can reach them. What is not here is our own bug.
_TEMPLATE_FAULTS = (
    *(TemplateError, TemplateLimit, TypeError, ValueError, LookupError, AttributeError, ArithmeticError),
    *(RecursionError, MemoryError, SyntaxError),
)


class ChatTemplate:
    """One compiled template. Safe to render from several threads.

    Args:
        source: the template's text (GGUF `tokenizer.chat_template`), or None for ChatML.
        bos_token, eos_token: their texts, which many templates write.
        control_tokens: the spellings of the vocabulary's control tokens, which users must not be able to write.
        now: what `strftime_now` shows.

    Raises:
        Rejected: the template is too long, or not a template.
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str = "",
        eos_token: str = "",
        control_tokens: Iterable[str] = (),
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        text = CHATML if source is None else source
        if len(text) > MAX_TEMPLATE_CHARS:
            raise Rejected(f"the model's chat template has {len(text)} characters, at most {MAX_TEMPLATE_CHARS} are read")
        self._constants = {"bos_token": bos_token, "eos_token": eos_token}
        self._control = _any_of(control_tokens)
        environment = TemplateEnvironment(now)
        try:
            with spending():
                tree = environment.parse(text)
                variables = meta.find_undeclared_variables(tree)
                self._template = environment.from_string(tree)
        except _TEMPLATE_FAULTS as error:
            raise Rejected(f"the model's chat template cannot be compiled: {_reason(error)}") from error
        native = detect_format(text) if "tools" in variables else None
        self.has_native_tools = native is not None
        """Whether the template itself shows tools, in a format that we read; else `tool_prompt` does."""
        self.tool_format: ToolFormat = native or "hermes"
        """How this model writes tool calls, or is asked to."""

    def render(self, chat: Chat) -> tuple[str, ...]:
        """Render a conversation into the prompt.

        Tokenise the segments one by one, all with special tokens parsed, only the first with BOS if the vocabulary adds one and
        the segment does not already begin with it. Joined they are the prompt's text. There is one segment unless a user wrote
        a control token.

        With `continue_final` the prompt ends exactly behind the text of the last message.

        Raises:
            Rejected: the template refuses the conversation or breaks on it, or takes too long (the message says which).
            Unsupported: a message holds an image.
        """
        messages, tools, extra = template_messages(chat), template_tools(chat), template_kwargs(chat)
        mark = f"{secrets.randbelow(10**32):032d}"
        if self._control:
            messages, tools, extra = (self._cut(part, mark) for part in (messages, tools, extra))
        if not self.has_native_tools:
            messages, tools = without_tools(messages, tools), []
        elif self.tool_format == "mistral":
            messages = [_with_short_ids(message) for message in messages]
        continues = chat.continue_final and bool(messages[-1]["content"])
        end = mark[::-1] + "0"
        if continues:
            messages[-1] = {**messages[-1], "content": messages[-1]["content"] + end}
        elif chat.continue_final:
            messages.pop()
        text = self._run(messages, tools, extra, not continues)
        if continues:
            text, found, _ = text.rpartition(end)
            if not found:
                raise Rejected("the chat template does not show the last message, so it cannot be continued", param="messages")
        return tuple(text.split(mark))

    def _run(self, messages: Any, tools: Any, extra: dict[str, Any], add_generation_prompt: bool) -> str:
        variables = {"documents": None, **extra, **self._constants}
        variables |= {"messages": messages, "tools": tools or None, "add_generation_prompt": add_generation_prompt}
        pieces, size = [], 0
        try:
            with spending():
                for piece in self._template.root_render_func(self._template.new_context(variables)):
                    size += len(piece)
                    if size > MAX_CHARS:
                        raise TemplateLimit(f"the prompt has more than {MAX_CHARS} characters")
                    pieces.append(piece)
        except RaisedByTemplate as error:
            raise Rejected(f"the chat template refuses this conversation: {_reason(error)}", param="messages") from error
        except _TEMPLATE_FAULTS as error:
            raise Rejected(f"the chat template failed: {_reason(error)}", param="messages") from error
        return "".join(pieces)

    def _cut(self, value: Any, mark: str) -> Any:
        """Put `mark` behind the first character of each control token that a user wrote, in all strings of a value."""
        assert self._control is not None
        if isinstance(value, str):
            return self._control.sub(lambda found: found[0][:1] + mark + found[0][1:], value)
        if isinstance(value, list):
            return [self._cut(item, mark) for item in value]
        if isinstance(value, dict):
            return {self._cut(key, mark): self._cut(item, mark) for key, item in value.items()}
        return value


def _any_of(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern for any of the tokens, grouped by their first characters: vocabularies have hundreds that begin alike."""
    groups: dict[str, list[str]] = {}
    for token in sorted({token for token in tokens if len(token) > 1}, key=len, reverse=True):
        groups.setdefault(token[:2], []).append(re.escape(token[2:]))
    alternatives = [re.escape(head) + "(?:" + "|".join(tails) + ")" for head, tails in groups.items()]
    return re.compile("|".join(alternatives)) if alternatives else None


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    """Mistral's templates insist on ids of nine letters and digits."""
    message = dict(message)
    if "tool_call_id" in message:
        message["tool_call_id"] = _short_id(message["tool_call_id"])
    if "tool_calls" in message:
        message["tool_calls"] = [{**call, "id": _short_id(call["id"])} for call in message["tool_calls"]]
    return message


def _short_id(identifier: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "", identifier)[-9:].rjust(9, "0")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _MAX_REASON_CHARS else text[:_MAX_REASON_CHARS] + "..."
