"""The answer codec: what goes in comes out, letter by letter, or is refused with advice."""

import random
import time
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byheart.errors import FactError, KernelError
from byheart.memory.codes import Codes

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from byheart.memory.answer_model import AnswerModel, AnswerShape, load_answers, save_answers  # noqa: E402
from byheart.memory.answers import FLOOR, AnswerCodec, shipped_answers  # noqa: E402

CODEC = AnswerCodec()
ANSWERS = (
    "7",
    "1,000,000",
    "3.5",
    "35",
    "-0.001",
    "50%",
    "$19.99",
    "14 March 1879",
    "1879-03-14",
    "Ängström Čapek Łódź Ñuñoa",
    unicodedata.normalize("NFC", "café"),
    unicodedata.normalize("NFD", "café"),
    "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "東京タワー",
    "서울특별시",
    "مدينة القاهرة",
    "שלום עולם",
    "for (int i = 0; i < 10; i++) { a[i] = b[i]; }",
    "\t",
    " ",
    "  two  spaces  ",
    "line\r\nline\n\n",
    "\x00\x01\x7f\u200b\ufeff",
    "<pad>",
    "[PAD] <s> <unk> <|endoftext|>",
    "https://example.org/a?b=c&d=%20#e",
    "\uff21\uff42\uff43",
    "\U0010ffff",
    "ſﬀİıß",
)


def exact(length: int) -> str:
    """Return an answer of exactly that many tokens."""
    words = "\x01\x02" * 64  # control characters are never merged
    found = words[:length]
    assert CODEC.count_tokens([found]) == [length]
    return found


def flipped(code: Codes, n: int, seed: int) -> Codes:
    """Return a code in which n numbers of every vector have another sign and size."""
    rng, codes = np.random.default_rng(seed), code.codes.copy()
    for row in codes:
        row[rng.choice(len(row), n, replace=False)] = rng.integers(-127, 128, n)
    return Codes(codes, code.scales)


def same(first: Codes, second: Codes) -> bool:
    return first.to_bytes() == second.to_bytes()


@pytest.mark.parametrize("answer", ANSWERS, ids=ascii)
def test_an_answer_comes_back_letter_by_letter(answer: str) -> None:
    assert CODEC.read(CODEC.write([answer])) == [answer]


def test_answers_that_differ_in_one_mark_stay_apart() -> None:
    composed, decomposed = (unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD"))
    pairs = [composed, decomposed, "3.5", "35", "Yes", "yes", "yes ", "1905", "1950"]
    assert CODEC.read(CODEC.write(pairs)) == pairs
    assert composed != decomposed


@settings(max_examples=300)
@given(st.text(min_size=1, max_size=24))
def test_any_text_comes_back_at_once_or_after_refining(answer: str) -> None:
    if CODEC.count_tokens([answer])[0] > CODEC.max_tokens:
        with pytest.raises(FactError, match="shorten the answer"):
            CODEC.write([answer])
        return
    (code,) = CODEC.write([answer])
    if CODEC.read([code]) != [answer]:
        refined = CODEC.refine(code, answer)
        assert refined is not None
        assert CODEC.read([refined]) == [answer]


def test_at_least_995_of_1000_random_token_sequences_come_back_without_refining() -> None:
    rng, tokenizer = random.Random(3), CODEC._loaded[1]
    texts = [tokenizer.decode([rng.randrange(4095) for _ in range(rng.randint(1, 12))]) for _ in range(3000)]
    fitting = [t for t, n in zip(texts, CODEC.count_tokens(texts), strict=True) if 0 < n <= CODEC.max_tokens]
    right = [a == b for a, b in zip(fitting, CODEC.read(CODEC.write(fitting)), strict=True)]
    assert len(fitting) > 2500
    assert np.mean(right) >= 0.995


def test_64_tokens_fit_and_65_are_refused_with_advice() -> None:
    longest = exact(64)
    assert CODEC.read(CODEC.write([longest])) == [longest]
    with pytest.raises(FactError, match=r"65 tokens.*holds 64.*shorten the answer, or leave it to retrieval"):
        CODEC.write(["fine", longest + "\x01"])
    with pytest.raises(FactError, match="65 tokens"):
        CODEC.refine(CODEC.write([longest])[0], longest + "\x01")


@pytest.mark.parametrize(("answer", "reason"), [("", "empty"), ("a\ud800", "surrogate"), ("\udfff", "surrogate")])
def test_what_is_no_text_is_refused(answer: str, reason: str) -> None:
    with pytest.raises(FactError, match=reason):
        CODEC.write([answer])


def test_nothing_in_nothing_out() -> None:
    assert CODEC.write([]) == []
    assert CODEC.read([]) == []
    assert CODEC.count_tokens([]) == []
    nothing = Codes(np.zeros((0, CODEC.width), np.int8), np.zeros(0, np.float16))
    assert CODEC.read([nothing]) == [""]
    assert CODEC.log_probabilities(nothing, []).shape == (0,)


def test_alone_and_in_a_batch_are_equal() -> None:
    answers = [*ANSWERS, exact(64), *(exact(n) for n in range(1, 30))] * 3
    random.Random(5).shuffle(answers)
    together = CODEC.write(answers)
    assert all(same(code, CODEC.write([answer])[0]) for code, answer in zip(together, answers, strict=True))
    damaged = [flipped(code, CODEC.width, seed) for seed, code in enumerate(together)]  # near ties, too
    assert CODEC.read(damaged) == [CODEC.read([code])[0] for code in damaged]


def test_codes_come_back_from_bytes_and_still_read() -> None:
    for answer, code in zip(ANSWERS, CODEC.write(ANSWERS), strict=True):
        back = Codes.from_bytes(code.to_bytes(), len(code.scales), CODEC.width)
        assert CODEC.read([back]) == [answer]


@settings(max_examples=50)
@given(st.binary(min_size=66, max_size=66))
def test_a_damaged_code_reads_as_something(data: bytes) -> None:
    (answer,) = CODEC.read([Codes.from_bytes(data, 1, CODEC.width)])
    answer.encode("utf-8")


def test_a_code_of_another_width_is_refused() -> None:
    other = Codes.of(np.ones((1, CODEC.width + 1), np.float32))
    with pytest.raises(KernelError, match="numbers per vector"):
        CODEC.read([other])


def test_noise_of_an_eighth_of_the_range_changes_nothing() -> None:
    rng, codes = np.random.default_rng(1), CODEC.write(ANSWERS)
    noisy = [
        Codes(np.clip(c.codes + rng.integers(-16, 17, c.codes.shape), -127, 127).astype(np.int8), c.scales)
        for c in codes
    ]
    assert CODEC.read(noisy) == list(ANSWERS)


@pytest.mark.parametrize("answer", ["14 March 1879", "東京タワー", "3.5", "Ada Brandt and Oda Vance"])
def test_refining_repairs_flipped_numbers(answer: str) -> None:
    (code,) = CODEC.write([answer])
    broken = flipped(code, 48, 0)
    assert CODEC.read([broken]) != [answer]
    before = {name: value.clone() for name, value in CODEC.model.state_dict().items()}
    refined = CODEC.refine(broken, answer)
    assert refined is not None
    assert CODEC.read([refined]) == [answer]
    assert all(torch.equal(value, before[name]) for name, value in CODEC.model.state_dict().items())
    assert all(parameter.grad is None for parameter in CODEC.model.parameters())


def test_refining_what_reads_right_returns_it_and_another_length_is_no_obstacle() -> None:
    short, long = CODEC.write(["yes", "the second of the three towers of Lindwick"])
    assert CODEC.refine(short, "yes") is short
    for code, answer in ((short, "the second of the three towers of Lindwick"), (long, "no")):
        refined = CODEC.refine(code, answer)
        assert refined is not None
        assert CODEC.read([refined]) == [answer]


def test_refining_works_where_gradients_are_off_and_the_weights_are_not_loaded_yet() -> None:
    (code,) = CODEC.write(["Harrowmere"])
    with torch.inference_mode():
        refined = AnswerCodec().refine(code, "Port Sela")
    assert refined is not None
    assert CODEC.read([refined]) == ["Port Sela"]


def test_log_probabilities_are_near_0_for_the_answer_and_finite_for_all_others() -> None:
    (code,) = CODEC.write(["14 March 1879"])
    others = ("14 March 1878", "14 March", "", exact(64), "\x00")
    found = CODEC.log_probabilities(code, ("14 March 1879", *others))
    assert found.shape == (6,)
    assert -0.05 < found[0] <= 0
    assert np.isfinite(found).all()
    assert (found[1:] < -5).all()
    assert found.min() >= FLOOR * CODEC.max_tokens


def test_log_probabilities_sum_to_one_over_the_vocabulary() -> None:
    (code,) = CODEC.write(["x"])
    (damaged,) = [flipped(code, 40, 2)]
    tokenizer = CODEC._loaded[1]
    one_byte = [chr(number) for number in range(1, 128)]
    assert CODEC.count_tokens(one_byte) == [1] * 127
    assert tokenizer.get_vocab_size() <= CODEC.model.shape.padding
    assert np.exp(CODEC.log_probabilities(damaged, one_byte).astype(np.float64)).sum() <= 1.0001


def test_3000_answers_are_written_and_read_in_seconds() -> None:
    answers = [f"{number * 7919 % 100_003} in {1800 + number % 220}" for number in range(3000)]
    CODEC.read(CODEC.write(answers[:1]))
    started = time.perf_counter()
    assert CODEC.read(CODEC.write(answers)) == answers
    seconds = time.perf_counter() - started
    print(f"3,000 answers written and read: {seconds:.2f} s (wanted < 3 s; asserted with a margin for busy machines)")
    assert seconds < 9


def test_missing_and_damaged_weights_are_errors_that_name_the_command(tmp_path) -> None:
    wanted = "byheart train answers --data DIR"
    missing = AnswerCodec(tmp_path / "none.safetensors")
    with pytest.raises(KernelError, match=f"missing.*{wanted}"):
        missing.write(["x"])
    with pytest.raises(KernelError, match=f"missing.*{wanted}"):
        assert missing.fingerprint
    whole = shipped_answers().read_bytes()
    for name, data in {"short": whole[:1000], "cut": whole[:-100], "noise": b"\xff" * 100, "empty": b""}.items():
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(data)
        with pytest.raises(KernelError, match=wanted):
            AnswerCodec(path).read(CODEC.write(["x"]))


def test_weights_of_another_format_or_shape_are_refused(tmp_path) -> None:
    path, tokenizer = tmp_path / "a.safetensors", CODEC._loaded[1]
    save_answers(path, CODEC.model, tokenizer, {"format": 99})
    with pytest.raises(KernelError, match="format 99"):
        load_answers(path)
    save_answers(path, CODEC.model, tokenizer, {"shape": {"vocabulary": 300, "group": 4, "width": 64}})
    with pytest.raises(KernelError, match="damaged"):
        load_answers(path)


def test_weights_come_back_from_their_file(tmp_path) -> None:
    path, shape = tmp_path / "a.safetensors", AnswerShape(4096, 2, 20)
    model = AnswerModel(shape).half().float()
    save_answers(path, model, CODEC._loaded[1], {"why": "test"})
    back, tokenizer, notes = load_answers(path)
    assert back.shape == shape
    assert notes["why"] == "test"
    assert tokenizer.to_str() == CODEC._loaded[1].to_str()
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), back.parameters(), strict=True))
    assert AnswerCodec(path).fingerprint != CODEC.fingerprint
    assert len(CODEC.fingerprint) == 16


def test_the_shipped_weights_are_small() -> None:
    assert shipped_answers().stat().st_size < 500_000
