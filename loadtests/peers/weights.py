"""The bundled models in the forms that the peers want, made once: the same fp32 numbers, those that int8 stands for."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from models.checkpoint import LOADERS, quiet
from models.folder import BUNDLED_CROSS_ENCODER, BUNDLED_DUAL_ENCODER, TOKENIZER_FILE, Kind, open_model_folder
from models.training.checkpoints import original_encoder, save_checkpoint
from models.training.weights import load_folder_weights
from peers.measuring import WORKERS, last_line, quiet_environment

_MODELS: Mapping[Kind, str] = {"cross-encoder": BUNDLED_CROSS_ENCODER, "dual-encoder": BUNDLED_DUAL_ENCODER}
_LOADERS: Mapping[Kind, str] = {"cross-encoder": "CrossEncoder", "dual-encoder": "SentenceTransformer"}
_TOKENIZER_FILES = ("tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
_POOLING_FILES = ("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json")
_FLASHRANK_MODEL = "ms-marco-MiniLM-L-12-v2"  # as with_flashrank.py names it
_FLASHRANK_FILE = "flashrank-MiniLM-L-12-v2_Q.onnx"
_EXPORT_SECONDS = 3_600


def weights_folder(parent: Path) -> Path:
    """Return the folder for the models that are bundled now; others get another."""
    fingerprints = (open_model_folder(name, kind).fingerprint[:8] for kind, name in _MODELS.items())
    return parent / f"weights-{'-'.join(fingerprints)}"


def write_checkpoints(folder: Path) -> None:
    """Write each model as a transformers folder, unless it is there."""
    for kind, name in _MODELS.items():
        out = folder / kind
        if out.exists():
            continue
        source, partial = open_model_folder(name, kind), folder / f".{kind}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        options = {"num_labels": 1} if kind == "cross-encoder" else {}
        with quiet():
            model = LOADERS[kind].from_pretrained(original_encoder(), local_files_only=True, dtype="float32", **options)
        load_folder_weights(model, source)
        save_checkpoint(model, plain_tokenizer(source.path / TOKENIZER_FILE), partial)
        _copy_settings(partial, kind, max_tokens=source.settings.max_tokens)
        partial.rename(out)


def plain_tokenizer(path: Path) -> bytes:
    """Return the tokenizer without the padding and the cut to 128 tokens that some libraries would take from it."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str().encode()


def _copy_settings(folder: Path, kind: Kind, *, max_tokens: int) -> None:
    original = original_encoder()
    for name in _TOKENIZER_FILES + (_POOLING_FILES if kind == "dual-encoder" else ()):
        shutil.copy(original / name, folder / name)
    if kind == "dual-encoder":
        shutil.copytree(original / "1_Pooling", folder / "1_Pooling")
        (folder / "2_Normalize").mkdir()
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_bytes()) | {"model_max_length": max_tokens}), encoding="utf-8")


def export_checkpoints(folder: Path, python: Path, calibration: Path) -> list[str]:
    """Add ONNX, OpenVINO and int8 to the folders, by the libraries' own ways; return what failed, a sentence each."""
    failures = []
    for kind, loader in _LOADERS.items():
        failures += _attempt("export_sentence_transformers", python, [str(folder / kind), loader])
    quantized = folder / "cross-encoder" / "openvino" / "openvino_model_qint8_quantized.xml"
    if not quantized.exists():
        failures += _attempt("quantize_openvino", python, [str(folder / "cross-encoder"), str(calibration)])
    _copy_layouts(folder)
    return failures


def _attempt(script: str, python: Path, arguments: Sequence[str]) -> list[str]:
    command = [str(python), str(WORKERS / f"{script}.py"), *arguments]
    try:
        done = subprocess.run(command, env=quiet_environment(), capture_output=True, text=True, timeout=_EXPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return [f"{script} took more than {_EXPORT_SECONDS} s"]
    return [] if done.returncode == 0 else [f"{script}: {last_line(done.stderr)}"]


def _copy_layouts(folder: Path) -> None:
    """Lay the cross-encoder out as flashrank and infinity look for it, where its files are there."""
    source = folder / "cross-encoder"
    files = [path for path in source.iterdir() if path.is_file()]
    onnx, int8 = source / "onnx" / "model.onnx", source / "onnx" / "model_qint8_avx512_vnni.onnx"
    for weights, home, name in (
        (onnx, folder / "flashrank" / "fp32" / _FLASHRANK_MODEL, _FLASHRANK_FILE),
        (int8, folder / "flashrank" / "int8" / _FLASHRANK_MODEL, _FLASHRANK_FILE),
        (onnx, folder / "infinity", "model.onnx"),
    ):
        target = home / name
        if weights.exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            for path in files:
                shutil.copy(path, home / path.name)
            shutil.copy(weights, target)
