"""How large a regular expression becomes when its counted repetitions are written out.

`((a{1,1000}){1,1000}){1,1000}` is 30 characters and a billion places. The estimate only has to be right about multiplication:
the compiler decides whether the pattern is one at all.
"""

import re

_COUNT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")


def pattern_size(pattern: str) -> int:
    """Return the number of places (characters, classes) after writing repetitions out. Linear in the pattern."""
    groups, last, at = [0], 0, 0
    while at < len(pattern):
        char = pattern[at]
        count = _COUNT.match(pattern, at) if char == "{" else None
        if count:
            times = int(count[2] or count[1])
            groups[-1] += last * max(times - 1, 0)
            last, at = last * max(times, 1), count.end()
            continue
        if char == "(":
            groups.append(0)
            last = 0
        elif char == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif char not in "*+?|":
            at = _class_end(pattern, at) if char == "[" else at + (char == "\\")
            last = 1
            groups[-1] += 1
        at += 1
    return sum(groups)


def _class_end(pattern: str, at: int) -> int:
    """Position of the `]` that ends the class which begins at `at`."""
    at += 2 if pattern[at + 1 : at + 2] == "]" else 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at
