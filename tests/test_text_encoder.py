"""The sentence encoder: batches, windows, pooling, names; and what every `Encoder` promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from byheart.config import EncoderConfig
from byheart.errors import ConfigError
from byheart.fakes import FakeEncoder
from byheart.interfaces import Encoder
from byheart.text.encoder import SentenceEncoder, _average, split_window
from byheart.text.models import fingerprint, model_folder

TEXTS = [
    "Short.",
    "The ferry to Ostrel leaves at seven in the morning, except on Sundays.",
    "灯台は岬にある。",
    "a " * 90,
    "",
]


@pytest.fixture(params=["fake", "minilm"])
def encoder(request: pytest.FixtureRequest) -> Encoder:
    return FakeEncoder() if request.param == "fake" else request.getfixturevalue("minilm")


def test_vectors_are_finite_unit_float32_of_the_stated_width(encoder: Encoder) -> None:
    vectors = encoder.encode_passages(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), encoder.width)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_alone_and_in_a_batch_a_text_has_one_vector(encoder: Encoder) -> None:
    together = encoder.encode_passages(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(encoder.encode_passages([text])[0], vector, atol=1e-5)
        np.testing.assert_allclose(encoder.encode_queries([text])[0], vector, atol=1e-5)


def test_nothing_to_encode_is_defined(encoder: Encoder) -> None:
    assert encoder.encode_queries([]).shape == (0, encoder.width)
    assert encoder.encode_passages([]).shape == (0, encoder.width)
    assert encoder.count_tokens([]) == []


def test_texts_about_one_thing_are_nearer_than_texts_about_two(encoder: Encoder) -> None:
    lamp, light, fish = encoder.encode_passages(
        ["The lamp of the lighthouse burns oil.", "The lighthouse has a lamp.", "Herring swim in the cold sea."]
    )
    assert lamp @ light > lamp @ fish


def test_a_fingerprint_is_stable_and_tokens_are_counted(encoder: Encoder) -> None:
    assert encoder.fingerprint == encoder.fingerprint
    assert len(encoder.fingerprint) == 16
    counts = encoder.count_tokens(["one", "one two three four five"])
    assert 3 <= counts[0] < counts[1]


def test_the_tail_of_a_long_text_counts(minilm: SentenceEncoder) -> None:
    start = "The ferry leaves at seven. " * 400
    assert minilm.count_tokens([start])[0] > 4 * minilm.max_tokens
    tails = [start + "Whales sing under the ice. " * 15, start + "Bankers audit the ledger. " * 15]
    one, two = minilm.encode_passages(tails)
    assert one @ two < 0.999


def test_progress_reaches_the_number_of_windows(minilm: SentenceEncoder) -> None:
    seen: list[tuple[int, int]] = []
    minilm.encode_passages(["a b c"] * 40, lambda done, total, what: seen.append((done, total)))
    assert seen[-1] == (40, 40)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("n", [2, 3, 9, 10, 11, 16, 17, 100, 1001])
def test_windows_keep_every_token_in_order_and_are_of_like_length(n: int) -> None:
    ids = [101, *range(1000, 1000 + n - 2), 102]
    windows = split_window(ids, 10)
    assert [token for window in windows for token in window[1:-1]] == ids[1:-1]
    assert all(len(window) <= 10 and (window[0], window[-1]) == (101, 102) for window in windows)
    lengths = [len(window) for window in windows]
    assert max(lengths) - min(lengths) <= 1


def test_a_texts_vector_is_the_mean_of_its_windows() -> None:
    vectors = np.eye(4, dtype=np.float32)
    means = _average(vectors, [0, 0, 1, 2], 3)
    np.testing.assert_allclose(means[0], [2**-0.5, 2**-0.5, 0, 0], atol=1e-6)
    np.testing.assert_array_equal(means[1:], vectors[2:])


def test_prefixes_change_fingerprint_and_vectors(minilm: SentenceEncoder) -> None:
    folder = minilm.folder
    plain, query, passage = (fingerprint(folder, "mean", q, p) for q, p in (("", ""), ("q: ", ""), ("", "q: ")))
    assert len({plain, query, passage}) == 3
    assert minilm.fingerprint == plain
    prefixed = SentenceEncoder(EncoderConfig(query_prefix="question about whales: "))
    prefixed.__dict__["model"] = minilm.model  # the same weights need not be read twice
    np.testing.assert_allclose(prefixed.encode_passages(["seven"]), minilm.encode_passages(["seven"]), atol=1e-6)
    assert float(prefixed.encode_queries(["seven"])[0] @ minilm.encode_queries(["seven"])[0]) < 0.99


def test_a_folder_is_taken_as_it_is_and_is_the_same_encoder(minilm: SentenceEncoder) -> None:
    by_folder = SentenceEncoder(EncoderConfig(name=str(minilm.folder)))
    assert by_folder.fingerprint == minilm.fingerprint
    assert by_folder.width == minilm.width == 384
    assert model_folder("sentence-transformers/all-MiniLM-L6-v2") == minilm.folder


@pytest.mark.parametrize("name", ["no-such-model-anywhere", "not a name at all!", "../nowhere", ""])
def test_an_unknown_model_is_an_error_with_advice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"pass a folder, or one of .*all-MiniLM-L6-v2"):
        SentenceEncoder(EncoderConfig(name=name))


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json"):
        SentenceEncoder(EncoderConfig(name=str(tmp_path)))


def test_pooling_that_is_not_read_is_refused(tmp_path: Path, minilm: SentenceEncoder) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).symlink_to(minilm.folder / name)
    (tmp_path / "1_Pooling").mkdir()
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode_max_tokens": true}')
    with pytest.raises(ConfigError, match="mean and cls"):
        SentenceEncoder(EncoderConfig(name=str(tmp_path)))
    pooling.write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    assert SentenceEncoder(EncoderConfig(name=str(tmp_path))).pooling == "cls"


def test_a_device_that_is_not_there_is_a_config_error() -> None:
    encoder = SentenceEncoder(EncoderConfig(device="cuda:63"))
    with pytest.raises(ConfigError, match=r"encoder\.device"):
        encoder.encode_queries(["seven"])
