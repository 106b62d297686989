"""The bodies of `/rerank` and `/embed`, the shape of text-embeddings-inference; docs/clients.md says what differs."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from service.embedding import EmbedQuery
from service.embedding_bodies import SIDES, SideName, Texts
from service.requests import MAX_PASSAGE_CHARACTERS, QueryText, StrictBody
from service.rerank import RankedDocument, RerankQuery
from service.rerank_bodies import MAX_DOCUMENTS, RankedTextBody


def _not_left(value: object) -> object:
    if isinstance(value, str) and value.lower() == "left":
        raise ValueError("A text is cut at its end only: leave this out, or say `right`.")
    return value


class _Truncating(StrictBody):
    truncate: bool | None = Field(
        default=None, description="Whether a text that is too long is cut, as by default, or false: refused."
    )
    truncation_direction: Annotated[Literal["Right", "right"] | None, BeforeValidator(_not_left)] = Field(
        default=None, description="A text is cut at its end."
    )


class TeiRerankRequest(_Truncating):
    """Body of `POST /rerank`."""

    query: QueryText
    texts: list[Annotated[str, Field(max_length=MAX_PASSAGE_CHARACTERS)]] = Field(
        max_length=MAX_DOCUMENTS,
        description="What to rank. None gives an empty array.",
        examples=[["Lima is the capital of Peru.", "Potatoes come from the Andes."]],
    )
    raw_scores: bool = Field(default=False, description="Whether to give logits, whose sigmoids are the scores.")
    return_text: bool = Field(default=False, description="Whether each result repeats its text.")

    def to_query(self) -> RerankQuery:
        """Return it for the pipeline."""
        uncut = "texts" if self.truncate is False else None
        return RerankQuery(self.query, self.texts, raw_scores=self.raw_scores, uncut=uncut)


class RankBody(RankedTextBody):
    """One text with its score, in the response to `POST /rerank`."""

    score: float = Field(description="The header `X-Score-Kind` says what it is.")
    text: str | None = Field(description="With `return_text`.")


class TeiEmbedRequest(_Truncating):
    """Body of `POST /embed`."""

    inputs: Texts = Field(
        description="A text or a list of texts. An empty list gives an empty array.",
        examples=[["Lima is the capital of Peru.", "Potatoes come from the Andes."]],
    )
    normalize: bool | None = Field(default=None, description="Ignored: vectors have length 1.")
    prompt_name: SideName | None = Field(
        default=None, description="Whether the texts are queries or passages, as by default."
    )
    dimensions: int | None = Field(
        default=None, description="No other than the model's: its vectors cannot be shortened."
    )

    def to_query(self) -> EmbedQuery:
        """Return it for the pipeline."""
        side = SIDES[self.prompt_name] if self.prompt_name is not None else "passage"
        return EmbedQuery(self.inputs, side, uncut="inputs" if self.truncate is False else None)


def rank_body(ranked: RankedDocument, body: TeiRerankRequest) -> RankBody:
    """Return one text of a ranking."""
    return RankBody(
        index=ranked.index,
        score=ranked.score,
        text=body.texts[ranked.index] if body.return_text else None,
        unscored=ranked.unscored,
        truncated=ranked.cut_tokens > 0,
        n_tokens=ranked.n_tokens,
        cut_tokens=ranked.cut_tokens,
    )
