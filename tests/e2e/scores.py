"""Whether two greedy answers are the same up to rounding.

llama.cpp computes a token by other kernels alone than in a batch, and with other partial sums where a part of the prompt came
from the cache: log probabilities of SmolLM2 then differ by up to 0.2, and two tokens that are as likely as each other change
places. What the model attends to wrongly moves them by far more. So: equal within a tolerance up to the first token that
differs, and that one nearly as likely in the one answer as in the other.
"""

import httpx

TOLERANCE = 0.7

Scores = list[dict]


def scores_of(answer: httpx.Response) -> Scores:
    """The tokens of an answer that was asked for with `logprobs` and `top_logprobs`."""
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["logprobs"]["content"]


def difference(quiet: Scores, now: Scores) -> str | None:
    """What sets two answers apart, None when it is rounding."""
    for position, (expected, got) in enumerate(zip(quiet, now, strict=False)):
        likely = {token["token"]: token["logprob"] for token in expected["top_logprobs"]}
        if abs(likely.get(got["token"], -99) - got["logprob"]) > TOLERANCE:
            return f"token {position} is {got['token']!r} ({got['logprob']:.2f}), expected {likely}"
        if got["token"] != expected["token"]:
            return None
    return None
