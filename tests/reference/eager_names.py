"""Which ops Paddle's eager mode asks its AMP code about, under which names and in which order.

On a CPU ``auto_cast`` switches itself off in Python. Setting the tracer's AMP level by hand brings the C++ side to
life: every eager function with AMP code then calls ``GetAmpDestDtype`` (paddle/fluid/imperative/amp_utils.h) under the
op's AMP name, and says so at log level 6. The answer is always float32 there, because no tensor lies on a GPU; so this
is the reference for names and order, the static plan for dtypes. Works with Paddle 2.6 and 3.3. In-place ops
and casts have no AMP code and do not appear.

Run as a program, in a process of its own, since the log level is read at start::

    GLOG_v=6 python eager_names.py db bert
"""

import zlib  # noqa: F401, I001  -- before paddle: 2.6.2's library exports symbols of an old zlib

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

ASKED = re.compile(rb"AMP GetAmpDestDtype: op\((\w+)\)")
DTYPE = re.compile(rb"Dtype: (\w+)")
OUTPUT = re.compile(rb"Output: \[")
FLOATING = {b"float32", b"float16", b"bfloat16"}
MARK = b"eager_names: "


def run_eager_names(models: Sequence[str]) -> dict[str, list[str]]:
    """model -> AMP names of the ops of its forward that have a floating input, in order."""
    command = [sys.executable, str(Path(__file__)), *models]
    env = {**os.environ, "GLOG_v": "6", "GLOG_logtostderr": "1"}
    done = subprocess.run(command, capture_output=True, timeout=300, check=False, env=env)
    if done.returncode:
        start = done.stderr.rfind(b"Traceback (most recent call last)")
        raise RuntimeError("eager run failed:\n" + done.stderr[start:][-3000:].decode(errors="replace"))
    return parse_log(done.stderr.splitlines())


def parse_log(lines: Iterable[bytes]) -> dict[str, list[str]]:
    """Read the log of ``main``. An op's inputs are printed between its AMP line and the next ``Output:``.

    An op of the legacy interface prints no inputs and is kept.
    """
    found: dict[str, list[str]] = {}
    names: list[str] = []
    asked, dtypes, printed = "", set(), False

    def finish() -> None:
        if asked and (dtypes & FLOATING or not printed):
            names.append(asked)

    for line in lines:
        if match := ASKED.search(line):
            finish()
            asked, dtypes, printed = match.group(1).decode(), set(), False
        elif line.startswith(MARK):
            finish()
            asked, names = "", []
            found[line[len(MARK) :].decode()] = names
        elif asked and OUTPUT.search(line):
            finish()
            asked = ""
        elif asked:
            seen = DTYPE.findall(line)
            dtypes.update(seen)
            printed = printed or bool(seen)
    found.pop("end", None)
    return found


def main() -> None:
    import models
    import paddle
    from paddle.base import core, framework

    tracer = framework._dygraph_tracer()

    def mark(name: str) -> None:
        sys.stderr.write(f"{MARK.decode()}{name}\n")
        sys.stderr.flush()

    for name in sys.argv[1:]:
        model, arrays = models.build(name)
        inputs = [paddle.to_tensor(a) for a in arrays]
        tracer._amp_dtype, tracer._amp_level = "bfloat16", core.AmpLevel.O1
        mark(name)
        model(*inputs)
        mark("end")
        tracer._amp_level = core.AmpLevel.O0


if __name__ == "__main__":
    main()
