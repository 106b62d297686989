"""What is measured: each peer, the environment that it runs in, and what of the weights it needs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from target import TargetError

Kind: TypeAlias = Literal["rerank", "serve", "embed"]

OWN = "tercet"  # the environment that runs this
LIBRARIES = "libraries"
INFINITY = "infinity"
_TORCH = "torch==2.13.0"
ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {  # the latest versions that go together
    LIBRARIES: (
        _TORCH,
        "transformers==4.57.6",
        "sentence-transformers[onnx,openvino]==5.7.0",
        "optimum-intel==1.27.0",
        "optimum-onnx==0.1.0",
        "onnxruntime==1.32.0",
        "openvino==2026.4.1",
        "nncf==3.4.0",
        "flashrank==0.2.10",
        "fastembed==0.9.1",
        "rerankers==0.10.0",
        "txtai==9.10.0",
    ),
    INFINITY: (_TORCH, "transformers==4.57.6", "infinity-emb[torch,optimum,server]==0.0.78"),
}


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to score.

    program is the worker that knows how, or for "serve" the service; weights is the file that it needs, below the
    folder of all weights, and `model` the folder that it is told.
    """

    name: str
    kind: Kind
    environment: str
    program: str
    variant: str
    model: str = "cross-encoder"
    weights: str = "cross-encoder/model.safetensors"


def _sentence_transformers(kind: Kind, variant: str, weights: str) -> Peer:
    model = "dual-encoder" if kind == "embed" else "cross-encoder"
    name = f"sentence-transformers {variant}"
    return Peer(name, kind, LIBRARIES, "with_sentence_transformers", variant, model, f"{model}/{weights}")


_ONNX, _QINT8 = "onnx/model.onnx", "onnx/model_qint8_avx512_vnni.onnx"
_OPENVINO, _NNCF = "openvino/openvino_model.xml", "openvino/openvino_model_qint8_quantized.xml"

TERCET = Peer("tercet", "rerank", OWN, "with_tercet", "auto")
TERCET_EXCERPTS = Peer("tercet reading 96 tokens", "rerank", OWN, "with_tercet", "auto:96")  # the fast mode
TERCET_IN_ONNX = Peer("tercet in ONNX Runtime", "rerank", OWN, "with_tercet", "onnxruntime")
TERCET_SERVED = Peer("tercet served", "serve", OWN, "tercet", "auto")
TERCET_EMBEDDING = Peer("tercet embedding", "embed", OWN, "with_tercet", "auto", "dual-encoder")
REFERENCE = _sentence_transformers("rerank", "torch", "model.safetensors")  # fp32: its scores count as exact
EMBEDDING_REFERENCE = _sentence_transformers("embed", "torch", "model.safetensors")
PEERS: tuple[Peer, ...] = (
    TERCET,
    TERCET_EXCERPTS,
    TERCET_IN_ONNX,
    REFERENCE,
    _sentence_transformers("rerank", "torch bf16", "model.safetensors"),
    _sentence_transformers("rerank", "onnx", _ONNX),
    _sentence_transformers("rerank", "onnx qint8", _QINT8),
    _sentence_transformers("rerank", "openvino", _OPENVINO),
    _sentence_transformers("rerank", "openvino f32", _OPENVINO),
    _sentence_transformers("rerank", "openvino qint8", _NNCF),
    Peer("flashrank", "rerank", LIBRARIES, "with_flashrank", "fp32", "flashrank", "flashrank/fp32"),
    Peer("flashrank int8", "rerank", LIBRARIES, "with_flashrank", "int8", "flashrank", "flashrank/int8"),
    Peer("fastembed", "rerank", LIBRARIES, "with_fastembed", "", weights=f"cross-encoder/{_ONNX}"),
    Peer("rerankers", "rerank", LIBRARIES, "with_rerankers", ""),
    Peer("txtai", "rerank", LIBRARIES, "with_txtai", ""),
    TERCET_SERVED,
    Peer("infinity torch", "serve", INFINITY, "infinity", "torch", "infinity", "infinity/model.onnx"),
    Peer("infinity optimum", "serve", INFINITY, "infinity", "optimum", "infinity", "infinity/model.onnx"),
    TERCET_EMBEDDING,
    EMBEDDING_REFERENCE,
    _sentence_transformers("embed", "onnx", _ONNX),
    _sentence_transformers("embed", "openvino", _OPENVINO),
    Peer("fastembed", "embed", LIBRARIES, "with_fastembed", "", "dual-encoder", f"dual-encoder/{_ONNX}"),
)
_ALWAYS: Mapping[Kind, tuple[Peer, ...]] = {  # what the others of a kind are compared with
    "rerank": (TERCET, REFERENCE),
    "serve": (TERCET, REFERENCE, TERCET_SERVED),
    "embed": (TERCET_EMBEDDING, EMBEDDING_REFERENCE),
}


def chosen(words: Sequence[str]) -> list[Peer]:
    """Return the peers whose names hold one of the words, all for none, and those that they are compared with.

    Raises:
        TargetError: a word is in no name.
    """
    for word in words:
        if not any(word in peer.name for peer in PEERS):
            raise TargetError(f"There is no peer {word!r}; there are: {', '.join(_names(PEERS))}.")
    named = [peer for peer in PEERS if not words or any(word in peer.name for word in words)]
    always = {peer for each in named for peer in _ALWAYS[each.kind]}
    return [peer for peer in PEERS if peer in named or peer in always]


def _names(peers: Iterable[Peer]) -> list[str]:
    return list(dict.fromkeys(peer.name for peer in peers))
