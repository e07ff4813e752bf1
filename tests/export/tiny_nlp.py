"""A PaddleNLP text classifier of two small layers with a vocabulary of characters, saved as a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import paddle_amp_plugin  # noqa: F401  (before Paddle)

WORDS = "好 坏 美 丑 快 慢 房 间 书 店 很 不 的 了 服 务".split()


def make(folder: Path, *, half: bool = False) -> None:
    import paddle
    from paddlenlp.transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n", "utf-8")
    paddle.seed(3)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = BertConfig(
        vocab_size=len(WORDS) + 5, max_position_embeddings=128, hidden_act="relu", num_labels=2, **shape
    )
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():  # random numbers large enough for the classes to differ
        parameter.set_value(parameter * 4.0 if parameter.ndim > 1 else parameter)
    if half:
        model = model.astype("float16") or model
    model.save_pretrained(str(folder))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(str(folder))


def make_rows(path: Path, count: int = 40) -> None:
    rows = [f"{''.join(WORDS[(i * k) % len(WORDS)] for k in range(1, 7))}\t{i % 2}" for i in range(count)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":  # python -m tests.export.tiny_nlp FOLDER [half]
    place = Path(sys.argv[1])
    make(place / "model", half=sys.argv[2:] == ["half"])
    make_rows(place / "rows.tsv")
