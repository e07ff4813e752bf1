"""A PaddleNLP text classifier (a ``from_pretrained`` folder) as the subject of an export."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_amp_plugin.errors import AmpError
from paddle_amp_plugin.messages import tr

if TYPE_CHECKING:
    from paddle_amp_plugin.export.exported import Array, Runner
    from paddle_amp_plugin.export.wanted import Wanted
    from paddle_amp_plugin.export.weights import Masters

INPUTS = ("input_ids", "token_type_ids", "attention_mask")
WEIGHTS = "model_state.pdparams"
BATCHES, BATCH, LENGTH = 4, 16, 64
_ENDING = "ForSequenceClassification"


def export_folder(
    folder: Path, wanted: Wanted, *, data: Path | None, convert_half: bool, say: Callable[[str], None]
) -> dict[str, Any]:
    """``paddle-amp export DIR_OF_MODEL``: returns the record. Raises AmpError for what the user can put right."""
    facts = read_config(folder)
    rows = read_rows(data, label_names(facts)) if data is not None else []
    if wanted.int8 == "qat" and not rows:
        raise AmpError(
            "AMP230",
            tr(
                "--int8 qat of a text classifier trains on --data TSV", "文本分类模型的 --int8 qat 需用 --data TSV 训练"
            ),
            hint=tr("or --int8 ptq", "或使用 --int8 ptq"),
        )
    if importlib.util.find_spec("paddlenlp") is None:
        raise AmpError(
            "AMP044",
            tr("PaddleNLP is not installed", "未安装 PaddleNLP"),
            hint='pip install "paddle-amp-plugin[cpu,nlp]"',
        )
    from paddle_amp_plugin.export import pipeline
    from paddle_amp_plugin.export.weights import read_masters

    pipeline.require(wanted)
    masters = read_masters(folder / WEIGHTS, convert_half=convert_half)
    if masters.half:
        say(
            tr(
                "{n} half tensors were converted to float32: these are rounded values, not the masters",
                "{n} 个半精度张量已转换为 float32：这些是舍入后的值，而非主权重",
                n=masters.half,
            )
        )
    if not rows:
        say(
            tr(
                "no --data: outputs are compared on random token ids, and there is no metric",
                "未指定 --data：以随机 token 比较输出，且没有指标",
            )
        )
    return pipeline.export(Classifier(folder, masters, rows), wanted, say)


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's ``config.json``. Raises AmpError: AMP243 a file is missing; AMP238 not a sequence classifier."""
    missing = [name for name in ("config.json", WEIGHTS) if not (folder / name).is_file()]
    if not (list(folder.glob("tokenizer*")) or list(folder.glob("vocab*"))):
        missing.append("tokenizer_config.json / vocab.txt")
    if missing:
        raise AmpError(
            "AMP243",
            tr(
                "{d} is not a PaddleNLP model folder: {m} missing",
                "{d} 不是 PaddleNLP 模型文件夹：缺少 {m}",
                d=folder,
                m=", ".join(missing),
            ),
            hint=tr(
                "save it with model.save_pretrained(DIR) and tokenizer.save_pretrained(DIR)",
                "请用 model.save_pretrained(DIR) 与 tokenizer.save_pretrained(DIR) 保存",
            ),
        )
    try:
        facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise AmpError(
            "AMP243", tr("{f} is not JSON: {e}", "{f} 不是 JSON：{e}", f=folder / "config.json", e=error)
        ) from None
    names = facts.get("architectures") or []
    if not names or not str(names[0]).endswith(_ENDING):
        raise AmpError(
            "AMP238",
            tr(
                "{d}: architectures {n} cannot be exported and verified; supported: …{e}",
                "{d}：architectures {n} 无法导出并验证；支持：…{e}",
                d=folder,
                n=names,
                e=_ENDING,
            ),
        )
    return dict(facts)


def label_names(facts: dict[str, Any]) -> list[str]:
    """The labels' names in the order of their ids; empty if the config has none."""
    names = facts.get("id2label") or {}
    return [str(names[key]) for key in sorted(names, key=int)]


def read_rows(path: Path, names: Sequence[str]) -> list[tuple[str, int]]:
    """``text<TAB>label`` lines (UTF-8); a label is an id, or one of ``names``. Raises AmpError (AMP245)."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AmpError("AMP245", tr("cannot read {p}: {e}", "无法读取 {p}：{e}", p=path, e=reason)) from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        text, tab, label = line.rpartition("\t")
        value = label.strip()
        index = names.index(value) if value in names else int(value) if value.isdecimal() else -1
        if not tab or index < 0 or (names and index >= len(names)):
            raise AmpError(
                "AMP245",
                tr("{p}, line {n}: expected text<TAB>label", "{p} 第 {n} 行：应为 文本<TAB>标签", p=path, n=number),
                hint=tr("labels: {l}", "标签：{l}", l=", ".join(names) or "0, 1, …"),
            )
        rows.append((text, index))
    if not rows:
        raise AmpError("AMP245", tr("{p} is empty", "{p} 为空", p=path))
    return rows


class Classifier:
    """A sequence classifier and its rows, as ``export.pipeline.Subject``."""

    kind = "sequence_classification"
    transformer = True

    def __init__(self, folder: Path, masters: Masters, rows: Sequence[tuple[str, int]]) -> None:
        from paddlenlp.transformers import AutoTokenizer

        self.masters, self._folder, self._rows = masters, folder, rows
        self._tokenizer = AutoTokenizer.from_pretrained(str(folder))
        self.model = self.again()
        groups = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
        self._groups = [self._encoded([text for text, _ in group]) for group in groups]

    def again(self) -> Any:
        import paddle
        from paddlenlp.transformers import AutoModelForSequenceClassification

        # Without dtype PaddleNLP makes the model in the type that config.json names: half, for a half checkpoint.
        model = AutoModelForSequenceClassification.from_pretrained(str(self._folder), dtype="float32")
        kept = {name: paddle.to_tensor(value) for name, value in self.masters.tensors.items()}
        model.set_state_dict(kept)
        model.eval()
        return model

    def _encoded(self, texts: Sequence[str]) -> list[Array]:
        import numpy as np

        found = self._tokenizer(
            list(texts),
            max_length=LENGTH,
            truncation=True,
            padding="max_length",
            return_attention_mask=True,
            return_token_type_ids=True,
        )
        return [np.asarray(found[name], dtype=np.int64) for name in INPUTS]

    def batches(self) -> Sequence[Sequence[Array]]:
        if self._groups:
            return self._groups[:BATCHES]
        import numpy as np

        rng = np.random.default_rng(0)
        size = int(self.model.config.vocab_size)
        return [
            [
                rng.integers(0, size, (BATCH, LENGTH), dtype=np.int64),
                np.zeros((BATCH, LENGTH), np.int64),
                np.ones((BATCH, LENGTH), np.int64),
            ]
            for _ in range(BATCHES)
        ]

    def forward(self, model: Any, batch: int) -> Any:
        return self._logits(model, self.batches()[batch])

    def _logits(self, model: Any, arrays: Sequence[Array]) -> Any:
        import paddle

        with paddle.no_grad():
            tensors = {name: paddle.to_tensor(value) for name, value in zip(INPUTS, arrays, strict=True)}
            return model(**tensors)

    def save(self, model: Any, folder: Path) -> None:
        import paddle

        class Inference(paddle.nn.Layer):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.model = copy.deepcopy(model)  # Paddle 2.6 leaves a traced model unable to run again

            def forward(self, input_ids: Any, token_type_ids: Any, attention_mask: Any) -> Any:
                return self.model(input_ids, token_type_ids=token_type_ids, attention_mask=attention_mask)

        spec = [paddle.static.InputSpec([None, None], dtype="int64", name=name) for name in INPUTS]
        wrapped = Inference()
        wrapped.eval()
        paddle.jit.save(paddle.jit.to_static(wrapped, input_spec=spec), str(folder / "inference"))
        (folder / "inference.pdiparams.info").unlink(missing_ok=True)

    def metric(self, runner: Runner | None) -> dict[str, float]:
        right = 0
        for place, arrays in enumerate(self._groups):
            logits = self._logits(self.model, arrays).numpy() if runner is None else runner(arrays)[0]
            labels = [label for _, label in self._rows[place * BATCH : (place + 1) * BATCH]]
            right += int((logits.argmax(-1) == labels).sum())
        return {"accuracy": right / len(self._rows)} if self._rows else {}

    def losses(self, steps: int) -> Iterator[Callable[[Any], Any]]:
        import paddle

        for step in range(steps):
            place = step % len(self._groups)
            arrays = [paddle.to_tensor(value) for value in self._groups[place]]
            labels = paddle.to_tensor([label for _, label in self._rows[place * BATCH : (place + 1) * BATCH]])
            yield lambda model, arrays=arrays, labels=labels: paddle.nn.functional.cross_entropy(
                model(**dict(zip(INPUTS, arrays, strict=True))), labels
            )

    def finish(self, folder: Path) -> dict[str, Any]:
        self._tokenizer.save_pretrained(str(folder))
        shutil.copy2(self._folder / "config.json", folder / "config.json")
        files = sorted({f.name for f in folder.iterdir()} | {"export.json"})
        return {"files": files, "inputs": list(INPUTS), "labels": label_names(read_config(self._folder))}
