"""Export a transformers checkpoint to a model folder: ONNX, int8 weights, and a proof of parity.

Needs the `train` extra. The fp32 graph must give what torch gives, on inputs of several lengths, alone and in a padded
batch; the int8 graph must stay near the fp32 one. What was measured goes into model.json. The folder is made aside and
renamed, so a failed export leaves nothing.
"""

import contextlib
import io
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from models.checkpoint import Checkpoint, Exportable, load_module, tokenizer_json
from models.errors import ExportError, ModelFolderError
from models.folder import (
    SETTINGS_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    ExportParity,
    Kind,
    ModelFolder,
    ModelSettings,
    write_settings,
)
from models.onnx_session import OnnxSession
from models.quantize import quantize
from models.session import Outputs
from models.tokenization import ModelInput, Tokenizer

FP32_TOLERANCE = 1e-4
INT8_TOLERANCE = 0.25  # of the outputs' own size; a sound model loses a twentieth
_FP32_FILE = "fp32.onnx"
_SMALLEST = 1e-12  # the size of outputs that are all 0

_QUERIES = (
    "which exception is raised when a key is missing",
    "who kept the lighthouse in the winter of 1871",
    "how long does rye bread bake",
    "bees",
)
_PASSAGES = (
    "KeyError is raised when a mapping key is not found in the set of existing keys.",
    "The lighthouse stands over the harbour. Ingrid, its keeper since 1868, stayed through the winter of 1871.",
    "Rye bread bakes for about an hour: 15 minutes at 250 °C, then 45 at 200 °C, until it sounds hollow.",
    "Ana keeps bees in Porto.",
)


def export(
    checkpoint: Checkpoint, out: Path, settings: ModelSettings, *, quantizes: bool = True, replaces: bool = False
) -> ModelFolder:
    """Write a model folder to out and return it; its settings hold its parity.

    Args:
        settings: what model.json will say; token types, parity and hashes are filled in here.
        quantizes: whether the weights become int8.
        replaces: whether a folder that is there gives way, once the new one is whole.

    Raises:
        ExportError: the checkpoint cannot be used, out is there already, the fp32 graph differs from the checkpoint by
            more than FP32_TOLERANCE, or int8 moves the outputs by more than INT8_TOLERANCE of their size.
    """
    _check_place(out, replaces=replaces)
    if settings.max_tokens > checkpoint.max_positions:
        raise ExportError(f"{checkpoint.path} takes {checkpoint.max_positions} tokens, not {settings.max_tokens}")
    module = load_module(checkpoint)
    with _made_aside(out) as folder:
        (folder / TOKENIZER_FILE).write_text(tokenizer_json(checkpoint.path, module.model), encoding="utf-8")
        samples = sample_inputs(folder / TOKENIZER_FILE, settings)
        fp32 = folder / _FP32_FILE
        _to_onnx(module, fp32)
        parity = _fp32_parity(module, fp32, samples)
        if quantizes:
            quantize(fp32, folder / WEIGHTS_FILE)
            parity = _int8_parity(parity, settings.kind, folder, samples)
            fp32.unlink()
        else:
            fp32.rename(folder / WEIGHTS_FILE)
        written = write_settings(
            folder, settings.model_copy(update={"token_types": module.token_types, "parity": parity})
        )
    return ModelFolder(out, written.settings)


def sample_inputs(tokenizer_file: Path, settings: ModelSettings) -> list[ModelInput]:
    """Return inputs to compare on: every sample query with every sample passage, an empty one, and the longest two.

    Raises:
        ExportError: the tokenizer lacks the special tokens that an input needs.
    """
    try:
        tokenizer = Tokenizer(tokenizer_file)
    except ModelFolderError as error:
        raise ExportError(str(error)) from error
    queries = [text.ids for text in tokenizer.encode_batch(_QUERIES)]
    passages = [text.ids for text in tokenizer.encode_batch(_PASSAGES)]
    long = np.tile(np.concatenate(passages), -(-settings.max_tokens // sum(ids.size for ids in passages)))
    if settings.kind == "dual-encoder":
        texts = [(ids, settings.max_tokens) for ids in (*queries, *passages, long[:0])]
        texts += [(long, settings.max_tokens - 1), (long, settings.max_tokens)]
        return [tokenizer.single(ids, max_tokens=length) for ids, length in texts]
    inputs = [(query, passage) for query in queries for passage in passages] + [(queries[0], long[:0])]
    lengths = [(*pair, settings.max_tokens) for pair in inputs]
    lengths += [(queries[0], long, settings.max_tokens - 1), (queries[0], long, settings.max_tokens)]
    return [
        tokenizer.pair(query, passage, max_tokens=length, max_query_tokens=settings.max_query_tokens)
        for query, passage, length in lengths
    ]


def order_agreement(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Return the share of pairs of items that both (n,) scores order alike; 1 when there is no pair.

    Worked example: [3, 2, 1] and [3, 1, 2] agree on two pairs of three, .667.
    """
    first, second = np.triu_indices(one.size, k=1)
    if first.size == 0:
        return 1.0
    return float(np.mean(np.sign(one[first] - one[second]) == np.sign(other[first] - other[second])))


def _check_place(out: Path, *, replaces: bool) -> None:
    """Refuse to write over anything but a model folder, and that only if told to."""
    if out.exists() and not (out / SETTINGS_FILE).is_file():
        raise ExportError(f"{out} is there already and no model folder; name another place")
    if out.exists() and not replaces:
        raise ExportError(f"{out} is there already; --force replaces it")


@contextlib.contextmanager
def _made_aside(out: Path) -> Iterator[Path]:
    """Give an empty folder beside out that becomes out, or vanishes if the work on it fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    partial, old = (out.with_name(f".{out.name}.{os.getpid()}.{word}") for word in ("partial", "old"))
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            out.rename(old)
        partial.rename(out)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _to_onnx(module: Exportable, path: Path) -> None:
    ids = torch.arange(1, 25).reshape(2, 12)
    examples = (ids, torch.ones_like(ids), torch.zeros_like(ids))[: len(module.inputs)]
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    for name in ("torch.onnx", "onnxscript", "root"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the exporter warns of its own deprecations
        try:
            torch.onnx.export(
                module,
                examples,
                path,
                input_names=list(module.inputs),
                output_names=list(module.outputs),
                dynamic_shapes=tuple(dynamic for _ in examples),
                external_data=False,
                dynamo=True,
                verbose=False,
            )
        except (RuntimeError, TypeError) as error:  # torch's exporter derives its errors from RuntimeError
            raise ExportError(f"torch cannot export this architecture: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _fp32_parity(module: Exportable, path: Path, samples: Sequence[ModelInput]) -> ExportParity:
    """Return the difference of graph and torch, each sample alone and the first beside the longest.

    Raises:
        ExportError: it is greater than FP32_TOLERANCE, or an output is not finite.
    """
    original = _flat([_torch_outputs(module, item) for item in samples])
    if not np.isfinite(original).all():
        raise ExportError("the checkpoint gives outputs that are not finite (NaN or infinite)")
    alone = np.abs(_flat(OnnxSession(path, n_threads=1).run(samples)) - original)
    padded = _padded_differences(module, path, [samples[0], samples[-1]])
    difference = float(np.concatenate([alone, padded]).max())  # NaN if there is one
    if not difference <= FP32_TOLERANCE:
        raise ExportError(f"ONNX differs from torch by {difference:.2e}, over {FP32_TOLERANCE:.0e}")
    return ExportParity(
        n_inputs=len(samples),
        longest_tokens=max(item.ids.size for item in samples),
        fp32_max_difference=difference,
    )


def _int8_parity(fp32: ExportParity, kind: Kind, folder: Path, samples: Sequence[ModelInput]) -> ExportParity:
    """Return the parity with that of int8 against fp32 added; raises as `export`."""
    theirs, mine = (_flat(OnnxSession(folder / name, n_threads=1).run(samples)) for name in (_FP32_FILE, WEIGHTS_FILE))
    differences = np.abs(mine - theirs)
    noise = float(np.linalg.norm(differences) / np.maximum(np.linalg.norm(theirs), _SMALLEST))
    if not noise <= INT8_TOLERANCE:
        moved = f"moves the outputs by {noise:.0%} of their size, over {INT8_TOLERANCE:.0%}"
        lost = moved if np.isfinite(noise) else "gives outputs that are not finite"
        raise ExportError(f"int8 {lost}; --quantize none keeps fp32")
    return fp32.model_copy(
        update={
            "int8_max_difference": float(differences.max()),
            "int8_mean_difference": float(differences.mean()),
            "int8_noise": noise,
            "rank_agreement": order_agreement(theirs, mine) if kind == "cross-encoder" else None,
        }
    )


def _flat(outputs: Sequence[Outputs]) -> NDArray[np.float32]:
    """Return all numbers of all outputs, (n,)."""
    return np.concatenate([values.ravel() for item in outputs for values in item])


def _torch_outputs(module: Exportable, item: ModelInput) -> Outputs:
    tensors = [torch.from_numpy(rows[None]) for rows in (item.ids, np.ones_like(item.ids), item.token_types)]
    with torch.inference_mode():
        return tuple(output[0].numpy() for output in module(*tensors[: len(module.inputs)]))


def _padded_differences(module: Exportable, path: Path, items: Sequence[ModelInput]) -> NDArray[np.float32]:
    """Return the differences (n,) at the tokens that are no padding, in one batch as wide as the longest item."""
    width = max(item.ids.size for item in items)
    padding = [width - item.ids.size for item in items]
    rows = [[item.ids, np.ones_like(item.ids), item.token_types] for item in items]
    arrays = [
        np.stack([np.pad(values, (0, n)) for values, n in zip(column, padding, strict=True)])
        for column in zip(*rows, strict=True)
    ][: len(module.inputs)]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    exported = session.run(None, dict(zip(module.inputs, arrays, strict=True)))
    with torch.inference_mode():
        original = [output.numpy() for output in module(*(torch.from_numpy(values) for values in arrays))]
    return _flat(
        [
            tuple(np.abs(one[i, : item.ids.size] - other[i, : item.ids.size]) for i, item in enumerate(items))
            for one, other in zip(exported, original, strict=True)
        ]
    )
