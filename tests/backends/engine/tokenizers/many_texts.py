"""Texts that tokenizers stumble over: scripts, emoji, white space, control characters, and the spellings of special tokens."""

from collections.abc import Sequence

from hypothesis import strategies as st

_WORDS = (
    " the, Hello,world,ing,1234567, 2024, naïve,Straße,привет, 日本語,ひらがな,カタカナ,한국어,العربية, אבג,हिन्दी,ภาษาไทย,"
    "កាន់តែ,🦙,😶‍🌫️,👨‍👩‍👧,'s,'LL,'ve,y'all,½,²,Ⅷ,٣,e\u0301,ǅ,ʰ,€,»,\u00a0,\u200d,\u0085,\ufeff,\u2581,\U00020000,"
    "\x00,\x01,\x1b,\x7f, ,  ,   ,\t,\n,\n\n,\r\n,\n    ,<,>,|,[,],</,/>,{},\\,.,!,?"
)
WORDS = [*_WORDS.split(","), ",", ", "]


def texts(special: Sequence[str] = (), without: str = "") -> st.SearchStrategy[str]:
    """Texts out of words, arbitrary characters and special tokens; none of the characters `without` is in them."""
    words = [word for word in WORDS if not set(word) & set(without)]
    parts = [st.sampled_from(words), st.text(st.characters(codec="utf-8", exclude_characters=without), max_size=5)]
    if special:
        parts.append(st.sampled_from(special))
    return st.lists(st.one_of(parts), max_size=40).map("".join)
