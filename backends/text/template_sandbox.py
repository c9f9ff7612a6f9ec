"""A Jinja environment for chat templates that came with a model file, and so from a stranger.

Jinja's sandbox keeps a template away from Python's internals; it does not keep it from running for ever or from filling the
memory. Here every loop turn, call, filter, operator and output pays into a `Budget` before the work is done, which is arranged
by rewriting the syntax tree once at compile time. The globals are those that `transformers` offers, and `{% generation %}` and
loop controls work. What one built-in operation does on bounded values is not interrupted; the engine's process is watched for
the rest.
Source: jinja2 3.1.6 `sandbox.py` and `compiler.py`; transformers `utils/chat_template_utils.py`.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from jinja2 import TemplateError, Undefined, nodes, pass_context
from jinja2.defaults import DEFAULT_NAMESPACE
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from backends.text.template_budget import TemplateLimit, check_length, current
from backends.text.template_filters import WIDE_FIELD, check_format, check_method, check_operator, filters

_MAX_TIME_FORMAT = 128


class RaisedByTemplate(TemplateError):
    """The template called `raise_exception`: it refuses the conversation."""


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates. Compiling and rendering must happen inside `template_budget.spending`."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation], finalize=_printed
        )
        self.filters = filters() | {"_charge": _charge, "_measured": _measured}
        self.globals = {
            **{name: DEFAULT_NAMESPACE[name] for name in ("dict", "cycler", "joiner", "namespace")},
            "range": _range,
            "raise_exception": _raise_exception,
            "strftime_now": lambda fmt: _strftime(now(), fmt),
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _Meter().visit(super()._parse(source, name, filename))
        assert isinstance(tree, nodes.Template)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Do an operation after checking how large its result will be."""
        budget = current()
        budget.step()
        check_operator(operator, left, right)
        result = self.binop_table[operator](left, right)
        if isinstance(result, (list, tuple)):
            budget.measured(result)
        return result

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something after checking what it may cost."""
        budget = current()
        budget.step()
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, (str, int)):
            args = check_method(owner, obj.__name__, args, kwargs)
        result = super().call(context, obj, *args, **kwargs)
        if isinstance(result, str):
            budget.chars(len(result))
        elif isinstance(result, (list, tuple, dict)):
            budget.measured(result)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Hand out `str.format` and `format_map` with a check of what they make: `call` only sees what Jinja wraps them in."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        template = value.__self__

        def checked(*args: Any, **kwargs: Any) -> str:
            check_format(template, [*args, kwargs])
            return wrapped(*args, **kwargs)

        return checked


class _Meter(NodeTransformer):
    """Writes the charges into a syntax tree."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _charge_statement(0, node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, _charge_statement(0, node.lineno))
        return node

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node] | nodes.Node:
        self.generic_visit(node)
        texts = [child.data for child in node.nodes if isinstance(child, nodes.TemplateData)]
        texts += [child.value for child in node.nodes if isinstance(child, nodes.Const) and isinstance(child.value, str)]
        return [_charge_statement(sum(map(len, texts)), node.lineno), node] if texts else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(list(node.nodes), lineno=node.lineno), "_concat", node.lineno)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        return self._literal(node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        return self._literal(node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        return self._literal(node) if node.ctx == "load" else node

    def _literal(self, node: nodes.Literal) -> nodes.Node:
        """Literals of constants are small; others may hold the same large value many times."""
        self.generic_visit(node)
        is_small = all(isinstance(child, nodes.Const) for child in node.iter_child_nodes())
        return node if is_small else _filter(node, "_measured", node.lineno)


def _filter(node: nodes.Expr, name: str, lineno: int) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=lineno)


def _charge_statement(size: int, lineno: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(_filter(nodes.Const(size, lineno=lineno), "_charge", lineno), lineno=lineno)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; for rendering it is its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_context
def _charge(context: Context, size: int) -> None:
    budget = current()
    budget.step()
    budget.chars(size)


@pass_context
def _measured(context: Context, value: Any) -> Any:
    current().measured(value)
    return value


def _printed(value: Any) -> Any:
    current().printed(value)
    return value


def _range(*args: int) -> range:
    numbers = range(*args)
    check_length(len(numbers))
    return numbers


def _raise_exception(message: Any = "") -> None:
    raise RaisedByTemplate("" if isinstance(message, Undefined) else str(message))


def _strftime(now: datetime, fmt: str) -> str:
    if len(fmt) > _MAX_TIME_FORMAT or WIDE_FIELD.search(fmt):
        raise TemplateLimit(f"it formats the time with more than {_MAX_TIME_FORMAT} characters or a width of five digits")
    return now.strftime(fmt)
