"""Templates that try to run for ever or to fill the memory end with an error that names the limit, in any thread."""

import threading
import tracemalloc

import pytest

from backends.errors import Rejected
from backends.text.chat_template import ChatTemplate
from backends.types import Chat, Message

CHAT = Chat(messages=(Message(role="user", content="x"),))


def _loop(body: str) -> str:
    return (
        "{% set ns = namespace(a='abcd', l=[1], d={}) %}{% for i in range(100) %}" + body + "{% endfor %}{{ ns.l }}{{ ns.d }}"
    )


LONG = {
    "nested loops": "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "filters": "{{ range(99999) | map('string') | map('upper') | list | length }}" * 900,
    "calls": "{% for i in range(99999) %}{% for j in range(99999) if 'a'.upper() == 'b' %}{% endfor %}{% endfor %}",
}
LARGE = {
    "repeat": "{{ 'a' * 10**9 }}",
    "repeat a list": "{{ [1] * 10**9 }}",
    "percent": "{{ '%9999999999d' % 1 }}",
    "computed width": "{{ '%*d' % (999999999, 1) }}",
    "format": "{{ '{:9999999999}'.format(1) }}",
    "computed format": "{{ '{:{}}'.format(1, 999999999) }}",
    "format map": "{{ '{a:9999999999}'.format_map({'a': 1}) }}",
    "repeated field": "{% set a = 'b' * 4000000 %}{{ '{0}{0}{0}'.format(a) | length }}",
    "center": "{{ 'a'.center(10**9) }}",
    "bound method": "{% set f = 'a'.ljust %}{{ f(width=10**9) if 0 else f(10**9) }}",
    "expandtabs": "{{ ('\t' * 1000).expandtabs(1000000) }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "tojson indent": "{{ messages | tojson(indent=10**9) }}",
    "mapped indent": "{{ messages | map('indent', 10**9) | list }}",
    "replace": "{{ 'aaaa'.replace('', 'b' * 4000000) }}",
    "replace filter": "{{ 'aaaa' | replace('a', 'b' * 4000000) }}",
    "join": "{{ ','.join(['b' * 4000000] * 50000) }}",
    "join filter": "{{ (['b' * 4000000] * 50000) | join }}",
    "power": "{{ 9 ** (9 ** 9) }}",
    "range": "{{ range(10**12) | list }}",
    "time": "{{ strftime_now('%99999999d') }}",
    "concat": _loop("{% set ns.a = ns.a ~ ns.a %}"),
    "concat many": "{% set a = 'b' * 4000000 %}{{ " + " ~ ".join(["a"] * 2_000) + " }}",
    "add": _loop("{% set ns.a = ns.a + ns.a %}"),
    "add lists": _loop("{% set ns.l = ns.l + ns.l %}"),
    "shared lists": _loop("{% set ns.l = [ns.l, ns.l] %}"),
    "shared dicts": _loop("{% set ns.d = dict(a=ns.d, b=ns.d) %}"),
    "shared literals": _loop("{% set ns.d = {'a': ns.d, 'b': (ns.d, ns.d)} %}"),
    "captured": _loop("{% set ns.a %}{{ ns.a }}{{ ns.a }}{% endset %}"),
    "captured text": "{% set x %}{% for i in range(99999) %}" + "x" * 60_000 + "{% endfor %}{% endset %}",
    "captured literal": "{% set x %}{% for i in range(99999) %}{{ '" + "x" * 60_000 + "' }}{% endfor %}{% endset %}",
    "output": "{% for i in range(99999) %}" + "x" * 60_000 + "{% endfor %}",
}


@pytest.mark.parametrize("name", LONG)
def test_a_template_that_runs_too_long_is_stopped(name: str) -> None:
    with pytest.raises(Rejected, match=r"it runs longer than 1 s of CPU time|it makes more than"):
        ChatTemplate(LONG[name]).render(CHAT)


@pytest.mark.parametrize("name", LARGE)
def test_a_template_that_makes_something_large_is_stopped_before_it_does(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(Rejected, match=r"it (makes|formats|indents|computes|runs)|the prompt has more|not available"):
            ChatTemplate(LARGE[name]).render(CHAT)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200 << 20


@pytest.mark.parametrize(
    "expression",
    ["lipsum(9)", "[1] | batch(9)", "'a' | center(9)", "''.encode()", "cycler.__init__.__globals__", "[1].append(2)"],
)
def test_what_chat_templates_do_not_need_does_not_exist(expression: str) -> None:
    with pytest.raises(Rejected):
        ChatTemplate("{{ " + expression + " }}").render(CHAT)


def test_limits_hold_in_every_thread_and_do_not_leak_into_the_next_rendering() -> None:
    template = ChatTemplate("{% if deep %}" + LONG["nested loops"] + "{% endif %}ok")
    outcomes: list[str] = []

    def render() -> None:
        try:
            template.render(Chat(messages=CHAT.messages, template_kwargs={"deep": True}))
        except Rejected as error:
            outcomes.append(error.message)
        outcomes.append(template.render(CHAT)[0])

    threads = [threading.Thread(target=render) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome[-11:] for outcome in outcomes) == ["of CPU time", "of CPU time", "ok", "ok"]


def test_a_long_honest_conversation_is_within_the_limits() -> None:
    template = ChatTemplate("{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] | trim + '\n' }}{% endfor %}")
    messages = tuple(Message(role="user", content="words and words " * 60) for _ in range(2000))
    (text,) = template.render(Chat(messages=messages))
    assert len(text) > 1_900_000
