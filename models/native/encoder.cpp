// BERT's encoder (Devlin et al. 2019) and its heads, for CPUs with Intel AMX: several sequences behind one another, none
// padded. Products are of bfloat16 with sums in float; what is added from layer to layer, and LayerNorm, are in float.
// No sum of a row depends on another sequence, nor on where in the batch its own stands.
//
// Python loads this by ctypes (models/native_session.py); the structs here and there must agree.

#include "attention.h"
#include "gemm.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <mutex>
#include <vector>

using namespace tercet;

extern "C" {

enum HeadKind : int32_t { kHidden = 0, kPooledLogit = 1, kSpan = 2 };

struct EncoderShape {
  int32_t vocabulary, positions, token_types, hidden, intermediate, layers, heads, head_kind;
  float epsilon;
};

// Word embeddings are floats, or int8 numbers with a scale for each row.
struct EmbeddingWeights {
  const float *words;
  const int8_t *quantised_words;
  const float *word_scales;
  const float *positions, *token_types, *norm_weight, *norm_bias;
};

struct LayerWeights { // matrices are (out, in)
  const float *query, *query_bias, *key, *key_bias, *value, *value_bias, *output, *output_bias;
  const float *attention_norm_weight, *attention_norm_bias;
  const float *up, *up_bias, *down, *down_bias, *norm_weight, *norm_bias;
};

struct HeadWeights { // the pooler, for a logit of [CLS] only; (1 or 2, hidden) of the output
  const float *pooler, *pooler_bias, *output, *output_bias;
};
}

namespace {

constexpr int kSlack = 32; // rows behind the last one, which tiles read

std::vector<float> copied(const float *values, size_t n) { return {values, values + n}; }

struct Norm {
  std::vector<float> weight, bias;
};

struct Layer {
  Linear query_key_value, output, up, down;
  Norm attention_norm, norm;
};

// What one run works in. stream is what is added from layer to layer, x the same in bfloat16; first_... are those of
// each sequence's first token.
struct Room {
  Buffer<float> stream, first_stream;
  Buffer<bf16> x, first_x, query_key_value, first_query, attended, up;
  AttentionRoom attention;

  void grow(const EncoderShape &shape, int sequences, int rows, int longest) {
    const size_t n = rows + kSlack, n_first = sequences + kSlack, hidden = shape.hidden;
    stream.grow(n * hidden);
    first_stream.grow(n_first * hidden);
    for (Buffer<bf16> *buffer : {&x, &attended})
      buffer->grow(n * hidden);
    for (Buffer<bf16> *buffer : {&first_x, &first_query})
      buffer->grow(n_first * hidden);
    query_key_value.grow(n * 3 * hidden);
    up.grow(n * shape.intermediate);
    attention.grow(longest, shape.hidden / shape.heads);
  }
};

// A room for one run, of those that earlier runs of any encoder left: as many are kept as ever ran at once.
class Lent {
public:
  Lent() {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!free_.empty()) {
      room_ = std::move(free_.back());
      free_.pop_back();
    } else {
      room_ = std::make_unique<Room>();
    }
  }
  ~Lent() {
    const std::lock_guard<std::mutex> guard(mutex_);
    free_.push_back(std::move(room_));
  }
  Lent(const Lent &) = delete;
  Lent &operator=(const Lent &) = delete;
  Room &operator*() const { return *room_; }

private:
  static inline std::mutex mutex_;
  static inline std::vector<std::unique_ptr<Room>> free_;
  std::unique_ptr<Room> room_;
};

float dot(const float *a, const float *b, int n) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < n; i += 16)
    sum = _mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), sum);
  return _mm512_reduce_add_ps(sum);
}

// LayerNorm of a row in place (Ba et al. 2016); as bfloat16 into x too, unless it is null.
void normalise(float *row, int n, const Norm &norm, float epsilon, bf16 *x) {
  __m512 sum = _mm512_setzero_ps();
  for (int i = 0; i < n; i += 16)
    sum = _mm512_add_ps(sum, _mm512_loadu_ps(row + i));
  const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / n);
  __m512 squares = _mm512_setzero_ps();
  for (int i = 0; i < n; i += 16) {
    const __m512 off = _mm512_sub_ps(_mm512_loadu_ps(row + i), mean);
    squares = _mm512_fmadd_ps(off, off, squares);
  }
  const __m512 inverse = _mm512_set1_ps(1 / std::sqrt(_mm512_reduce_add_ps(squares) / n + epsilon));
  const auto at = [&](int i) {
    const __m512 unit = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(row + i), mean), inverse);
    return _mm512_fmadd_ps(unit, _mm512_loadu_ps(norm.weight.data() + i), _mm512_loadu_ps(norm.bias.data() + i));
  };
  for (int i = 0; i < n; i += 32) {
    const __m512 first = at(i), second = at(i + 16);
    _mm512_storeu_ps(row + i, first);
    _mm512_storeu_ps(row + i + 16, second);
    if (x != nullptr)
      _mm512_storeu_si512(x + i, to_bf16(first, second));
  }
}

class Encoder {
public:
  Encoder(const EncoderShape &shape, const EmbeddingWeights &embeddings, const LayerWeights *layers,
          const HeadWeights &head)
      : shape_(shape), layers_(shape.layers) {
    const size_t hidden = shape.hidden;
    if (embeddings.words != nullptr) {
      words_ = copied(embeddings.words, shape.vocabulary * hidden);
    } else {
      quantised_words_.assign(embeddings.quantised_words, embeddings.quantised_words + shape.vocabulary * hidden);
      word_scales_ = copied(embeddings.word_scales, shape.vocabulary);
    }
    positions_ = copied(embeddings.positions, shape.positions * hidden);
    token_types_ = copied(embeddings.token_types, shape.token_types * hidden);
    norm_ = {copied(embeddings.norm_weight, hidden), copied(embeddings.norm_bias, hidden)};
    for (int i = 0; i < shape.layers; i++)
      fill(layers_[i], layers[i]);
    if (shape.head_kind == kPooledLogit) {
      pooler_ = copied(head.pooler, hidden * hidden);
      pooler_bias_ = copied(head.pooler_bias, hidden);
    }
    if (shape.head_kind != kHidden) {
      output_ = copied(head.output, hidden * n_outputs());
      output_bias_ = copied(head.output_bias, n_outputs());
    }
  }

  // Write a logit a sequence, two logits a token, or the hidden state of each token.
  void run(int n, const int32_t *lengths, const int32_t *ids, const int32_t *token_types, float *out) const {
    const Lent lent;
    Room &room = *lent;
    const Tiles tiles;
    int rows = 0, longest = 0;
    for (int i = 0; i < n; i++) {
      rows += lengths[i];
      longest = std::max(longest, lengths[i]);
    }
    room.grow(shape_, n, rows, longest);
    embed(room, n, lengths, ids, token_types);
    const bool needs_first_only = shape_.head_kind == kPooledLogit;
    for (int i = 0; i < shape_.layers; i++) {
      if (needs_first_only && i == shape_.layers - 1)
        run_for_first(room, layers_[i], n, lengths);
      else
        run_for_all(room, layers_[i], n, lengths, rows);
    }
    if (shape_.head_kind == kPooledLogit)
      for (int i = 0; i < n; i++)
        out[i] = pooled_logit(room.first_stream.get() + i * shape_.hidden);
    else if (shape_.head_kind == kSpan)
      for (int i = 0; i < rows; i++)
        for (int j = 0; j < n_outputs(); j++)
          out[i * n_outputs() + j] = output(room.stream.get() + i * shape_.hidden, j);
    else
      std::copy(room.stream.get(), room.stream.get() + static_cast<size_t>(rows) * shape_.hidden, out);
  }

private:
  int n_outputs() const { return shape_.head_kind == kSpan ? 2 : 1; }
  int dimension() const { return shape_.hidden / shape_.heads; }

  void fill(Layer &layer, const LayerWeights &from) const {
    const int hidden = shape_.hidden, intermediate = shape_.intermediate;
    const size_t square = static_cast<size_t>(hidden) * hidden;
    std::vector<float> weights(3 * square), bias(3 * hidden);
    const float *matrices[] = {from.query, from.key, from.value};
    const float *biases[] = {from.query_bias, from.key_bias, from.value_bias};
    for (int i = 0; i < 3; i++) {
      std::copy(matrices[i], matrices[i] + square, weights.data() + i * square);
      std::copy(biases[i], biases[i] + hidden, bias.data() + i * hidden);
    }
    layer.query_key_value.pack(weights.data(), bias.data(), 3 * hidden, hidden);
    layer.output.pack(from.output, from.output_bias, hidden, hidden);
    layer.up.pack(from.up, from.up_bias, intermediate, hidden);
    layer.down.pack(from.down, from.down_bias, hidden, intermediate);
    layer.attention_norm = {copied(from.attention_norm_weight, hidden), copied(from.attention_norm_bias, hidden)};
    layer.norm = {copied(from.norm_weight, hidden), copied(from.norm_bias, hidden)};
  }

  void embed(Room &room, int n, const int32_t *lengths, const int32_t *ids, const int32_t *token_types) const {
    const int hidden = shape_.hidden;
    size_t row = 0;
    for (int i = 0; i < n; i++)
      for (int position = 0; position < lengths[i]; position++, row++) {
        float *x = room.stream.get() + row * hidden;
        const size_t word = static_cast<size_t>(ids[row]) * hidden;
        const float *positions = positions_.data() + static_cast<size_t>(position) * hidden;
        const float *types = token_types_.data() + static_cast<size_t>(token_types[row]) * hidden;
        if (!words_.empty())
          for (int j = 0; j < hidden; j++)
            x[j] = words_[word + j] + types[j] + positions[j];
        else
          for (int j = 0; j < hidden; j++)
            x[j] = quantised_words_[word + j] * word_scales_[ids[row]] + types[j] + positions[j];
        normalise(x, hidden, norm_, shape_.epsilon, room.x.get() + row * hidden);
      }
  }

  void run_for_all(Room &room, const Layer &layer, int n, const int32_t *lengths, int rows) const {
    const Linear &qkv = layer.query_key_value;
    multiply(room.x.get(), shape_.hidden, rows, qkv, 0, qkv.n, store(qkv, room.query_key_value.get(), qkv.n));
    attend(room, n, lengths, {room.query_key_value.get(), size_t(qkv.n)}, false);
    finish(room, layer, room.stream.get(), room.x.get(), rows);
  }

  // Only the first token of each sequence is wanted: keys and values of all, all else of these.
  void run_for_first(Room &room, const Layer &layer, int n, const int32_t *lengths) const {
    const size_t hidden = shape_.hidden;
    const Linear &qkv = layer.query_key_value;
    size_t row = 0;
    for (int i = 0; i < n; i++) {
      std::copy_n(room.stream.get() + row * hidden, hidden, room.first_stream.get() + i * hidden);
      std::copy_n(room.x.get() + row * hidden, hidden, room.first_x.get() + i * hidden);
      row += lengths[i];
    }
    const Store keys_and_values = store(qkv, room.query_key_value.get(), qkv.n);
    multiply(room.x.get(), hidden, static_cast<int>(row), qkv, shape_.hidden, qkv.n, keys_and_values);
    multiply(room.first_x.get(), hidden, n, qkv, 0, shape_.hidden, store(qkv, room.first_query.get(), hidden));
    attend(room, n, lengths, {room.first_query.get(), hidden}, true);
    finish(room, layer, room.first_stream.get(), room.first_x.get(), n);
  }

  // Write what each token attends to into room.attended; or what the first of each sequence does, of which then queries
  // and room.attended have one row a sequence.
  void attend(Room &room, int n, const int32_t *lengths, const Rows &queries, bool first_only) const {
    if (dimension() == 32)
      attend_heads<1>(room, n, lengths, queries, first_only);
    else
      attend_heads<2>(room, n, lengths, queries, first_only);
  }

  template <int depth>
  void attend_heads(Room &room, int n, const int32_t *lengths, const Rows &queries, bool first_only) const {
    const size_t hidden = shape_.hidden, width = 3 * hidden;
    int row = 0;
    for (int i = 0; i < n; i++) {
      const bf16 *own = room.query_key_value.get() + row * width;
      const int from = first_only ? i : row, count = first_only ? 1 : lengths[i];
      for (int head = 0; head < shape_.heads; head++) {
        const size_t at = size_t(head) * depth * kTileDepth;
        const Head<depth> one(room.attention, {own + hidden + at, width}, {own + 2 * hidden + at, width}, lengths[i]);
        one.attend({queries.row(from) + at, queries.width}, count, room.attended.get() + from * hidden + at, hidden);
      }
      row += lengths[i];
    }
  }

  // From what was attended to the layer's output, in stream (float) and x (bfloat16).
  void finish(Room &room, const Layer &layer, float *stream, bf16 *x, int rows) const {
    const int hidden = shape_.hidden, intermediate = shape_.intermediate;
    multiply(room.attended.get(), hidden, rows, layer.output, 0, hidden, add(layer.output, stream));
    normalise_all(stream, x, rows, layer.attention_norm);
    const StoreGelu activated{layer.up.bias.get(), room.up.get(), size_t(intermediate)};
    multiply(x, hidden, rows, layer.up, 0, intermediate, activated);
    multiply(room.up.get(), intermediate, rows, layer.down, 0, hidden, add(layer.down, stream));
    normalise_all(stream, x, rows, layer.norm);
  }

  void normalise_all(float *stream, bf16 *x, int rows, const Norm &norm) const {
    for (int i = 0; i < rows; i++)
      normalise(stream + size_t(i) * shape_.hidden, shape_.hidden, norm, shape_.epsilon, x + size_t(i) * shape_.hidden);
  }

  AddTo add(const Linear &linear, float *stream) const { return {linear.bias.get(), stream, size_t(shape_.hidden)}; }

  static Store store(const Linear &linear, bf16 *out, size_t width) { return {linear.bias.get(), out, width}; }

  float output(const float *x, int i) const {
    return dot(x, output_.data() + size_t(i) * shape_.hidden, shape_.hidden) + output_bias_[i];
  }

  float pooled_logit(const float *x) const {
    std::vector<float> pooled(shape_.hidden);
    for (int i = 0; i < shape_.hidden; i++)
      pooled[i] = std::tanh(dot(x, pooler_.data() + size_t(i) * shape_.hidden, shape_.hidden) + pooler_bias_[i]);
    return output(pooled.data(), 0);
  }

  EncoderShape shape_;
  std::vector<float> words_, word_scales_, positions_, token_types_, pooler_, pooler_bias_, output_, output_bias_;
  std::vector<int8_t> quantised_words_;
  Norm norm_;
  std::vector<Layer> layers_;
};

bool has_amx_and_avx512() {
  unsigned eax, ebx, ecx, edx;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
    return false;
  const bool has_avx512 = (ebx >> 16 & 1) && (ebx >> 17 & 1) && (ebx >> 30 & 1) && (ebx >> 31 & 1); // F, DQ, BW, VL
  const bool has_amx = (edx >> 22 & 1) && (edx >> 24 & 1);                                        // BF16, TILE
  if (!has_avx512 || !has_amx || !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx))
    return false;
  return eax >> 5 & 1; // AVX512_BF16
}

} // namespace

extern "C" {

// Whether this CPU has what is needed and the system lets this process use it.
int32_t tercet_is_supported() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18; // arch_prctl(2): ARCH_REQ_XCOMP_PERM, XTILEDATA
  return has_amx_and_avx512() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Null when there is no memory.
void *tercet_encoder_new(const EncoderShape *shape, const EmbeddingWeights *embeddings, const LayerWeights *layers,
                         const HeadWeights *head) {
  try {
    return new Encoder(*shape, *embeddings, layers, *head);
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

void tercet_encoder_delete(void *encoder) { delete static_cast<Encoder *>(encoder); }

// Nothing is checked: ids, types and lengths must be within the shape. Not 0 when there is no memory.
int32_t tercet_encoder_run(const void *encoder, int32_t n, const int32_t *lengths, const int32_t *ids,
                           const int32_t *token_types, float *out) {
  try {
    static_cast<const Encoder *>(encoder)->run(n, lengths, ids, token_types, out);
    return 0;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}
}
