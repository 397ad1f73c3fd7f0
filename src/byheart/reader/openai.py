"""Any OpenAI-compatible server as a reader: vLLM, llama.cpp, Ollama, a vendor.

Owns the requests and what is read from the answers. Knows HTTP only through `server`, prompts and drafts only through
`prompt` and `answers`. The server's tokenizer is out of reach, so prompts are budgeted by a rough count.
"""

from __future__ import annotations

import bisect
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from byheart.config import ReaderConfig
from byheart.errors import ReaderError, ReaderProtocolError
from byheart.interfaces import Floats, Reading
from byheart.reader.answers import parse_output
from byheart.reader.prompt import Budget, Message, Prompt, as_text, build_prompt, check_answers, one_passage_each
from byheart.reader.server import Server
from byheart.types import Draft

logger = logging.getLogger(__name__)

BYTES_PER_TOKEN = 3
TOKENS_PER_MESSAGE = 8


class OpenAIReader:
    """A language model behind an OpenAI-compatible server as `Reader`.

    `Draft.confidence` is None: servers differ in what they tell of probabilities. `Draft.prompt_tokens` is the
    server's own count where it gives one, else the rough one.
    """

    def __init__(self, config: ReaderConfig, api_key: str | None, sleep: Callable[[float], None] = time.sleep) -> None:
        """Check address and key; nothing is sent yet.

        Args:
            config: Address, model, budgets, time-out and retries; without a model the server's first is asked.
            api_key: Sent as a bearer token; None sends none.
            sleep: Waits for so many seconds between tries.

        Raises:
            ConfigError: The address is no HTTP URL, or the key cannot be sent in a header.
        """
        self.config = config
        self.server = Server(config, api_key, sleep)

    @property
    def name(self) -> str:
        """Name of the reader, as in the configuration."""
        return "openai"

    @cached_property
    def model(self) -> str:
        """The configured model, or the first that the server lists."""
        if self.config.model:
            return self.config.model
        try:
            return str(self.server.call("/models")["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise ReaderError(f"{self.server.shown_url} lists no model; set reader.model to one it serves") from None

    def close(self) -> None:
        """Close open connections."""
        self.server.close()

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        """Return one draft per reading.

        Args:
            readings: Questions with their passages.

        Returns:
            The drafts.

        Raises:
            ReaderError: A prompt exceeds the budget, or the server cannot be reached, refuses or fails.
            ReaderProtocolError: The server answers with something else than a chat completion.
            ReaderTimeoutError: The server does not answer in time.
        """
        return [self._draft(reading) for reading in readings]

    def stream(self, reading: Reading) -> Iterator[Draft]:
        """Yield the draft as it grows; the last is complete.

        Args:
            reading: Question and passages.

        Yields:
            Drafts, each citing only what it used.

        Raises:
            ReaderError: The prompt exceeds the budget, or the server cannot be reached, refuses or fails.
            ReaderProtocolError: The stream is malformed, or ends before the answer does.
            ReaderTimeoutError: The server does not answer in time.
        """
        prompt = self.prompt(reading)
        output, finish, tokens = "", None, prompt.tokens
        last: Draft | None = None
        for event in self.server.events("/chat/completions", {**self._request(prompt), "stream": True}):
            tokens = _prompt_tokens(event, tokens)
            piece, ended = self._delta(event)
            output, finish = output + piece, ended or finish
            draft = parse_output(output, prompt, finished=False)
            if draft != last:
                yield draft
                last = draft
        if finish is None:
            raise ReaderProtocolError(f"{self.server.shown_url} ended the stream before the answer; check its log")
        yield self._finish(output, finish, _with_tokens(prompt, tokens))

    def score(self, readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> list[Floats]:
        """Return how likely the model holds given answers, with one passage in the prompt at a time.

        Uses `/completions` with `echo` and `logprobs`, which vLLM and few others serve.

        Args:
            readings: Questions with their passages.
            answers: Answers to score, per reading.

        Returns:
            Sums of the log-probabilities of each answer's tokens. Shapes `passages answers`; without passages
            (closed book) `1 answers`.

        Raises:
            InputError: There is not one list of answers per reading, or an answer is blank.
            ReaderError: A prompt exceeds the budget, or the server cannot be reached, refuses or fails.
            ReaderProtocolError: The server does not tell the probabilities of the prompt.
            ReaderTimeoutError: The server does not answer in time.
        """
        check_answers(readings, answers)
        return [self._scores(reading, wanted) for reading, wanted in zip(readings, answers, strict=True)]

    def prompt(self, reading: Reading) -> Prompt:
        """Return what the model reads for a question.

        Args:
            reading: Question and passages.

        Returns:
            The prompt, within `max_prompt_tokens` by the rough count.

        Raises:
            ReaderError: The question, or every passage, exceeds the token budget.
        """
        return build_prompt(reading, Budget(self.config.max_prompt_tokens, rough_tokens))

    def _draft(self, reading: Reading) -> Draft:
        prompt = self.prompt(reading)
        answer = self.server.call("/chat/completions", self._request(prompt))
        try:
            choice = answer["choices"][0]
            output, finish = choice["message"].get("content"), choice.get("finish_reason")
        except (KeyError, IndexError, TypeError, AttributeError):
            raise self._not_promised("choices[0].message", answer) from None
        # A model that refuses, or that thinks until its tokens run out, says null.
        if not isinstance(output, str | None):
            raise self._not_promised("choices[0].message.content as text", answer)
        return self._finish(output or "", finish, _with_tokens(prompt, _prompt_tokens(answer, prompt.tokens)))

    def _finish(self, output: str, finish: str | None, prompt: Prompt) -> Draft:
        if finish == "length":
            logger.warning("an answer was ended at its limit; raise reader.max_answer_tokens for longer ones")
        return parse_output(output, prompt)

    def _request(self, prompt: Prompt) -> dict[str, object]:
        return {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in prompt.messages],
            "max_tokens": self.config.max_answer_tokens,
            "temperature": 0,
        }

    def _delta(self, event: dict[str, Any]) -> tuple[str, str | None]:
        """Return the new words in an event, and why the answer ended, if it did."""
        try:
            if not event["choices"]:
                return "", None
            choice = event["choices"][0]
            piece = (choice.get("delta") or {}).get("content") or ""
        except (KeyError, IndexError, TypeError, AttributeError):
            raise self._not_promised("choices[0].delta", event) from None
        if not isinstance(piece, str):
            raise self._not_promised("choices[0].delta.content as text", event)
        return piece, choice.get("finish_reason")

    def _scores(self, reading: Reading, answers: Sequence[str]) -> Floats:
        rows = [[self._score_one(single, answer) for answer in answers] for single in one_passage_each(reading)]
        return np.array(rows, np.float32)

    def _score_one(self, reading: Reading, answer: str) -> float:
        before = as_text(self.prompt(reading).messages)
        whole = f"{before} {answer}"
        body: dict[str, object] = {"model": self.model, "prompt": whole, "echo": True, "logprobs": 0}
        said = self.server.call("/completions", {**body, "max_tokens": 1, "temperature": 0})
        try:
            tokens = said["choices"][0]["logprobs"]
            logs, offsets = list(tokens["token_logprobs"]), list(tokens["text_offset"])
            # The answer begins in the last token that starts no later than its first character.
            first, end = bisect.bisect_right(offsets, len(before)) - 1, bisect.bisect_left(offsets, len(whole))
            total = math.fsum(logs[first:end])
        except (KeyError, IndexError, TypeError):
            raise self._no_echo() from None
        if offsets[:1] != [0] or not first < end <= len(logs):
            raise self._no_echo()
        return total

    def _no_echo(self) -> ReaderProtocolError:
        return ReaderProtocolError(
            f"{self.server.shown_url} does not give the log-probabilities of a prompt (/completions with echo and "
            "logprobs), which scoring needs; serve the model with vLLM, or set reader.name to causal-lm"
        )

    def _not_promised(self, wanted: str, answer: dict[str, Any]) -> ReaderProtocolError:
        seen = self.server.redacted(str(answer))
        return ReaderProtocolError(f"{self.server.shown_url} answered without {wanted}: {seen}; check reader.url")


def rough_tokens(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages have: a third of their UTF-8 bytes, and eight each for the template.

    Rarely too low: English has about four bytes a token, Chinese about three, dense tables and code two to three.

    Args:
        messages: The turns.

    Returns:
        The count, rounded up.
    """
    return sum(math.ceil(len(m.content.encode()) / BYTES_PER_TOKEN) + TOKENS_PER_MESSAGE for m in messages)


def _prompt_tokens(answer: dict[str, Any], otherwise: int) -> int:
    usage = answer.get("usage")
    said = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return said if isinstance(said, int) else otherwise


def _with_tokens(prompt: Prompt, tokens: int) -> Prompt:
    return Prompt(prompt.question, prompt.messages, prompt.used, tokens)
