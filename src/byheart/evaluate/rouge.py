"""ROUGE-L as KILT's official scorer computes it, oddities included.

Owns one number for two texts. Sentences end at full stops, words are split at spaces and count once however often they
occur, and what is shared is the union of the longest common subsequences of all pairs of sentences.
Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries", section 3.2; checked against `rouge` 1.0.1.
"""

from __future__ import annotations

from collections.abc import Sequence

SMOOTHING = 1e-8  # keeps 0 / 0 defined, and makes equal texts score 0.999999995


def rouge_l(guess: str, answer: str) -> float:
    """Return the F-measure of two texts, from 0 to just below 1.

    Args:
        guess: What was answered.
        answer: The right answer.

    Returns:
        The F-measure; 0 where one of the texts has no sentence (is empty, or full stops alone).
    """
    guessed, wanted = _sentences(guess), _sentences(answer)
    if not guessed or not wanted:
        return 0.0
    shared = {word for right in wanted for said in guessed for word in _common_words(right, said)}
    precision = len(shared) / len({word for sentence in guessed for word in sentence})
    recall = len(shared) / len({word for sentence in wanted for word in sentence})
    return 2 * (precision * recall) / (precision + recall + SMOOTHING)


def _sentences(text: str) -> list[list[str]]:
    """Split a text; a blank between two full stops is a sentence of one empty word, as in the official scorer."""
    return [piece.split() or [""] for piece in text.split(".") if piece]


def _common_words(right: Sequence[str], said: Sequence[str]) -> list[str]:
    """Return one longest common subsequence; where several are as long, the choice must be the official one."""
    lengths = _lengths(right, said)
    i, j, words = len(right), len(said), list[str]()
    while i and j:
        if right[i - 1] == said[j - 1]:
            i, j = i - 1, j - 1
            words.append(right[i])
        elif lengths[i - 1][j] > lengths[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words


def _lengths(right: Sequence[str], said: Sequence[str]) -> list[list[int]]:
    """Return the lengths of the longest common subsequences of all pairs of prefixes."""
    rows = [[0] * (len(said) + 1)]
    for word in right:
        above, row = rows[-1], [0]
        for j, other in enumerate(said):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        rows.append(row)
    return rows
