"""PaddleOCR averages weights for one algorithm (SRN): a ``ModelAverage`` is made at every evaluation and applied.

It has counted no step by then, and ``apply()`` is a context that the host never enters; so nothing may change, at O2
either, where the parameters it is given are half and the masters are what is saved.
"""

import numpy as np
import paddle
import pytest

from tests.checkpoint import small


@pytest.mark.parametrize("amp", ["O1", "O2"])
def test_what_is_saved_is_what_was_learned(tmp_path, amp) -> None:
    def trained(folder, average):
        run = small.start({"level": amp, "dtype": "float16"})
        with run.session.attach(run.model, None, run.optimizer):
            for number in range(3):
                run.steps([number], bad=())
                if average:
                    made = paddle.incubate.ModelAverage(
                        0.15, parameters=run.model.parameters(), min_average_window=10000, max_average_window=15625
                    )
                    made.apply()
            run.save(folder)
        return paddle.load(str(folder / "latest.pdparams"), return_numpy=True)

    plain, averaged = trained(tmp_path / "a", False), trained(tmp_path / "b", True)
    assert plain.keys() == averaged.keys() and all(np.array_equal(plain[k], averaged[k]) for k in plain)
    assert {str(value.dtype) for value in averaged.values()} == {"float32"}
