"""What of Tercet is compiled: the native engine for x86-64 Linux with AMX, BERT's tokenization, and BM25's search.

Where there is no compiler, Tercet installs without them: OpenVINO or ONNX Runtime runs the models, `tokenizers`
tokenizes, and numpy searches.
All else that is to say about the package stands in pyproject.toml.
"""

import platform
import sys

from setuptools import Extension, setup

_LINKED = ["-static-libstdc++", "-static-libgcc"] if sys.platform == "linux" else []
_FLAGS = (
    "-std=c++17 -O3 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma -mamx-tile -mamx-bf16 "
    "-fno-math-errno -Wno-uninitialized"
)

_ENGINE = Extension(
    "models._encoder",
    sources=["models/native/encoder.cpp"],
    depends=["models/native/attention.h", "models/native/gemm.h", "models/native/tiles.h"],
    extra_compile_args=_FLAGS.split(),
    extra_link_args=_LINKED,
    optional=True,
)

_POSTINGS = Extension(
    "indexer._postings",
    sources=["indexer/native/postings.cpp"],
    # a product that is added without being rounded first would give other bits than numpy
    extra_compile_args=["-std=c++17", "-O3", "-ffp-contract=off"],
    extra_link_args=_LINKED,
    optional=True,
)

_WORDPIECE = Extension(
    "models._wordpiece",
    sources=["models/native/wordpiece.cpp"],
    extra_compile_args=["-std=c++17", "-O3"],
    extra_link_args=_LINKED,
    optional=True,
)

_HAS_ENGINE = sys.platform == "linux" and platform.machine() == "x86_64"
setup(ext_modules=[_POSTINGS, _WORDPIECE, *([_ENGINE] if _HAS_ENGINE else [])])
