"""What a language model wrote, as a draft with exact citations.

Owns the reading of "I don't know", of verdicts and of `[n]`, and the search for the words in a passage that an answer
rests on. Knows no model. A citation always points into a passage that was read: a number that was made up is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from byheart.reader.prompt import DONT_KNOW, Prompt, neutralise
from byheart.reader.wording import Span, occurrences, words
from byheart.types import Citation, Draft, Kind, Passage, Verdict

_CITED = re.compile(r"\s*\[(?:passages?\s*)?(\d{1,6}(?:\s*[,;]\s*\d{1,6})*)\]", re.IGNORECASE)
_HALF_CITED = re.compile(r"\s*\[[^\]\n]{0,40}$")
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_LABEL = re.compile(r"^(?:the )?(?:short |final )?answer(?: is)?\s*:\s*", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"(?:(?:sorry|unfortunately)\W+)?(?:"
    r"i (?:really )?(?:do not|don'?t) know(?:\W*$|[.,;:!]| (?:the answer|based on|from|because|as|since|if|whether)\b)"
    r"|i (?:cannot|can'?t|am unable to|could not|couldn'?t) (?:answer|say|tell|determine|find)\b"
    r"|(?:the|these|none of the) (?:given |provided )?passages? (?:do(?:es)? not|don'?t|doesn'?t|provides? no) "
    r"|(?:unknown|unanswerable|not known|no answer|n/a|not enough info(?:rmation)?|not mentioned|not stated)\W*$)",
    re.IGNORECASE,
)
_VERDICT = re.compile(
    r"(?P<not>\bnot |n't |\bcannot |\bneither )?\b(?:(?P<yes>support(?:s|ed)?)|(?P<no>refute[sd]?))\b", re.IGNORECASE
)
_ECHO = re.compile(r"supports?\W+(?:or\W+)?refutes?", re.IGNORECASE)
_TRUTH = re.compile(r"(?:the claim is )?(?:(?P<yes>true|correct)|(?P<no>false|incorrect))\b", re.IGNORECASE)
_WRAPPING = ' "\u201c\u201d*`'
# A sentence ends at a stop before a space, at a full-width stop, at a blank line, or with the text.
_SENTENCE = re.compile(
    r"\S.*?(?:[.!?\u061f\u0964][\"'\u201d\u2019)\]]*(?=\s|\Z)"
    r"|[\u3002\uff01\uff1f][\u300d\u300f\u201d\u2019]*|(?=\n\s*\n)|\Z)",
    re.DOTALL,
)


def parse_output(output: str, prompt: Prompt, confidence: float | None = None, finished: bool = True) -> Draft:
    """Return what a model wrote as a draft.

    Args:
        output: The model's words, all of them or, while they stream in, the first.
        prompt: What it was given.
        confidence: Probability of the words, kept only where there is an answer.
        finished: Whether more words may follow; an open `[1` and a beginning "I don" are then held back.

    Returns:
        The draft; its citations are a subset of the passages in the prompt.
    """
    spoken = _THOUGHT.sub("", output).rpartition("</think>")[2]
    shown = spoken if finished else _HALF_CITED.sub("", spoken)
    is_claim = prompt.question.kind is Kind.CLAIM
    text = parse_verdict(_CITED.sub("", shown)) if is_claim else parse_answer(shown, finished)
    used = tuple(passage.id for passage in prompt.used)
    if text is None:
        return Draft(None, None, (), used, prompt.tokens)
    text = text if is_claim else _as_written(text, prompt.used)
    wanted = prompt.question.text if is_claim else text
    # A search for the words waits for all of them; a verdict's words are in no passage.
    cited = _cited(spoken, prompt.used) or (_containing(text, prompt.used) if finished and not is_claim else [])
    citations = tuple(cite(passage, wanted, prompt.question.text) for passage in cited)
    return Draft(text, confidence, citations, used, prompt.tokens)


def parse_answer(output: str, finished: bool = True) -> str | None:
    """Return the answer in a model's words, without citations.

    Args:
        output: The model's words.
        finished: Whether more words may follow.

    Returns:
        Its first paragraph on one line; None where it says that it does not know, or nothing.
    """
    paragraphs = _CITED.sub("", output).strip().split("\n\n")
    text = _LABEL.sub("", " ".join(paragraphs[0].split())).strip(_WRAPPING)
    plain = text.replace("\u2019", "'")
    beginning = not finished and DONT_KNOW.casefold().startswith(plain.casefold())
    return None if not words(text) or beginning or _UNKNOWN.match(plain) else text


def parse_verdict(output: str) -> str | None:
    """Return the verdict in a model's words.

    Args:
        output: The model's words, in any case, with or without explanation.

    Returns:
        `SUPPORTS` or `REFUTES`; None where it gives none, both, or one negated ("not supported").
    """
    text = " ".join(output.replace("\u2019", "'").split()).strip(_WRAPPING + ".:")
    if _ECHO.search(text):
        return None
    found = list(_VERDICT.finditer(text))
    if found and found[0].start() == 0 and not found[0]["not"]:
        found = found[:1]
    if any(match["not"] for match in found):
        return None
    truth = _TRUTH.match(text)
    said = {"yes" if match["yes"] else "no" for match in (found or ([truth] if truth else []))}
    if len(said) != 1:
        return None
    return (Verdict.SUPPORTS if said == {"yes"} else Verdict.REFUTES).value


def _as_written(text: str, passages: Sequence[Passage]) -> str:
    """Return the answer with the brackets that its passage has, where it was copied from one."""
    for passage in passages:
        place = neutralise(passage.text).find(text)
        if place >= 0:
            return passage.text[place : place + len(text)]
    return text


def _cited(output: str, passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages that the model names, in its order; numbers that it made up are dropped."""
    numbers = [int(number) for match in _CITED.finditer(output) for number in re.findall(r"\d+", match[1])]
    return [passages[number - 1] for number in dict.fromkeys(numbers) if 1 <= number <= len(passages)]


def _containing(answer: str, passages: Sequence[Passage]) -> list[Passage]:
    """Return the first passage in which the answer occurs."""
    return [passage for passage in passages if occurrences(answer, passage.text)][:1]


def cite(passage: Passage, wanted: str, question: str) -> Citation:
    """Return the sentence of a passage that holds an answer best.

    Args:
        passage: Where to look.
        wanted: The answer, or the claim that is judged.
        question: Decides between sentences that hold the answer equally well.

    Returns:
        The exact stretch: whole sentences, or the whole passage where no word is shared.
    """
    start, end = _best_stretch(passage.text, wanted, question)
    return Citation(
        passage_id=passage.id,
        page=passage.page,
        title=passage.title,
        start=passage.start + start,
        end=passage.start + end,
        text=passage.text[start:end],
        sheet=passage.sheet,
    )


def _best_stretch(text: str, wanted: str, question: str) -> Span:
    spans = sentences(text)
    rarity = Counter(word for start, end in spans for word in set(words(text[start:end])))

    def shared(span: Span, other: str) -> float:
        # A word counts less the more sentences have it: stop words decide nothing.
        return sum(1 / rarity[word] for word in set(words(text[span[0] : span[1]])) & set(words(other)))

    stretches = [_covering(place, spans) for place in occurrences(wanted, text)]
    if stretches:
        return max(stretches, key=lambda span: shared(span, question))
    best = max(spans, key=lambda span: (shared(span, wanted), shared(span, question)), default=(0, len(text)))
    return best if shared(best, wanted) or shared(best, question) else (0, len(text))


def _covering(place: Span, spans: Sequence[Span]) -> Span:
    """Return the sentences that a stretch lies in, as one stretch."""
    touched = [span for span in spans if span[0] < place[1] and span[1] > place[0]]
    return (touched[0][0], touched[-1][1]) if touched else place


def sentences(text: str) -> list[Span]:
    """Return the sentences of a text, as places in it, without the space around them."""
    return [(m.start(), m.start() + len(m[0].rstrip())) for m in _SENTENCE.finditer(text)]
