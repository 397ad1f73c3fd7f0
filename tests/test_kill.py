"""kill -9 anywhere leaves the last epoch whole; many processes lose nothing."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from byheart.errors import BusyError, NotAKnowledgeBaseError
from byheart.fakes import FakeEncoder, FakeReader
from byheart.folder import init
from byheart.knowledge import KnowledgeBase
from killed_writer import BATCH, step
from world import bytes_of, check_whole, open_fake

SCRIPT = Path(__file__).with_name("killed_writer.py")
KILLS = 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init(tmp_path / "kb", encoder=FakeEncoder(), reader=FakeReader()).close()
    return tmp_path / "kb"


def writer(folder: Path, tag: str, *rounds: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), tag, *rounds],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n", process.communicate()[1]


def batches(kb: KnowledgeBase) -> dict[str, set[str]]:
    """Return the marks of each batch's texts, after checking that the batch has all its documents."""
    marks: dict[str, set[str]] = {}
    sizes: dict[str, int] = {}
    with kb._database.read() as connection:
        for origin, text in connection.execute("SELECT origin, text FROM documents"):
            marks.setdefault(origin, set()).add(text.split()[1])
            sizes[origin] = sizes.get(origin, 0) + 1
    assert set(sizes.values()) <= {BATCH}
    return marks


def check_batches(kb: KnowledgeBase) -> int:
    check_whole(kb)
    marks = batches(kb)
    assert all(len(found) == 1 for found in marks.values()), "a batch is of one version"
    assert kb.status().passages == len(marks) * BATCH
    assert len(kb.search("Shared words", 1000)) == len(marks) * BATCH
    return len(marks)


def test_a_killed_writer_leaves_whole_epochs(folder: Path) -> None:
    chance, epoch, seen = random.Random(7), 0, set()
    for kill in range(KILLS):
        process = writer(folder, f"k{kill}-")
        wait_until_ready(process)
        time.sleep(chance.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
        with open_fake(folder) as kb:
            n_batches = check_batches(kb)
            assert kb.epoch >= epoch
            seen.add(kb.epoch - epoch)
            epoch = kb.epoch
            if n_batches > 40:
                kb.remove(*batches(kb))
                assert check_batches(kb) == 0
                epoch = kb.epoch
    assert len(seen) > 3, f"the kills all came at one point: {seen}"


def test_after_a_kill_the_next_removal_leaves_no_trace_of_what_was_removed_before(folder: Path) -> None:
    with open_fake(folder) as kb:
        for number in range(14):
            step(kb, "old", number)
    code = (
        "import os, signal, sys\n"
        "from byheart.knowledge import KnowledgeBase\n"
        "from byheart.store.database import Database\n"
        "Database.scrub = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "KnowledgeBase(sys.argv[1]).remove(*(f'old{n}' for n in range(13)))\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL
    with open_fake(folder) as kb:
        assert check_batches(kb) == 1
        kb.remove("old13")
    assert b"old1" not in bytes_of(folder)


def test_a_killed_init_leaves_a_folder_that_init_can_use(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pathlib\n"
        "from byheart.fakes import FakeEncoder\n"
        "from byheart.folder import init\n"
        "pathlib.Path.replace = lambda self, target: (\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if self.name == 'knowledge.partial' else os.replace(self, target))\n"
        "init(sys.argv[1], encoder=FakeEncoder())\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path / "kb")], capture_output=True, check=False)
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(NotAKnowledgeBaseError):
        open_fake(tmp_path / "kb")
    with init(tmp_path / "kb", encoder=FakeEncoder()) as kb:
        assert kb.epoch == 0


def test_two_writers_at_once_lose_nothing(folder: Path) -> None:
    rounds = 6
    processes = [writer(folder, tag, str(rounds)) for tag in ("a", "b")]
    for process in processes:
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 0 or BusyError.__name__ in errors, errors
    with open_fake(folder) as kb:
        check_batches(kb)
        left = {
            f"{tag}{n}" for tag, p in zip("ab", processes, strict=True) if p.returncode == 0 for n in range(3, rounds)
        }
        assert left <= set(batches(kb))


def test_a_reader_sees_whole_epochs_only_while_another_process_writes(folder: Path) -> None:
    process = writer(folder, "w", "25")
    wait_until_ready(process)
    epochs = []
    with open_fake(folder) as kb:
        while process.poll() is None:
            with kb._library.hold() as epoch:
                marks = batches(kb)
                hits = kb.search("Shared words", 1000)
                assert len(hits) == len(marks) * BATCH
                assert all(len(found) == 1 for found in marks.values())
                assert kb.ask("Shared words term3").epoch == epoch
                assert kb.epoch == epoch
            epochs.append(epoch)
        assert process.returncode == 0, process.communicate()[1]
        check_batches(kb)
    process.communicate()
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 5
