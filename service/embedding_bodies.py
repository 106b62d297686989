"""The bodies of `/v1/embeddings`, OpenAI's shape; docs/clients.md says what differs from the original."""

import base64
from collections.abc import Mapping
from typing import Annotated, Literal

import orjson
from pydantic import AliasChoices, BeforeValidator, Field, WithJsonSchema

from models.dual_encoder import Side
from service.embedding import EmbedOutcome, EmbedQuery
from service.requests import MAX_PASSAGE_CHARACTERS, StrictBody, not_blank
from service.rerank_bodies import UsageBody
from service.schemas import ResponseBody

MAX_TEXTS = 2_048

SIDES: Mapping[str, Side] = {
    "query": "query",
    "search_query": "query",
    "retrieval.query": "query",
    "passage": "passage",
    "document": "passage",
    "search_document": "passage",
    "retrieval.passage": "passage",
}
SideName = Literal[
    "query", "search_query", "retrieval.query", "passage", "document", "search_document", "retrieval.passage"
]


def _listed(value: object) -> object:
    """Return one text as a list of it; what is wrong with that text is told of the whole field."""
    if isinstance(value, list) and any(isinstance(each, int | list) for each in value):
        raise ValueError(
            "Token ids are not taken, because they belong to one tokenizer; send texts "
            "(langchain-openai: check_embedding_ctx_length=False)."
        )
    if isinstance(value, str) and len(value) > MAX_PASSAGE_CHARACTERS:
        raise ValueError(f"A text has at most {MAX_PASSAGE_CHARACTERS} characters.")
    return [not_blank(value)] if isinstance(value, str) else value


_Text = Annotated[str, BeforeValidator(not_blank), Field(max_length=MAX_PASSAGE_CHARACTERS)]
_TEXT_SCHEMA = {"type": "string", "minLength": 1, "maxLength": MAX_PASSAGE_CHARACTERS}
_TEXTS_SCHEMA = {"anyOf": [_TEXT_SCHEMA, {"type": "array", "items": _TEXT_SCHEMA, "maxItems": MAX_TEXTS}]}
Texts = Annotated[list[_Text], Field(max_length=MAX_TEXTS), BeforeValidator(_listed), WithJsonSchema(_TEXTS_SCHEMA)]


class EmbeddingsRequest(StrictBody):
    """Body of `POST /v1/embeddings`."""

    input: Texts = Field(
        description="A text or a list of texts. An empty list gives an empty list.",
        examples=[["Lima is the capital of Peru.", "Potatoes come from the Andes."]],
    )
    model: str | None = Field(default=None, description="Ignored: the response names the model that is served.")
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="Numbers, as by default, or the bytes of little-endian float32 in base64."
    )
    dimensions: int | None = Field(
        default=None, description="No other than the model's: its vectors cannot be shortened."
    )
    input_type: SideName | None = Field(
        default=None,
        validation_alias=AliasChoices("input_type", "task"),
        description="Whether the texts are queries or passages, as by default; `task` is another name for this field.",
    )
    truncate: bool | None = Field(
        default=None, description="Whether a text that is too long is cut, as by default, or false: refused."
    )
    user: str | None = Field(default=None, description="Ignored.")

    def to_query(self) -> EmbedQuery:
        """Return it for the pipeline."""
        side = SIDES[self.input_type] if self.input_type is not None else "passage"
        return EmbedQuery(self.input, side, uncut="input" if self.truncate is False else None)


class EmbeddingBody(ResponseBody):
    """One text's vector, of length 1."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: bool = Field(description="Whether the model did not read all of the text.")
    cut_tokens: int = Field(description="Tokens of the text that were not read.")


class EmbeddingsResponse(ResponseBody):
    """Body of the response to `POST /v1/embeddings`."""

    object: Literal["list"]
    data: list[EmbeddingBody]
    model: str
    usage: UsageBody


def embeddings_json(outcome: EmbedOutcome, *, model: str, as_base64: bool) -> bytes:
    """Return an `EmbeddingsResponse` as JSON; thousands of vectors are too many to go through its model."""
    usage = {"prompt_tokens": outcome.n_tokens, "total_tokens": outcome.n_tokens}
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode() if as_base64 else vector,
            "truncated": cut > 0,
            "cut_tokens": cut,
        }
        for i, (vector, cut) in enumerate(zip(outcome.vectors, outcome.cut_tokens, strict=True))
    ]
    body = {"object": "list", "data": data, "model": model, "usage": usage}
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
