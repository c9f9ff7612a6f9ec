"""Tools for models whose chat template does not show them (SmolLM2), or asks for calls in a format that we do not read.

The definitions and the way to call go into the system message, in the words of Hermes 2 Pro and Qwen 2.5, which small models
have often seen: `<tool_call>{"name": ..., "arguments": ...}</tool_call>`. Calls and results in the history are written the same
way; results become a user's turn, because such a template knows no other role. The first system message of the template's own
is lost when there is none in the conversation. Source: Qwen2.5 `tokenizer_config.json`; Hermes-Function-Calling README.
"""

import json
from collections.abc import Sequence
from typing import Any

_PREAMBLE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def without_tools(messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rewrite a conversation, in template form, into one of system, user and assistant texts alone."""
    rewritten: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            _add_result(rewritten, message["content"])
        elif "tool_calls" in message:
            calls = "\n".join(_written(call["function"]) for call in message["tool_calls"])
            text = f"{message['content']}\n{calls}" if message["content"] else calls
            rewritten.append({"role": "assistant", "content": text})
        else:
            rewritten.append(message)
    return _introduce(rewritten, tools) if tools else rewritten


def _introduce(messages: list[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    preamble = _PREAMBLE.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if messages and messages[0]["role"] == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{preamble}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": preamble}, *messages]


def _add_result(messages: list[dict[str, Any]], content: str) -> None:
    """Results of parallel calls share one turn."""
    text = f"<tool_response>\n{content}\n</tool_response>"
    if messages and messages[-1].get("is_result"):
        text = f"{messages.pop()['content']}\n{text}"
    messages.append({"role": "user", "content": text, "is_result": True})


def _written(function: dict[str, Any]) -> str:
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "arguments": {text}}}\n</tool_call>'
