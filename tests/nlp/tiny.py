"""Tiny recipes, data and models: a task is learned in seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CHARACTERS = "好坏书店人在北京上海我你他吃大小不很的了，。0123456789"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_act": "relu",
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
LABELS = ["O", "B-LOC", "I-LOC"]


def tokenizer(folder: Path) -> Path:
    """A tokenizer folder: one token a character."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{c}\n" for c in (*SPECIAL, *CHARACTERS)), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "ErnieTokenizer"}', encoding="utf-8")
    return folder


def rows(task: str, count: int = 64) -> list[dict[str, Any]]:
    """Rows that a tiny model can learn by heart: the label stands in the text."""
    out: list[dict[str, Any]] = []
    for i in range(count):
        good = i % 2 == 0
        text = f"{'我你他'[i % 3]}{'吃在的'[i // 3 % 3]}{'好' if good else '坏'}{'书店人大小'[i % 5] * (1 + i % 4)}"
        if task == "sequence_classification":
            out.append({"text": text, "label": "yes" if good else "no"})
        elif task == "sentence_pair":
            out.append(
                {"text": text, "text_pair": "好" if i % 3 else "坏", "label": "yes" if (i % 3 > 0) == good else "no"}
            )
        elif task == "token_classification":
            tokens = [*text, "在", *("北京" if good else "上海"), "。"]
            out.append({"tokens": tokens, "labels": ["O"] * (len(text) + 1) + ["B-LOC", "I-LOC", "O"]})
        elif task == "question_answering":
            place = "北京" if good else "上海"
            context = f"{text}在{place}。"
            answers = {"text": [place], "answer_start": [len(text) + 1]}
            out.append({"id": str(i), "context": context, "question": "人在", "answers": answers})
        else:
            out.append({"text": text})
    return out


def write_rows(path: Path, items: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in items), encoding="utf-8")
    return str(path)


def recipe(folder: Path, task: str, *, steps: int = 4, **sections: Any) -> dict[str, Any]:
    """A recipe of a tiny ERNIE from scratch, its data written into ``folder``; ``sections`` are merged in."""
    from paddle_amp_plugin.nlp.recipe import merge

    folder.mkdir(parents=True, exist_ok=True)
    labels = LABELS if task == "token_classification" else ["no", "yes"]
    document = {
        "task": task,
        "model": {
            "architecture": "ernie",
            "tokenizer_name_or_path": str(tokenizer(folder / "tokenizer")),
            "config": dict(SIZES),
        },
        "data": {
            "train": write_rows(folder / "train.jsonl", rows(task)),
            "eval": write_rows(folder / "eval.jsonl", rows(task, 32)),
            "labels": labels if task not in ("masked_lm", "question_answering") else [],
            "max_seq_length": 32,
            "doc_stride": 8,
        },
        "trainer": {
            "output_dir": str(folder / "out"),
            "max_steps": steps,
            "per_device_train_batch_size": 16,
            "learning_rate": 5e-3,
            "logging_steps": 5,
            "evaluation_strategy": "no",
            "save_strategy": "no",
            "disable_tqdm": True,
        },
    }
    return merge(document, sections)


def write(path: Path, document: dict[str, Any]) -> str:
    import yaml

    path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    return str(path)


def read(folder: Path, task: str, **more: Any) -> Any:
    """The checked ``Recipe`` of ``recipe(…)``."""
    from paddle_amp_plugin.nlp import recipe as recipes

    return recipes.read(write(folder / "recipe.yml", recipe(folder, task, **more)))
