"""Recognise BERT's encoder (Devlin et al. 2019) in an exported graph, and give what it is made of.

Both shapes of graph that `models.export` writes are understood: floats, and int8 weights (`models.quantize`). A graph
is taken for BERT's only if each of its operations is one of BERT's and stands as often as in BERT, so that what
computes from these weights alone computes what the graph does.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.folder import Kind
from models.onnx_file import Graph, Node

PREFIX = "model."  # of the exported module's parameters
_WORDS = "embeddings.word_embeddings.weight"
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}
_PRODUCTS = {"MatMul", "MatMulInteger", "MatMulIntegerToFloat"}
_OPERATIONS = (
    "Abs Add And Cast Concat Div Expand Gather GatherND Gelu Gemm GreaterOrEqual LayerNormalization MatMul "
    "MatMulInteger MatMulIntegerToFloat Max Mul QuantizeLinear Range ReduceMax Reshape Shape Slice Softmax Split "
    "Squeeze Tanh Transpose Unsqueeze Where"
).split()
_LINEAR = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
_HEADS: Mapping[Kind, tuple[str, ...]] = {
    "dual-encoder": (),
    "cross-encoder": ("bert.pooler.dense", "classifier"),
    "reader": ("qa_outputs",),
}


@dataclass(frozen=True, slots=True, eq=False)
class Bert:
    """An encoder's numbers: matrices (out, in), tables (rows, hidden), by their names in a transformers checkpoint.

    Word embeddings are the floats `words`, or int8 `quantised_words` times `word_scales`, one a row. prefix stands
    before the encoder's names; head_dimension is how many numbers one attention head has.
    """

    weights: Mapping[str, NDArray[np.float32]]
    words: NDArray[np.float32] | None
    quantised_words: NDArray[np.int8] | None
    word_scales: NDArray[np.float32] | None
    prefix: str
    n_layers: int
    head_dimension: int
    epsilon: float

    def layer(self, i: int, name: str) -> NDArray[np.float32]:
        """Return a parameter of a layer."""
        return self.weights[f"{self.prefix}encoder.layer.{i}.{name}"]

    def embedding(self, name: str) -> NDArray[np.float32]:
        """Return a parameter of the embeddings other than the words."""
        return self.weights[f"{self.prefix}embeddings.{name}"]


def bert_in(graph: Graph, kind: Kind) -> Bert | None:
    """Return the BERT that a graph of a kind computes, None where it is something else."""
    counts = Counter(node.operation for node in graph.nodes)
    epsilons = {node.attributes.get("epsilon", 1e-5) for node in graph.nodes if node.operation == "LayerNormalization"}
    words = [name for name in graph.constants if name.removesuffix("_quantized").endswith(_WORDS)]
    if set(graph.inputs) != _INPUTS or not counts.keys() <= set(_OPERATIONS) or len(epsilons) != 1 or len(words) != 1:
        return None
    stem = words[0].removesuffix("_quantized")
    prefix = stem.removeprefix(PREFIX).removesuffix(_WORDS)
    n_layers, dimension = counts["Softmax"], _head_dimension(graph)
    expected = {"Gelu": n_layers, "LayerNormalization": 2 * n_layers + 1, "Tanh": int(kind == "cross-encoder")}
    if dimension is None or any(counts[operation] != n for operation, n in expected.items()):
        return None
    if any(node.attributes.get("approximate", "none") != "none" for node in graph.nodes if node.operation == "Gelu"):
        return None
    bert = Bert(
        parameters(graph, without=stem),
        *_words(graph, stem),
        prefix=prefix,
        n_layers=n_layers,
        head_dimension=dimension,
        epsilon=float(epsilons.pop()),
    )
    return bert if _is_whole(bert, kind) else None


def parameters(graph: Graph, *, without: str = "") -> dict[str, NDArray[np.float32]]:
    """Return a graph's parameters as float32 by their names in the checkpoint, but for the one named.

    int8 weights become the numbers they stand for; matrices, which the exporter names by number, are found through the
    bias that their product meets.

    Raises:
        LookupError: a quantised weight has no scale.
    """
    constants = graph.constants
    found = {
        name.removeprefix(PREFIX): np.asarray(values, np.float32)
        for name, values in constants.items()
        if name.startswith(PREFIX) and values.dtype == np.float32 and not name.endswith("_scale") and name != without
    }
    for name in constants:
        stem = name.removesuffix("_quantized")
        if name.startswith(PREFIX) and stem not in (name, without):
            found[stem.removeprefix(PREFIX)] = _dequantized(constants, stem)
    return found | _matrices(graph)


def _matrices(graph: Graph) -> dict[str, NDArray[np.float32]]:
    constants = graph.constants
    makers = {output: node for node in graph.nodes for output in node.outputs}
    found: dict[str, NDArray[np.float32]] = {}
    for node in graph.nodes:
        bias = next((name for name in node.inputs if name in constants and name.endswith(".bias")), None)
        if node.operation != "Add" or bias is None:
            continue
        maker = makers.get(next(name for name in node.inputs if name != bias))
        while maker is not None and maker.operation in ("Mul", "Cast", "Reshape"):
            maker = makers.get(maker.inputs[0])
        if maker is None or maker.operation not in _PRODUCTS:
            continue
        name = maker.inputs[1]
        stem = name.removesuffix("_quantized")
        matrix = constants[name] if stem == name else _dequantized(constants, stem)
        found[bias.removeprefix(PREFIX).removesuffix(".bias") + ".weight"] = np.asarray(matrix, np.float32).T
    return found


def _dequantized(constants: Mapping[str, NDArray[np.generic]], stem: str) -> NDArray[np.float32]:
    """Return int8 values times their scales: one in all, (columns,) of a matrix, or (rows, 1) of a table."""
    values, scale = (constants[f"{stem}_{part}"].astype(np.float32) for part in ("quantized", "scale"))
    zero = constants.get(f"{stem}_zero_point", np.zeros(1, np.float32)).astype(np.float32)
    return np.asarray((values - zero) * scale, np.float32)


def _words(
    graph: Graph, stem: str
) -> tuple[NDArray[np.float32] | None, NDArray[np.int8] | None, NDArray[np.float32] | None]:
    """Return the word embeddings as floats, or as int8 with a scale a row."""
    constants = graph.constants
    if stem in constants:
        return np.asarray(constants[stem], np.float32), None, None
    values, scales = constants[f"{stem}_quantized"], constants.get(f"{stem}_scale")
    zero = constants.get(f"{stem}_zero_point")
    is_plain = values.dtype == np.int8 and scales is not None and scales.size == len(values) and not np.any(zero)
    if is_plain and scales is not None:
        return None, np.asarray(values, np.int8), np.asarray(scales, np.float32).reshape(-1)
    return _dequantized(constants, stem), None, None


def _head_dimension(graph: Graph) -> int | None:
    """Return the dimension of an attention head, None unless all scores are divided by its root."""
    makers: Mapping[str, Node] = {output: node for node in graph.nodes for output in node.outputs}
    found = set()
    for softmax in (node for node in graph.nodes if node.operation == "Softmax"):
        masked = makers.get(softmax.inputs[0])
        scaled = None if masked is None else makers.get(masked.inputs[0])
        if scaled is None or scaled.operation != "Mul" or scaled.inputs[1] not in graph.constants:
            return None
        scale = graph.constants[scaled.inputs[1]]
        if scale.size != 1:
            return None
        found.add(round(float(scale.reshape(-1)[0]) ** -2, 2))
    shapes = {
        int(graph.constants[node.inputs[3]].reshape(-1)[0])
        for node in graph.nodes
        if node.operation == "Concat" and len(node.inputs) == 4 and node.inputs[3] in graph.constants
    }
    dimension = next(iter(found), 0.0)
    return int(dimension) if len(found) == 1 and dimension in shapes else None


def _is_whole(bert: Bert, kind: Kind) -> bool:
    """Return whether every parameter of BERT is there, in a shape that fits, and none of another head."""
    table = bert.words if bert.words is not None else bert.quantised_words
    if table is None or not math.isfinite(bert.epsilon):
        return False
    hidden = table.shape[1]
    intermediate = bert.weights.get(f"{bert.prefix}encoder.layer.0.intermediate.dense.bias", np.zeros(0)).size
    sizes: dict[str, tuple[int, int]] = {}
    for i in range(bert.n_layers):
        layer = f"{bert.prefix}encoder.layer.{i}."
        sizes |= {layer + name: (hidden, hidden) for name in _LINEAR}
        sizes |= {layer + "intermediate.dense": (intermediate, hidden), layer + "output.dense": (hidden, intermediate)}
    sizes |= dict(zip(_HEADS[kind], [(hidden, hidden), (1, hidden)] if kind == "cross-encoder" else [(2, hidden)]))  # noqa: B905 - a dual encoder has no head
    shapes = {name + ".weight": size for name, size in sizes.items()} | {
        name + ".bias": size[:1] for name, size in sizes.items()
    }
    norms = ["embeddings.LayerNorm"]
    norms += [
        f"encoder.layer.{i}.{at}.LayerNorm" for i in range(bert.n_layers) for at in ("attention.output", "output")
    ]
    shapes |= {f"{bert.prefix}{norm}.{part}": (hidden,) for norm in norms for part in ("weight", "bias")}
    matrices = {name for name, values in bert.weights.items() if values.ndim == 2 and "embeddings" not in name}
    tables = [
        bert.weights.get(f"{bert.prefix}embeddings.{name}_embeddings.weight") for name in ("position", "token_type")
    ]
    return (
        matrices == {name for name, shape in shapes.items() if len(shape) == 2}
        and all(name in bert.weights and bert.weights[name].shape == shape for name, shape in shapes.items())
        and all(each is not None and each.ndim == 2 and each.shape[1] == hidden for each in tables)
    )
