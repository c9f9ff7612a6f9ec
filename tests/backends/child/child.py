"""A stand-in for the engine child that does what the prompt says. It speaks the real messages over a real socket.

Options before those of `backends.child.worker` decide how it loads. `Detokenize` is answered with the commands that have come.
"""

import argparse
import os
import select
import signal
import socket
import sys
import time

from backends.child.frames import FrameReader, frame
from backends.child.messages import (
    Cancel,
    Deltas,
    Detokenize,
    Detokenized,
    Embed,
    Embedded,
    Errored,
    Generate,
    Heartbeat,
    LoadFailed,
    Ready,
    Shutdown,
    Tokenize,
    Tokenized,
    command_decoder,
    encoder,
)
from backends.errors import ContextOverflow, pack_error
from backends.types import Delta, Embeddings, ModelCard, Text, TokenList, Usage

BEAT_S = 0.05
FOREVER = 1 << 30


class Child:
    def __init__(self, end: socket.socket, name: str, options: argparse.Namespace) -> None:
        self.socket = end
        self.frames = FrameReader()
        self.name = name
        self.options = options
        self.seen: list[str] = []
        self.steps: dict[int, tuple[Generate, int, int]] = {}  # id: command, deltas sent, deltas to send
        self.step_age_s = 0.0
        self.beat_at = 0.0
        self.beats = 0

    def send(self, reply: object) -> None:
        self.socket.sendall(frame(encoder.encode(reply)))

    def beat(self) -> None:
        if time.monotonic() < self.beat_at:
            return
        self.beat_at = time.monotonic() + BEAT_S
        self.beats += 1
        self.send(
            Heartbeat(
                running=len(self.steps),
                waiting=0,
                step_age_s=self.step_age_s,
                gauges={"kv_cells_used": 7.0},
                counters={"generated_total": float(sum(seen.startswith("Generate") for seen in self.seen))},
            )
        )

    def load(self) -> None:
        match self.options.load:
            case "fail":
                self.send(LoadFailed("The file does not fit into memory: 2 GiB of 1 GiB."))
                sys.exit(1)
            case "crash":
                os._exit(3)
            case "never":
                while True:
                    self.beat()
                    time.sleep(0.01)
            case "mute":
                time.sleep(3600)
        card = ModelCard(id=self.name, created=1, context_length=128, architecture="scripted")
        self.send(Ready(card, slots=2, context=128, context_per_request=128, load_s=0.1))

    def run(self) -> None:
        self.beat()
        self.load()
        while os.getppid() == self.options.parent:
            self.beat()
            if select.select([self.socket], [], [], 0.002 if self.steps else 0.01)[0]:
                data = self.socket.recv(65536)
                if not data:
                    sys.exit(0)
                for body in self.frames.feed(data):
                    self.obey(command_decoder.decode(body))
            self.step()

    def obey(self, command: object) -> None:
        self.seen.append(f"{type(command).__name__} {getattr(command, 'id', '')}".strip())
        match command:
            case Shutdown():
                if not self.options.ignore_shutdown:
                    sys.exit(0)
            case Cancel(id=id):
                self.steps.pop(id, None)
            case Generate(id=id):
                self.generate(id, command)
            case Detokenize(id=id):
                self.send(Detokenized(id, "\n".join(self.seen)))
            case Embed(id=id):
                if command.request.inputs != (Text("never"),):
                    self.send(Embedded(id, Embeddings((b"\0\0\x80?",), Usage(1))))
            case Tokenize(id=id):
                if command.request.prompt != Text("never"):
                    self.send(Tokenized(id, TokenList((1, 2), (b"a", b"b"))))

    def generate(self, id: int, command: Generate) -> None:
        words = command.request.prompt.text.split()
        match words[0]:
            case "say":
                self.steps[id] = (command, 0, int(words[1]))
            case "flood":
                self.send(Deltas(tuple((id, delta) for delta in answer(command, 0, int(words[1]), int(words[1])))))
            case "burst":
                items = [(id, delta) for delta in answer(command, 0, int(words[1]), int(words[1]))]
                # At once: so many small writes would not fit into the kernel's buffer, and nobody reads meanwhile.
                self.socket.sendall(b"".join(frame(encoder.encode(Deltas((item,)))) for item in items))
                os._exit(1)
            case "wait":
                self.steps[id] = (command, FOREVER, FOREVER)
            case "error":
                self.send(Errored(id, pack_error(ContextOverflow("The prompt has 200 tokens, the context 128."))))
            case "exit":
                os._exit(int(words[1]))
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "garbage":
                self.socket.sendall(frame(b"\xc1 not MessagePack"))
            case "nonsense":
                self.socket.sendall(frame(b"\x92\xa6Deltas\x01"))
            case "huge":
                self.socket.sendall(b"\xff\xff\xff\xff")
            case "step":
                self.step_age_s = float(words[1])
            case "print":
                sys.stderr.write(" ".join(words[1:]) + "\n")
                self.send(Deltas(((id, Delta(finish="stop", usage=Usage(1, 0))),)))

    def step(self) -> None:
        items = []
        for id, (command, sent, total) in list(self.steps.items()):
            if sent == FOREVER:
                continue
            items += [(id, delta) for delta in answer(command, sent, sent + 1, total)]
            self.steps[id] = (command, sent + 1, total)
            if sent + 1 == total:
                del self.steps[id]
        if items:
            self.send(Deltas(tuple(items)))


def answer(command: Generate, start: int, stop: int, total: int) -> list[Delta]:
    """The one-token deltas from `start` to `stop` of an answer of `total`, one of each choice in turn."""
    n = command.request.n
    deltas = []
    for number in range(start, stop):
        for index in range(n):
            is_last = number == total - 1
            usage = Usage(1, total * n) if is_last and index == n - 1 else None
            deltas.append(Delta(index, f"{number} ", 1, finish="length" if is_last else None, usage=usage))
    return deltas


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", default="ok", choices=["ok", "fail", "crash", "never", "mute"])
    parser.add_argument("--parent", type=int, default=os.getppid())
    parser.add_argument("--ignore-shutdown", action="store_true")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    Child(socket.socket(fileno=options.fd), options.name, options).run()


if __name__ == "__main__":
    main()
