"""Any Hugging Face causal language model as a reader.

Owns the way from a prompt to tokens, greedy decoding and the log-probabilities of given answers. Knows prompts and
drafts only through `prompt` and `answers`. Questions are read one by one, so that nothing is padded and an answer
never depends on what else is asked.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from byheart.config import ReaderConfig
from byheart.errors import ConfigError, MissingExtraError, ReaderError
from byheart.interfaces import Floats, Reading
from byheart.reader.answers import parse_output
from byheart.reader.prompt import (
    PLAIN_STOPS,
    Budget,
    Message,
    Prompt,
    as_text,
    build_prompt,
    check_answers,
    one_passage_each,
)
from byheart.reader.smollm2 import NAME, smollm2_folder
from byheart.text.models import model_folder
from byheart.types import Draft

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Token:
    """A generated token and the natural logarithm of its probability."""

    id: int
    log_probability: float


class CausalLMReader:
    """A transformers causal language model as `Reader`.

    `Draft.confidence` is the geometric mean of the probabilities of the answer's tokens. It ranks answers and is *not*
    calibrated: 0.9 does not mean right nine times in ten.
    """

    def __init__(self, config: ReaderConfig, device: str = "cpu") -> None:
        """Remember what to load; files are looked for and weights read when first needed.

        Args:
            config: Model and budgets; an empty model is SmolLM2-135M-Instruct.
            device: torch device.
        """
        self.config = config
        self.device = device

    @property
    def name(self) -> str:
        """Name of the reader, as in the configuration."""
        return "causal-lm"

    @cached_property
    def folder(self) -> Path:
        """Folder with the model's weights, configuration and tokenizer."""
        return smollm2_folder() if self.config.model in ("", NAME) else model_folder(self.config.model)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer, with its chat template where it has one."""
        _require_transformers()
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.folder)

    @cached_property
    def model(self) -> Any:
        """The language model, in evaluation mode on the device."""
        return load_causal_lm(self.folder, self.device)

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""
        said = self.model.generation_config.eos_token_id
        ids = said if isinstance(said, list) else [said]
        return frozenset(i for i in (*ids, self.tokenizer.eos_token_id) if i is not None)

    def read(self, readings: Sequence[Reading]) -> list[Draft]:
        """Return one draft per reading.

        Args:
            readings: Questions with their passages.

        Returns:
            The drafts; an answer that reaches `max_answer_tokens` ends there, with a warning in the log.

        Raises:
            ReaderError: A question, or every passage of one, exceeds the token budget.
        """
        return [self._draft(reading) for reading in readings]

    def stream(self, reading: Reading) -> Iterator[Draft]:
        """Yield the draft as it grows; the last is what `read` returns.

        Args:
            reading: Question and passages.

        Yields:
            Drafts, each citing only what it used; confidence comes with the last.

        Raises:
            ReaderError: The question, or every passage, exceeds the token budget.
        """
        prompt = self.prompt(reading)
        tokens: list[_Token] = []
        last: Draft | None = None
        for token in self._generate(prompt):
            tokens.append(token)
            output = self._decode(tokens)
            draft = parse_output(output, prompt, finished=False)
            # A character of several bytes may still lack some.
            if draft != last and not output.endswith("\ufffd"):
                yield draft
                last = draft
        yield self._finish(tokens, prompt)

    def score(self, readings: Sequence[Reading], answers: Sequence[Sequence[str]]) -> list[Floats]:
        """Return how likely the model holds given answers, with one passage in the prompt at a time.

        Args:
            readings: Questions with their passages.
            answers: Answers to score, per reading.

        Returns:
            Sums of the log-probabilities of each answer's tokens, the end of the answer not counted. Shapes
            `passages answers`; without passages (closed book) `1 answers`.

        Raises:
            InputError: There is not one list of answers per reading, or an answer is blank.
            ReaderError: A question with one passage exceeds the token budget.
        """
        check_answers(readings, answers)
        return [
            np.array([self._score_one(single, wanted) for single in one_passage_each(reading)], np.float32)
            for reading, wanted in zip(readings, answers, strict=True)
        ]

    def prompt(self, reading: Reading) -> Prompt:
        """Return what the model reads for a question.

        Args:
            reading: Question and passages.

        Returns:
            The prompt, within `max_prompt_tokens` and within the model's window less the answer.

        Raises:
            ReaderError: The question, or every passage, exceeds the token budget.
        """
        window = getattr(self.model.config, "max_position_embeddings", None)
        room = window - self.config.max_answer_tokens if window else self.config.max_prompt_tokens
        budget = Budget(min(self.config.max_prompt_tokens, room), lambda m: len(self._ids(m)), self._special_tokens)
        return build_prompt(reading, budget)

    @cached_property
    def _cache_argument(self) -> str:
        """What this version of transformers calls the cache."""
        return "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"

    @cached_property
    def _special_tokens(self) -> tuple[str, ...]:
        added = self.tokenizer.added_tokens_decoder.values()
        return tuple(token.content for token in added if token.special)

    def _ids(self, messages: Sequence[Message]) -> list[int]:
        templated = bool(self.tokenizer.chat_template)
        text = _render(self.tokenizer, messages) if templated else as_text(messages)
        # A chat template writes the special tokens itself.
        return list(self.tokenizer(text, add_special_tokens=not templated)["input_ids"])

    def _draft(self, reading: Reading) -> Draft:
        prompt = self.prompt(reading)
        return self._finish(list(self._generate(prompt)), prompt)

    def _finish(self, tokens: Sequence[_Token], prompt: Prompt) -> Draft:
        mean = sum(token.log_probability for token in tokens) / max(len(tokens), 1)
        return parse_output(self._decode(tokens), prompt, confidence=min(1.0, math.exp(mean)))

    def _decode(self, tokens: Sequence[_Token]) -> str:
        text = str(self.tokenizer.decode([token.id for token in tokens], skip_special_tokens=True))
        return text if self.tokenizer.chat_template else _before_stop(text)

    def _generate(self, prompt: Prompt) -> Iterator[_Token]:
        """Yield the likeliest next token until the answer ends."""
        cache, pending = self._prefill(prompt)
        tokens: list[_Token] = []
        while len(tokens) < self.config.max_answer_tokens:
            logs, cache = self._step([pending], cache)
            pending = int(logs[-1].argmax())
            if pending in self.end_tokens:
                return
            tokens.append(_Token(pending, float(logs[-1, pending])))
            yield tokens[-1]
            if not self.tokenizer.chat_template and self._has_stopped(tokens):
                return
        logger.warning("an answer was ended at %d tokens; raise reader.max_answer_tokens for longer ones", len(tokens))

    def _has_stopped(self, tokens: Sequence[_Token]) -> bool:
        text = str(self.tokenizer.decode([token.id for token in tokens])).lstrip()
        return any(stop in text for stop in PLAIN_STOPS)

    def _prefill(self, prompt: Prompt) -> tuple[Any, int]:
        """Return the cache of all prompt tokens but the last, and the last."""
        import torch

        ids = self._ids(prompt.messages)
        # Without the head: the logits of a long prompt over a whole vocabulary would take hundreds of megabytes.
        with torch.inference_mode():
            states = self.model.base_model(input_ids=self._tensor(ids[:-1]), use_cache=True)
        return _cache_of(states), ids[-1]

    def _step(self, ids: Sequence[int], cache: Any) -> tuple[torch.Tensor, Any]:
        """Return log-probabilities after each token, shape `tokens vocab`, and the longer cache."""
        import torch

        with torch.inference_mode():
            out = self.model(input_ids=self._tensor(ids), use_cache=True, **{self._cache_argument: cache})
        return out.logits[0].float().log_softmax(-1), _cache_of(out)

    def _tensor(self, ids: Sequence[int]) -> torch.Tensor:
        import torch

        return torch.tensor([list(ids)], device=self.device)

    def _score_one(self, reading: Reading, answers: Sequence[str]) -> list[float]:
        prompt = self.prompt(reading)
        if len(prompt.used) < len(reading.passages):
            raise ReaderError(f"passage {reading.passages[0].id} exceeds reader.max_prompt_tokens; raise it")
        cache, pending = self._prefill(prompt)
        return [self._score_answer(answer, copy.deepcopy(cache), pending) for answer in answers]

    def _score_answer(self, answer: str, cache: Any, pending: int) -> float:
        # A plain prompt ends in `Answer:`, a templated one at the start of a line.
        spoken = answer if self.tokenizer.chat_template else f" {answer}"
        ids = self.tokenizer(spoken, add_special_tokens=False)["input_ids"]
        logs, _ = self._step([pending, *ids[:-1]], cache)
        return float(logs.gather(1, self._tensor(ids).T).sum())


def load_causal_lm(folder: Path, device: str) -> Any:
    """Return a causal language model in evaluation mode; on the CPU in single precision.

    Args:
        folder: The model's folder.
        device: torch device.

    Returns:
        The model.

    Raises:
        ConfigError: The folder holds no causal language model, or the device is not there.
        MissingExtraError: torch or transformers is not installed.
    """
    _require_transformers()
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(folder)
        model.eval()
    except (ValueError, OSError) as error:
        raise ConfigError(f"{folder} holds no causal language model ({error}); set reader.model to one") from error
    try:
        return model.float() if device == "cpu" else model.to(device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"the device {device!r} cannot be used ({error}); use cpu") from error


def _require_transformers() -> None:
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "a causal-lm reader needs torch and transformers; run: pip install 'byheart[local]'"
        ) from error


def _cache_of(output: Any) -> Any:
    cache = output.get("past_key_values")
    return output["cache"] if cache is None else cache


def _render(tokenizer: Any, messages: Sequence[Message]) -> str:
    from jinja2.exceptions import TemplateError

    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False))
    except TemplateError:
        # Some models know no system turn.
        merged = [{"role": "user", "content": "\n\n".join(message.content for message in messages)}]
        return str(tokenizer.apply_chat_template(merged, add_generation_prompt=True, tokenize=False))


def _before_stop(text: str) -> str:
    body = text.lstrip()
    return body[: min((place for stop in PLAIN_STOPS if (place := body.find(stop)) >= 0), default=len(body))]
