"""What the console makes of text and of the wire: its Markdown and its event stream, inside a real browser."""

import pytest
from console_window import Console

RENDER = """import('/console/markdown.js').then(({ renderMarkdown }) => {
  const box = document.createElement('div');
  for (const text of arguments[0]) renderMarkdown(box, text);
  box.querySelectorAll('figcaption').forEach((caption) => caption.remove());
  box.querySelectorAll('pre').forEach((pre) => pre.removeAttribute('tabindex'));
  return box.innerHTML;
})"""

CASES = {
    "one\ntwo\n\nthree": "<p>one\ntwo</p><p>three</p>",
    "**b** *i* _j_ `c`": "<p><strong>b</strong> <em>i</em> <em>j</em> <code>c</code></p>",
    "**a *b* c**": "<p><strong>a <em>b</em> c</strong></p>",
    "snake_case_name 2 * 3 * 4 **": "<p>snake_case_name 2 * 3 * 4 **</p>",
    "# T\ntext": "<h4>T</h4><p>text</p>",
    "- a\n- b\n\n- c": "<ul><li>a</li><li>b</li><li>c</li></ul>",
    "3. a\n   - b\n   - c\n4. d": '<ol start="3"><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>',
    "- a\n1. b": '<ul><li>a</li></ul><ol start="1"><li>b</li></ol>',
    "1. a\n odd": '<ol start="1"><li>a\nodd</li></ol>',
    "> q\n> r": "<blockquote>q\nr</blockquote>",
    "---": "<hr>",
    "```c\nx < **y**\n\n- z\n```\nend": "<figure><pre><code>x &lt; **y**\n\n- z</code></pre></figure><p>end</p>",
    "```\nopen": "<figure><pre><code>open</code></pre></figure>",
    "~~~\n```\n~~~": "<figure><pre><code>```</code></pre></figure>",
    "<b>&amp;</b>": "<p>&lt;b&gt;&amp;amp;&lt;/b&gt;</p>",
    "[a](https://b.c)": '<p><a href="https://b.c" target="_blank" rel="noopener noreferrer">a</a></p>',
    "[a](javascript:b)": "<p>[a](javascript:b)</p>",
    "[a](javascript://b)": "<p>[a](javascript://b)</p>",
    "- a\n- b": "<ul><li>a</li><li>b</li></ul>",
    "": "",
}


@pytest.mark.parametrize("text", CASES)
def test_markdown_becomes_these_elements(console: Console, text: str) -> None:
    assert console.browser.js(RENDER, [text]) == CASES[text]


@pytest.mark.parametrize("text", [*CASES, "\n\n".join(CASES)])
def test_growing_text_ends_as_if_it_had_come_at_once(console: Console, text: str) -> None:
    grown = [text[:end] for end in range(len(text) + 1)]
    assert console.browser.js(RENDER, grown) == console.browser.js(RENDER, [text])


def test_finished_blocks_keep_their_nodes(console: Console) -> None:
    script = """import('/console/markdown.js').then(({ renderMarkdown }) => {
      const box = document.createElement('div');
      renderMarkdown(box, 'first\\n\\nsec');
      const node = box.firstChild;
      renderMarkdown(box, 'first\\n\\nsecond');
      return box.firstChild === node;
    })"""
    assert console.browser.js(script)


@pytest.mark.parametrize(
    "text", ["*" * 50_000, "`" * 50_000, "[" * 50_000, "_a " * 20_000, "> " * 20_000, "- " * 20_000, "#" * 50_000]
)
def test_hostile_markdown_is_only_text(console: Console, text: str) -> None:
    console.browser.js(RENDER, [text])


def test_text_of_a_model_never_becomes_markup(console: Console) -> None:
    console.choose("hostile")
    console.ask("Hello")
    browser = console.browser
    assert "<script>" in browser.text(".answer .text")
    assert browser.js("document.querySelectorAll('.answer .text :is(script, img, b)').length") == 0
    assert browser.js("[...document.querySelectorAll('.answer .text a')].map((a) => a.href)") == [
        "https://example.org/a?b=1&c=2"
    ]
    assert browser.js("document.title") == "Baton"


STREAM = """import('/console/api.js').then(async ({ streamChat }) => {
  const bytes = new TextEncoder().encode(arguments[0]);
  const real = window.fetch;
  const seen = new Set();
  try {
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      const body = new ReadableStream({ start(controller) {
        controller.enqueue(bytes.slice(0, cut));
        controller.enqueue(bytes.slice(cut));
        controller.close();
      } });
      window.fetch = async () => new Response(body, { status: 200 });
      const got = [];
      try {
        for await (const chunk of streamChat({}, { signal: new AbortController().signal })) got.push(chunk);
      } catch (error) {
        got.push(error.message);
      }
      seen.add(JSON.stringify(got));
    }
  } finally {
    window.fetch = real;
  }
  return [...seen].map((text) => JSON.parse(text));
})"""


def test_events_are_the_same_wherever_the_network_cuts_them(console: Console) -> None:
    wire = ': ping\n\ndata: {"a": "é日\u2028 \u0085"}\n\ndata:{"b":\ndata: 1}\n\n: ping\n\ndata: [DONE]\n\n'
    assert console.browser.js(STREAM, wire) == [[{"a": "é日\u2028 \u0085"}, {"b": 1}]]


def test_error_event_ends_the_stream_with_its_message(console: Console) -> None:
    wire = 'data: {"a": 1}\n\ndata: {"error": {"message": "It broke.", "code": "engine_failed"}}\n\ndata: [DONE]\n\n'
    assert console.browser.js(STREAM, wire) == [[{"a": 1}, "It broke."]]


def test_stream_without_an_end_is_an_error(console: Console) -> None:
    assert console.browser.js(STREAM, 'data: {"a": 1}\n\n') == [[{"a": 1}, "The stream ended before the answer was complete."]]
