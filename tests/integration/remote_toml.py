"""The configuration of most tests here: one route, `chat`, over one or two upstreams, of which the first is asked first."""

_MODEL = """
[models.{name}]
engine = "remote"
url = "{url}"
model = "theirs"
first_token_timeout_s = {patience_s}
between_tokens_timeout_s = {patience_s}
max_response_bytes = 65536
{lines}
"""


def one(url: str, *lines: str, patience_s: float = 10.0) -> str:
    """A route with one upstream; `lines` are more settings of it."""
    model = _MODEL.format(name="first", url=url, patience_s=patience_s, lines="\n".join(lines))
    return f'{model}\n[routes.chat]\ndeployments = [{{ model = "first" }}]\nprivate = true\n'


def two(first: str, second: str, *, patience_s: float = 10.0) -> str:
    """A route with two upstreams; the second one is asked where the first cannot."""
    models = [
        _MODEL.format(name=name, url=url, patience_s=patience_s, lines="")
        for name, url in (("first", first), ("second", second))
    ]
    members = '{ model = "first" }, { model = "second", tier = 1 }'
    return f"{''.join(models)}\n[routes.chat]\ndeployments = [{members}]\nprivate = true\n"
