"""The other side of a program's loops: reads its shared memory as a session of Takt does, with nothing of Takt's."""

import math
import mmap
import os
import struct
import time
from typing import Dict, List, NamedTuple, Optional

_NAME = "/memfd:takt-loops-1 (deleted)"
_HEAD_BYTES = 65_536
_RECORDS = 4096
_RING_BYTES = _RECORDS * 64
_SLOTS_AT = 1088
_SLOT_BYTES = 448


class Record(NamedTuple):
    kind: int
    stage: int
    skipped: int
    job: int
    release_ns: int
    begin_ns: int
    end_ns: int
    input: int
    value: Optional[float]


class Slot(NamedTuple):
    state: int
    kind: int
    period_ns: int
    deadline_ns: int
    tid: int
    stages: List[str]


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode()


class Session:
    """The loops of a process, this one by default."""

    def __init__(self, pid: int = 0) -> None:
        folder = f"/proc/{pid or os.getpid()}/fd"
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            try:
                if os.readlink(path) != _NAME:
                    continue
            except OSError:
                continue
            with open(path, "r+b") as file:
                self.memory = mmap.mmap(file.fileno(), 0)
            break
        else:
            raise LookupError("the process has declared no loop")
        magic, version = struct.unpack_from("=8sI", self.memory, 0)
        assert (magic, version) == (b"TAKTLOOP", 1)

    def _at(self, name: str) -> int:
        count = struct.unpack_from("=I", self.memory, 24)[0]
        for number in range(count):
            at = _SLOTS_AT + number * _SLOT_BYTES
            if _text(self.memory[at + 296 : at + 344]) == name:
                return number
        raise LookupError(f"no loop {name}")

    def names(self) -> Dict[str, Slot]:
        found = {}
        for number in range(struct.unpack_from("=I", self.memory, 24)[0]):
            at = _SLOTS_AT + number * _SLOT_BYTES
            state, kind, period, deadline, _spin, tid, stages = struct.unpack_from("=IIQQQII", self.memory, at + 128)
            names = [_text(self.memory[at + 168 + 16 * one : at + 184 + 16 * one]) for one in range(stages)]
            found[_text(self.memory[at + 296 : at + 344])] = Slot(state, kind, period, deadline, tid, names)
        return found

    def attach(self, name: str) -> None:
        at = _SLOTS_AT + self._at(name) * _SLOT_BYTES
        written = struct.unpack_from("=Q", self.memory, at + 64)[0]
        struct.pack_into("=QQQ", self.memory, at, 0, time.monotonic_ns(), written)
        struct.pack_into("=Q", self.memory, at, os.getpid())

    def take(self, name: str) -> List[Record]:
        number = self._at(name)
        at, ring = _SLOTS_AT + number * _SLOT_BYTES, _HEAD_BYTES + number * _RING_BYTES
        read = struct.unpack_from("=Q", self.memory, at + 16)[0]
        written = struct.unpack_from("=Q", self.memory, at + 64)[0]
        records = []
        for one in range(read, written):
            words = struct.unpack_from("=BBHI5Qd", self.memory, ring + one % _RECORDS * 64)
            kind, stage, slot, skipped, job, release, begin, end, input_, value = words
            assert slot == number
            known = None if math.isnan(value) else value
            records.append(Record(kind, stage, skipped, job, release, begin, end, input_, known))
        struct.pack_into("=QQ", self.memory, at + 8, time.monotonic_ns(), written)
        return records
