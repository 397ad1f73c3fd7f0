"""The openai reader against a small server that this file starts, well-behaved and not."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from byheart.config import ReaderConfig
from byheart.errors import ConfigError, MissingExtraError, ReaderError, ReaderProtocolError, ReaderTimeoutError
from byheart.interfaces import Reader, Reading
from byheart.reader.openai import OpenAIReader
from byheart.types import Kind, Passage, Question, passage_id

pytest.importorskip("httpx")

KEY = "sk-very-secret-key"


def passage(page: str, text: str) -> Passage:
    return Passage(passage_id(page, 0, len(text)), page, page.title(), (), text, 0, len(text))


TOWER = passage("tower", "The tower of Tarn was completed in 1889. It stands by the harbour.")
LAKE = passage("lake", "Lake Orm is 212 metres deep.")
READING = Reading(Question.parse("When was the tower of Tarn completed?"), (TOWER, LAKE))


class Reply:
    """A status, headers and chunks of a body; a chunk that is a number is a pause in seconds."""

    def __init__(self, status: int, *chunks: bytes | float, headers: dict[str, str] | None = None) -> None:
        self.status, self.chunks, self.headers = status, chunks, headers or {}


def chat(content: object, **more: object) -> Reply:
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return Reply(200, json.dumps({"choices": [choice], **more}).encode())


def sse(*events: object, done: bool = True) -> Reply:
    lines = [b"data: " + (e if isinstance(e, bytes) else json.dumps(e).encode()) + b"\n\n" for e in events]
    return Reply(200, b": comment\n\n", *lines, *([b"data: [DONE]\n\n"] if done else []))


def delta(content: str | None, finish: str | None = None) -> dict[str, object]:
    return {"choices": [{"delta": {"content": content}, "finish_reason": finish}]}


class FakeServer:
    """Answers each request with the next reply, the last one for ever; remembers what it was asked."""

    def __init__(self) -> None:
        self.replies: list[Reply | Callable[[dict[str, Any]], Reply]] = []
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer({})

            def do_POST(self) -> None:
                self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def answer(self, body: dict[str, Any]) -> None:
                server.requests.append((self.path, body, dict(self.headers)))
                reply = server.replies.pop(0) if len(server.replies) > 1 else server.replies[0]
                reply = reply if isinstance(reply, Reply) else reply(body)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for chunk in reply.chunks:
                    if isinstance(chunk, bytes):
                        self.wfile.write(chunk)
                    else:
                        time.sleep(chunk)

            def handle(self) -> None:
                try:
                    super().handle()
                except ConnectionError:
                    return  # The client gave up, as some tests want.

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    fake = FakeServer()
    yield fake
    fake.http.shutdown()
    fake.http.server_close()


class Waits(list[float]):
    """Remembers how long it was told to sleep, and does not."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def reader(server: FakeServer, waits: Waits | None = None, **settings: Any) -> OpenAIReader:
    config = ReaderConfig(**{"name": "openai", "model": "m", "url": server.url, "timeout_seconds": 5.0, **settings})
    return OpenAIReader(config, KEY, Waits() if waits is None else waits)


def test_an_answer_comes_with_citation_and_the_servers_token_count(server: FakeServer) -> None:
    server.replies = [chat("1889 [1]", usage={"prompt_tokens": 77})]
    protocol: Reader = reader(server)
    [draft] = protocol.read([READING])
    assert (protocol.name, draft.text, draft.confidence, draft.prompt_tokens) == ("openai", "1889", None, 77)
    assert [citation.text for citation in draft.citations] == ["The tower of Tarn was completed in 1889."]
    path, body, headers = server.requests[0]
    assert (path, body["model"], body["temperature"], body["max_tokens"]) == ("/v1/chat/completions", "m", 0, 64)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert headers["Authorization"] == f"Bearer {KEY}"


def test_without_a_key_none_is_sent_and_without_usage_tokens_are_counted_roughly(server: FakeServer) -> None:
    server.replies = [chat(None)]
    [draft] = OpenAIReader(ReaderConfig(model="m", url=server.url + "/"), None).read([READING])
    assert draft.text is None
    assert 150 < draft.prompt_tokens < 400
    assert "Authorization" not in server.requests[0][2]


def test_without_a_model_the_servers_first_is_asked(server: FakeServer) -> None:
    server.replies = [Reply(200, b'{"data": [{"id": "only-one"}]}'), chat("1889")]
    reader(server, model="").read([READING, READING])
    assert [request[1].get("model") for request in server.requests] == [None, "only-one", "only-one"]
    server.replies = [Reply(200, b'{"data": []}')]
    with pytest.raises(ReaderError, match=r"lists no model; set reader\.model"):
        reader(server, model="").read([READING])


def test_a_failure_is_tried_again_after_a_growing_wait(server: FakeServer) -> None:
    waits = Waits()
    server.replies = [Reply(500, b"oops"), Reply(503), chat("1889")]
    [draft] = reader(server, waits).read([READING])
    assert draft.text == "1889"
    assert 0.25 <= waits[0] <= 0.5 <= waits[1] <= 1.0


def test_the_server_says_how_long_to_wait(server: FakeServer) -> None:
    waits = Waits()
    soon = "Thu, 01 Jan 1970 00:00:00 GMT"
    server.replies = [Reply(429, headers={"Retry-After": "3"}), Reply(429, headers={"Retry-After": soon}), chat("1889")]
    reader(server, waits).read([READING])
    assert waits == [3.0, 0.0]


def test_a_wait_longer_than_the_time_out_is_an_error_at_once(server: FakeServer) -> None:
    server.replies = [Reply(429, headers={"Retry-After": "7200"})]
    with pytest.raises(ReaderError, match=r"asks to wait 7,200 s \(status 429\)"):
        reader(server).read([READING])
    assert len(server.requests) == 1


def test_after_the_last_try_the_servers_own_words_are_shown(server: FakeServer) -> None:
    server.replies = [Reply(500, b'{"error": {"message": "out of memory"}}')]
    with pytest.raises(ReaderError, match=r"failed with status 500: out of memory; check its log"):
        reader(server, retries=2).read([READING])
    assert len(server.requests) == 3


def test_a_bad_request_is_not_tried_again(server: FakeServer) -> None:
    server.replies = [Reply(400, b'{"error": "context length exceeded"}')]
    with pytest.raises(ReaderError, match="status 400: context length exceeded"):
        reader(server).read([READING])
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_its_variable(server: FakeServer, status: int) -> None:
    server.replies = [Reply(status, KEY.encode())]
    with pytest.raises(ReaderError, match=rf"refuses the key \(status {status}\); set OPENAI_API_KEY"):
        reader(server).read([READING])


def test_an_unknown_model_is_named(server: FakeServer) -> None:
    server.replies = [Reply(404, b'{"error": {"message": "model not found"}}')]
    with pytest.raises(ReaderError, match=r"no model 'm' .*status 404: model not found.*ends in /v1"):
        reader(server).read([READING])


def test_the_key_is_in_no_message_and_no_log(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = []
    leaks = [Reply(400, KEY.encode()), Reply(200, f"<{KEY}>".encode()), Reply(500, KEY.encode()), chat([KEY])]
    for reply in leaks:
        server.replies = [reply]
        with pytest.raises(ReaderError) as caught:
            reader(server, retries=1).read([READING])
        shown.append(str(caught.value))
    with pytest.raises(ConfigError) as config_error:
        OpenAIReader(ReaderConfig(), f"{KEY}\n{KEY}")
    shown.append(str(config_error.value))
    assert not [text for text in (*shown, caplog.text) if KEY in text]


def test_nobody_listening_is_an_error_with_the_address_and_advice(server: FakeServer) -> None:
    waits = Waits()
    gone = reader(server, waits)
    server.http.server_close()
    server.http.shutdown()
    told = rf"no connection to {re.escape(server.url)} .*start the server, or set reader\.url"
    with pytest.raises(ReaderError, match=told):
        gone.read([READING])
    assert len(waits) == 2


@pytest.mark.parametrize("url", ["localhost:8080/v1", "ftp://host/v1", "", "http://", "http://[::1", "http://h:99999"])
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError, match="must be an http:// or https:// address"):
        OpenAIReader(ReaderConfig(url=url), None)


def test_a_password_in_the_address_is_not_shown() -> None:
    reader = OpenAIReader(ReaderConfig(url="http://me:hidden@127.0.0.1:1/v1?k=hidden", retries=0), None)
    assert reader.server.shown_url == "http://127.0.0.1:1/v1"


@pytest.mark.parametrize("chunks", [(2.0, b"{}"), tuple(piece for _ in range(20) for piece in (b" ", 0.1))])
def test_a_silent_or_dripping_server_is_given_up_in_time(server: FakeServer, chunks: tuple[bytes | float, ...]) -> None:
    server.replies = [Reply(200, *chunks)]
    begin = time.monotonic()
    with pytest.raises(ReaderTimeoutError, match=r"did not answer within 0.4 s; raise reader.timeout_seconds"):
        reader(server, timeout_seconds=0.4).read([READING])
    assert time.monotonic() - begin < 1.5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>hello</html>", "answered with no JSON: <html>hello</html>"),
        (b"", "answered with no JSON"),
        (b'{"choices": [', "answered with no JSON"),
        (b'{"choices": ["\xff\xfe"]}', "answered with no UTF-8"),
        (b"[1]", "answered with a JSON list"),
        (b"{}", r"without choices\[0\]\.message"),
        (b'{"choices": []}', r"without choices\[0\]\.message"),
        (b'{"choices": [{"message": {"content": 5}}]}', "content as text"),
        (b'{"choices": [{"message": "hello"}]}', r"without choices\[0\]\.message"),
    ],
)
def test_what_is_no_chat_completion_is_a_protocol_error(server: FakeServer, body: bytes, message: str) -> None:
    server.replies = [Reply(200, body)]
    with pytest.raises(ReaderProtocolError, match=message):
        reader(server).read([READING])


def test_an_answer_cut_off_on_the_wire_is_a_protocol_error(server: FakeServer) -> None:
    server.replies = [Reply(200, b'{"choices"', headers={"Content-Length": "500"})]
    with pytest.raises(ReaderProtocolError, match="broke off its answer"):
        reader(server).read([READING])


def test_every_streamed_event_cites_only_what_it_used(server: FakeServer) -> None:
    whole = json.dumps(delta("é [1"), ensure_ascii=False).encode()
    cut = whole.index("é".encode()) + 1
    first = b"data:" + json.dumps(delta("1889 in Orm")).encode() + b"\r\n\r\ndata: "
    rest = sse(delta("] [9]"), delta(None, "stop"), {"choices": [], "usage": {"prompt_tokens": 5}})
    server.replies = [Reply(200, first + whole[:cut], 0.05, whole[cut:] + b"\n\n", *rest.chunks)]
    events = list(reader(server).stream(READING))
    assert [event.text for event in events] == ["1889 in Orm", "1889 in Ormé", "1889 in Ormé", "1889 in Ormé"]
    assert all({citation.passage_id for citation in e.citations} <= set(e.used) == {TOWER.id, LAKE.id} for e in events)
    assert [citation.passage_id for citation in events[-1].citations] == [TOWER.id]
    assert events[-1].prompt_tokens == 5
    assert server.requests[0][1]["stream"] is True


def test_a_stream_is_tried_again_only_before_it_begins(server: FakeServer) -> None:
    server.replies = [Reply(503), sse(delta("1889"), delta("", "stop"))]
    assert [event.text for event in reader(server).stream(READING)] == ["1889", "1889"]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (sse(delta("18"), b'{"choices": ['), "answered with no JSON"),
        (sse(delta("18"), b'"\xff"'), "answered with no UTF-8"),
        (sse(delta("18"), done=False), "ended the stream before the answer"),
        (sse({"id": 1}), r"without choices\[0\]\.delta"),
        (sse(delta("18"), {"error": {"message": "gone"}}), "failed: gone"),
    ],
)
def test_a_broken_stream_is_a_clear_error(server: FakeServer, reply: Reply, message: str) -> None:
    server.replies = [reply]
    with pytest.raises(ReaderError, match=message):
        list(reader(server).stream(READING))


def echo(body: dict[str, Any]) -> Reply:
    """Answer as a server whose model gives every word -0.5, and -2.0 to 1743."""
    pieces = [*re.findall(r"\s*\S+", body["prompt"]), " more"]
    offsets = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
    logs = [None, *(-2.0 if "1743" in piece else -0.5 for piece in pieces[1:])]
    choice = {"logprobs": {"token_logprobs": logs, "text_offset": offsets}}
    return Reply(200, json.dumps({"choices": [choice]}).encode())


def test_scores_are_the_echoed_log_probabilities_of_the_answer_alone(server: FakeServer) -> None:
    server.replies = [echo]
    open_book, closed = reader(server).score([READING, Reading(READING.question)], [["in 1889", "1743"], ["1889"]])
    assert open_book.dtype == np.float32
    assert open_book.tolist() == [[-1.0, -2.0], [-1.0, -2.0]]
    assert closed.tolist() == [[-0.5]]
    assert server.requests[0][0] == "/v1/completions"
    assert server.requests[0][1]["echo"] is True


@pytest.mark.parametrize(
    "choice",
    [{}, {"logprobs": None}, {"logprobs": {"token_logprobs": [], "text_offset": []}},
     {"logprobs": {"token_logprobs": [-0.1], "text_offset": [900]}}],
)  # fmt: skip
def test_a_server_that_echoes_no_probabilities_says_so(server: FakeServer, choice: dict[str, object]) -> None:
    server.replies = [Reply(200, json.dumps({"choices": [choice]}).encode())]
    with pytest.raises(ReaderProtocolError, match=r"does not give the log-probabilities .*serve the model with vLLM"):
        reader(server).score([READING], [["1889"]])


def test_a_claim_and_a_closed_book_question_are_read_too(server: FakeServer) -> None:
    server.replies = [chat("REFUTES [2]"), chat("I don't know.")]
    claim = Reading(Question.parse("Lake Orm is shallow.", Kind.CLAIM), (TOWER, LAKE))
    first, second = reader(server).read([claim, Reading(READING.question)])
    assert (first.text, [c.text for c in first.citations]) == ("REFUTES", [LAKE.text])
    assert (second.text, second.used) == (None, ())


def test_a_prompt_beyond_the_budget_is_never_sent(server: FakeServer) -> None:
    server.replies = [chat("1889")]
    with pytest.raises(ReaderError, match="none of 2 passages fits"):
        reader(server, max_prompt_tokens=300).read([Reading(READING.question, (passage("a", "word " * 300),) * 2)])
    assert server.requests == []


def test_without_httpx_the_extra_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtraError, match=r"byheart\[openai\]"):
        OpenAIReader(ReaderConfig(model="m"), None).read([READING])
