"""The bodies of `/v1/rerank` and `/v2/rerank`, the shape of Cohere and Jina; docs/clients.md says what differs."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PlainValidator, ValidationInfo, WithJsonSchema, field_validator

from service.requests import MAX_PASSAGE_CHARACTERS, QueryText, StrictBody
from service.rerank import PairScoreKind, RankedDocument, RerankOutcome, RerankQuery, Unscored
from service.schemas import ResponseBody, milliseconds
from service.search_schemas import Slice

MAX_DOCUMENTS = 1_000
MAX_RANK_FIELDS = 20
SEARCH_UNIT_DOCUMENTS = 100


@dataclass(frozen=True, slots=True)
class OwnDocument:
    """A document as it was sent, and the text of it that is ranked."""

    sent: str | dict[str, Any]
    text: str

    def shown(self) -> dict[str, Any]:
        """Return the document as an object."""
        return {"text": self.sent} if isinstance(self.sent, str) else self.sent


def _own_document(value: object, info: ValidationInfo) -> OwnDocument:
    if isinstance(value, str):
        return OwnDocument(value, _bounded(value))
    if isinstance(value, dict):
        fields = info.data.get("rank_fields")
        return OwnDocument(value, _bounded(_ranked_text(value, fields if fields is not None else ["text"])))
    raise ValueError("A document is a text, or an object with texts.")


def _ranked_text(document: dict[str, Any], fields: list[str]) -> str:
    texts = [document[field] for field in fields if field in document]
    if not texts:
        raise ValueError("The object has no `text`, nor a field that `rank_fields` names.")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("What is ranked must be text: give numbers and lists as a text, or leave them out.")
    return "\n".join(texts)


def _bounded(text: str) -> str:
    if len(text) > MAX_PASSAGE_CHARACTERS:
        raise ValueError(f"A document has at most {MAX_PASSAGE_CHARACTERS} characters.")
    return text


_DOCUMENT_SCHEMA = {
    "anyOf": [{"type": "string", "maxLength": MAX_PASSAGE_CHARACTERS}, {"type": "object", "additionalProperties": True}]
}
DocumentBody = Annotated[OwnDocument, PlainValidator(_own_document), WithJsonSchema(_DOCUMENT_SCHEMA)]


class RerankRequest(StrictBody):
    """Body of `POST /v1/rerank` and `POST /v2/rerank`."""

    query: QueryText
    rank_fields: list[str] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_RANK_FIELDS,
        description="Of documents that are objects, the fields to rank by, joined in this order; null for `text`.",
    )
    documents: list[DocumentBody] = Field(
        max_length=MAX_DOCUMENTS,
        description="Texts, or objects that hold one. None gives no results.",
        examples=[["Lima is the capital of Peru.", {"text": "Potatoes come from the Andes.", "id": 7}]],
    )
    model: str | None = Field(default=None, description="Ignored: the response names the model that is served.")
    top_n: int | None = Field(default=None, ge=1, description="How many results to give at most; null for all.")
    return_documents: bool | None = Field(default=None, description="Whether each result repeats its document.")
    max_tokens_per_doc: int | None = Field(
        default=None, ge=1, description="How many tokens of a document to read at most, beside the model's own limit."
    )
    max_chunks_per_doc: int | None = Field(
        default=None,
        ge=1,
        description="How many windows of a long document to read; the best one's score counts. Null: one, or with "
        "`window` all.",
    )
    window: bool = Field(
        default=False, description="Whether to read all of a long document, in windows, and not its beginning only."
    )
    raw_scores: bool = Field(default=False, description="Whether to give logits, whose sigmoids are the scores.")
    min_score: float | None = Field(
        default=None, description="Leave out results of a lower `relevance_score`; in [0, 1] unless `raw_scores`."
    )
    priority: int | None = Field(default=None, description="Ignored: all who wait are served in turn.")

    @field_validator("min_score")
    @classmethod
    def _on_the_scale(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and not info.data.get("raw_scores") and not 0 <= value <= 1:
            raise ValueError("Scores are in [0, 1], so this must be too; with `raw_scores` it is a logit.")
        return value

    def to_query(self) -> RerankQuery:
        """Return it for the pipeline."""
        max_windows = 1 if self.max_chunks_per_doc is None and not self.window else self.max_chunks_per_doc
        return RerankQuery(
            self.query,
            [document.text for document in self.documents],
            top_n=self.top_n,
            min_score=self.min_score,
            raw_scores=self.raw_scores,
            max_windows=max_windows,
            max_document_tokens=self.max_tokens_per_doc,
        )


class RankedTextBody(ResponseBody):
    """Where a text of the caller's stood in the request, and how much of it was read."""

    index: int = Field(description="Place of the document in the request, from 0.")
    unscored: Unscored | None = Field(
        description="Why there is no score: the document is `blank`, or the model's number is not finite. Such "
        "documents come last, as they stand in the request."
    )
    truncated: bool = Field(description="Whether the model did not read all of it.")
    n_tokens: int = Field(description="Tokens of the document.")
    cut_tokens: int = Field(description="Of these, those that were not read.")


class RerankResultBody(RankedTextBody):
    """One document with its score."""

    relevance_score: float = Field(description="`score_kind` says what it is.")
    document: dict[str, Any] | None = Field(description="With `return_documents`: as it was sent, a text as `text`.")
    best_window: Slice | None = Field(description="With `window`: the part that earned the score.")


class UsageBody(ResponseBody):
    """Tokens that the models read, special ones included."""

    prompt_tokens: int
    total_tokens: int


class ApiVersionBody(ResponseBody):
    """The version in the path."""

    version: str


class BilledUnitsBody(ResponseBody):
    """What Cohere would count: one unit for each hundred documents begun. Nobody is billed."""

    search_units: int


class TokensBody(ResponseBody):
    """The same as `usage`, in Cohere's place."""

    input_tokens: int


class MetaBody(ResponseBody):
    """What Cohere's clients look for."""

    api_version: ApiVersionBody
    billed_units: BilledUnitsBody
    tokens: TokensBody


class RerankResponse(ResponseBody):
    """Body of the response to `POST /v1/rerank` and `POST /v2/rerank`."""

    id: str = Field(description="The request's id.")
    model: str
    results: list[RerankResultBody] = Field(description="By score descending, then by `index`.")
    score_kind: PairScoreKind = Field(
        description="`relevance`: a probability, the sigmoid of the calibrated logit; `relevance_logit`: that logit. "
        "Without a calibration for pairs `rerank_sigmoid` and `rerank_logit`, the same of the model's raw logit."
    )
    truncated: bool = Field(description="Whether the query or a document was cut.")
    query_cut_tokens: int
    n_documents_cut: int
    usage: UsageBody
    meta: MetaBody
    timings_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class Answering:
    """Who answers what: the request's id, the version in its path, the model's name."""

    request_id: str
    version: str
    model: str


def rerank_response(body: RerankRequest, outcome: RerankOutcome, answering: Answering) -> RerankResponse:
    """Return the body of a ranking in the shape of Cohere and Jina."""
    return RerankResponse(
        id=answering.request_id,
        model=answering.model,
        results=[_result(each, body) for each in outcome.results],
        score_kind=outcome.score_kind,
        truncated=outcome.query_cut_tokens > 0 or outcome.n_documents_cut > 0,
        query_cut_tokens=outcome.query_cut_tokens,
        n_documents_cut=outcome.n_documents_cut,
        usage=UsageBody(prompt_tokens=outcome.n_tokens, total_tokens=outcome.n_tokens),
        meta=MetaBody(
            api_version=ApiVersionBody(version=answering.version),
            billed_units=BilledUnitsBody(search_units=-(-outcome.n_documents // SEARCH_UNIT_DOCUMENTS)),
            tokens=TokensBody(input_tokens=outcome.n_tokens),
        ),
        timings_ms=milliseconds(outcome.timings),
    )


def _result(ranked: RankedDocument, body: RerankRequest) -> RerankResultBody:
    return RerankResultBody(
        index=ranked.index,
        relevance_score=ranked.score,
        document=body.documents[ranked.index].shown() if body.return_documents else None,
        unscored=ranked.unscored,
        truncated=ranked.cut_tokens > 0,
        n_tokens=ranked.n_tokens,
        cut_tokens=ranked.cut_tokens,
        best_window=Slice(start=ranked.window[0], end=ranked.window[1]) if ranked.window is not None else None,
    )
