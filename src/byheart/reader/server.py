"""JSON over HTTP to an OpenAI-compatible server: time-outs, retries, server-sent events, clear errors.

Owns the client, the deadline of a request and the translation of everything that can go wrong into byheart's errors.
Knows no prompts. The key is in one header and nowhere else: not in a message, not in a log.
"""

from __future__ import annotations

import datetime
import email.utils
import json
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from byheart.config import ReaderConfig
from byheart.errors import ConfigError, MissingExtraError, ReaderError, ReaderProtocolError, ReaderTimeoutError

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger(__name__)

FIRST_DELAY_SECONDS = 0.5
LONGEST_DELAY_SECONDS = 8.0
_EXCERPT_CHARACTERS = 200


class _TryAgainError(Exception):
    """A try that failed, what to raise when it was the last, and the wait that the server asks for, in seconds."""

    def __init__(self, error: ReaderError, wait: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait = wait


class Server:
    """An OpenAI-compatible server."""

    def __init__(self, config: ReaderConfig, api_key: str | None, sleep: Callable[[float], None]) -> None:
        """Check address and key; nothing is sent yet.

        Args:
            config: Address, time-out, retries.
            api_key: Sent as a bearer token; None or blank sends none.
            sleep: Waits for so many seconds between tries.

        Raises:
            ConfigError: The address is no HTTP URL, or the key cannot be sent in a header.
        """
        self.config = config
        self.url = config.url.rstrip("/")
        self.shown_url = _without_secrets(self.url)
        self._key = (api_key or "").strip()
        self._sleep = sleep
        if not self._key.isascii() or not self._key.isprintable():
            raise ConfigError(
                f"the key in {config.api_key_variable} has a line break or a character that no header can carry; "
                "copy it again"
            )

    @cached_property
    def client(self) -> httpx.Client:
        """The HTTP client, with the key in its headers."""
        try:
            import httpx
        except ImportError as error:
            raise MissingExtraError("the openai reader needs httpx; run: pip install 'byheart[openai]'") from error
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        return httpx.Client(timeout=self.config.timeout_seconds, headers=headers)

    def close(self) -> None:
        """Close open connections."""
        if "client" in self.__dict__:
            self.client.close()

    def call(self, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        """Return the server's JSON object.

        Args:
            path: Below the address, such as `/chat/completions`.
            body: What is posted; None gets.

        Returns:
            The parsed object.

        Raises:
            ReaderError: The server cannot be reached, refuses, or fails after all tries.
            ReaderProtocolError: It answers with something that is no JSON object.
            ReaderTimeoutError: It does not answer in time.
        """
        return self._parsed(b"".join(self._chunks(path, body)))

    def events(self, path: str, body: dict[str, object]) -> Iterator[dict[str, Any]]:
        """Yield the JSON objects of a stream of server-sent events, up to `[DONE]` or the end.

        Args:
            path: Below the address.
            body: What is posted.

        Yields:
            The parsed objects.

        Raises:
            ReaderError: The server cannot be reached, refuses, or fails after all tries.
            ReaderProtocolError: An event is no JSON object, or the connection breaks.
            ReaderTimeoutError: It does not answer in time.
        """
        for line in _lines(self._chunks(path, body)):
            field, _, data = line.partition(b":")
            if field.strip() != b"data" or not data.strip():
                continue
            if data.strip() == b"[DONE]":
                return
            yield self._parsed(data)

    def _chunks(self, path: str, body: dict[str, object] | None) -> Iterator[bytes]:
        """Yield the body of a successful response; until its first byte, failures are tried again."""
        for attempt in range(self.config.retries + 1):
            try:
                yield from self._try(path, body)
                return
            except _TryAgainError as failure:
                if attempt == self.config.retries:
                    raise failure.error from None
                delay = _backoff(attempt) if failure.wait is None else failure.wait
                logger.info("%s is tried again in %.1f s: %s", self.shown_url, delay, failure)
                self._sleep(delay)

    def _try(self, path: str, body: dict[str, object] | None) -> Iterator[bytes]:
        client = self.client
        import httpx

        deadline = time.monotonic() + self.config.timeout_seconds
        has_begun = False
        try:
            with client.stream("GET" if body is None else "POST", self.url + path, json=body) as response:
                has_begun = response.status_code == httpx.codes.OK
                if not has_begun:
                    self._refuse(response)
                for chunk in response.iter_bytes():
                    # The client's time-out is per chunk: a server that drips would never meet it.
                    if time.monotonic() > deadline:
                        raise self._timed_out()
                    yield chunk
        except httpx.TimeoutException:
            raise self._timed_out() from None
        except httpx.RequestError as error:
            raise self._broken_off(error) if has_begun else self._unreachable(error) from None

    def _refuse(self, response: httpx.Response) -> NoReturn:
        status = response.status_code
        said = self._said(next(response.iter_bytes(), b""))
        if status in (401, 403):
            raise ReaderError(
                f"{self.shown_url} refuses the key (status {status}); set {self.config.api_key_variable} to a valid one"
            )
        if status == 404:
            raise ReaderError(
                f"{self.shown_url} has no model {self.config.model!r} or no such path (status 404{said}); check "
                "reader.model, and that reader.url ends in /v1"
            )
        error = ReaderError(f"{self.shown_url} failed with status {status}{said}; check its log, then ask again")
        if status in (408, 429) or status >= 500:
            wait = _retry_after(response.headers.get("retry-after"))
            if wait is None or wait <= self.config.timeout_seconds:
                raise _TryAgainError(error, wait)
            raise ReaderError(f"{self.shown_url} asks to wait {wait:,.0f} s (status {status}); ask again then")
        raise error

    def _said(self, body: bytes) -> str:
        """Return the server's own words, shortened, without the key."""
        text = body.decode("utf-8", "replace")
        try:
            error = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, KeyError, TypeError):
            pass
        return f": {self.redacted(text)}" if text.strip() else ""

    def redacted(self, text: str) -> str:
        """Return text from outside on one line, shortened, without the key.

        Args:
            text: What a server said.

        Returns:
            At most 200 characters.
        """
        shown = text.replace(self._key, "***") if self._key else text
        return " ".join(shown.split())[:_EXCERPT_CHARACTERS]

    def _parsed(self, body: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(body.decode("utf-8"))
        except ValueError as error:
            kind = "no UTF-8" if isinstance(error, UnicodeDecodeError) else "no JSON"
            what = f"{self.shown_url} answered with {kind}{self._said(body)}"
            raise ReaderProtocolError(f"{what}; {_CHECK_URL}") from None
        if not isinstance(parsed, dict):
            raise ReaderProtocolError(f"{self.shown_url} answered with a JSON {type(parsed).__name__}; {_CHECK_URL}")
        if parsed.get("error"):
            raise ReaderError(f"{self.shown_url} failed{self._said(body)}; check its log, then ask again")
        return parsed

    def _timed_out(self) -> ReaderTimeoutError:
        return ReaderTimeoutError(
            f"{self.shown_url} did not answer within {self.config.timeout_seconds:g} s; raise reader.timeout_seconds, "
            "or read fewer passages"
        )

    def _broken_off(self, error: Exception) -> ReaderProtocolError:
        return ReaderProtocolError(f"{self.shown_url} broke off its answer ({type(error).__name__}); check its log")

    def _unreachable(self, error: Exception) -> _TryAgainError:
        return _TryAgainError(
            ReaderError(
                f"no connection to {self.shown_url} ({type(error).__name__}: {self.redacted(str(error))}); start the "
                "server, or set reader.url to its address up to and with /v1"
            )
        )


_CHECK_URL = "check that reader.url is an OpenAI-compatible server's address up to and with /v1"


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines as bytes: a character may be split over two chunks, a line never is when it is decoded."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _backoff(attempt: int) -> float:
    """Return seconds to wait: doubling, and random so that many clients do not come back at once."""
    longest = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2**attempt)
    return random.uniform(longest / 2, longest)


def _retry_after(header: str | None) -> float | None:
    """Return the seconds in a Retry-After header, which holds a number or a date."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        date = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())


def _without_secrets(url: str) -> str:
    """Return an address without user, password and parameters, for messages."""
    try:
        parts = urlsplit(url)
        is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_http = False
    if not is_http:
        shown = url.rpartition("@")[2]
        raise ConfigError(
            f"reader.url must be an http:// or https:// address like http://localhost:8080/v1, got {shown!r}"
        )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
