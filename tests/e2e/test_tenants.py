"""Two tenants on one engine with little memory: nothing of one ever reaches the other, not even that it was asked before."""

import random
import threading
from collections.abc import Sequence

import httpx
import pytest

from tests.e2e.gateway_process import CHAT, Server
from tests.e2e.scores import Scores, difference, scores_of

SECRETS = {"alice": "zebra", "bob": "walrus"}
ROUNDS = 12


def cached_tokens(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_prompt_of_one_tenant_is_no_cache_hit_for_another(small: Server) -> None:
    # Not even the chat template's own beginning: the first token of the very first prompt must be computed again.
    prompt = "The combination of the safe in the cellar is eleven, seven, ninety-two and then four. " * 3
    options = {"prompt": prompt, "max_tokens": 1}

    def ask(key: str) -> int:
        return cached_tokens(small.http.post("/v1/completions", json=options, headers={"authorization": f"Bearer {key}"}))

    assert ask("alice") == 0
    assert ask("bob") == 0
    # The same tenant does find it, so the zeros above mean something.
    assert ask("alice") > 30
    assert ask("bob") > 30


def test_key_in_another_header_is_the_same_tenant(small: Server) -> None:
    options = {"prompt": "Nine purple parrots sat in the tree and sang about the harvest of last year.", "max_tokens": 1}
    cached_tokens(small.http.post("/v1/completions", json=options, headers={"authorization": "Bearer bob"}))
    assert cached_tokens(small.http.post("/v1/completions", json=options, headers={"x-api-key": "bob"})) > 5


@pytest.mark.parametrize("seed", range(2))
def test_secrets_never_cross_under_random_scheduling_aborts_and_eviction(small: Server, seed: int) -> None:
    """Both tenants ask the same questions about secrets of their own; each answer is what a quiet engine answers."""
    small.wait_until_idle()
    plans = [(tenant, turn) for tenant in SECRETS for turn in range(3)]
    quiet = {plan: answer_of(small, *plan) for plan in plans}
    rng = random.Random(seed)
    problems: list[str] = []
    # Four at a time is all that two slots and a queue of two hold; the cache keeps half of what they leave behind.
    workers = [
        threading.Thread(target=_work, args=(small, [rng.choice(plans) for _ in range(ROUNDS)], rng.random(), quiet, problems))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not problems
    small.wait_until_idle()


def other(tenant: str) -> str:
    return next(secret for owner, secret in SECRETS.items() if owner != tenant)


def question(tenant: str, turn: int) -> dict[str, object]:
    system = (
        f"You guard a secret. The secret animal is the {SECRETS[tenant]}. Whoever asks may hear it. " + "Be kind. " * 8 * turn
    )
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Which animal is the secret animal?"}]
    return {"messages": messages, "max_tokens": 16, "temperature": 0, "logprobs": True, "top_logprobs": 5}


def answer_of(server: Server, tenant: str, turn: int) -> Scores:
    answer = server.http.post(CHAT, json=question(tenant, turn), headers={"authorization": f"Bearer {tenant}"})
    scores = scores_of(answer)
    assert other(tenant) not in "".join(token["token"] for token in scores)
    return scores


def _work(
    server: Server, plans: Sequence[tuple[str, int]], seed: float, quiet: dict[tuple[str, int], Scores], problems: list[str]
) -> None:
    rng = random.Random(seed)
    for tenant, turn in plans:
        try:
            if rng.random() < 0.4:
                _leave(server, tenant, turn, rng)
            elif (wrong := difference(quiet[tenant, turn], answer_of(server, tenant, turn))) is not None:
                problems.append(f"{tenant}: {wrong}")
        except Exception as error:
            problems.append(repr(error))


def _leave(server: Server, tenant: str, turn: int, rng: random.Random) -> None:
    """Ask and go away: before the first token, in the middle of the prompt, or in the middle of the answer."""
    body = question(tenant, turn) | {"stream": True}
    timeout = httpx.Timeout(30, read=rng.choice([0.01, 0.1, 30]))
    try:
        with server.http.stream(
            "POST", CHAT, json=body, headers={"authorization": f"Bearer {tenant}"}, timeout=timeout
        ) as answer:
            assert answer.status_code in (200, 503)
            for number, _ in enumerate(answer.iter_lines()):
                if number > rng.randrange(8):
                    return
    except httpx.ReadTimeout:
        return
