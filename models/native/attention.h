// Attention of one head over one sequence: softmax(q k^T / sqrt(d)) v (Vaswani et al. 2017, equation 1).
#pragma once

#include "tiles.h"

#include <algorithm>
#include <cmath>

namespace tercet {

// Rows of bfloat16, `width` numbers apart.
struct Rows {
  const bf16 *data;
  size_t width;
  const bf16 *row(int i) const { return data + i * width; }
};

// Write 16 rows of 16 pairs of bfloat16 as their transpose: a tile of keys, for the right side of a product.
inline void transpose_pairs(const Rows &from, bf16 *tile) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i++)
    a[i] = _mm512_loadu_si512(from.row(i));
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; j++) {
      a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + 2 + j]);
      a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + 2 + j]);
    }
  for (int i = 0; i < 4; i++) { // lane l of a[4 g + i] holds column 4 l + i of rows 4 g to 4 g + 3
    const __m512i low = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xdd);
    const __m512i high = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x88);
    const __m512i high_odd = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xdd);
    _mm512_store_si512(tile + 32 * i, _mm512_shuffle_i32x4(low, high, 0x88));
    _mm512_store_si512(tile + 32 * (8 + i), _mm512_shuffle_i32x4(low, high, 0xdd));
    _mm512_store_si512(tile + 32 * (4 + i), _mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
    _mm512_store_si512(tile + 32 * (12 + i), _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd));
  }
}

// Room for one head's tiles and one block of queries.
struct AttentionRoom {
  Buffer<bf16> keys, values, shares;
  Buffer<float> scores;
  void grow(int tokens, int dimension) {
    const size_t padded = (tokens + 31) / 32 * 32;
    keys.grow(padded * dimension);
    values.grow(padded * dimension);
    shares.grow(padded * kTileRows);
    scores.grow(padded * kTileRows);
  }
};

// One head, whose dimension is 32 times `depth`.
template <int depth> class Head {
public:
  // Keys and values are of `tokens` rows. Rows of keys behind them are read and come to nothing.
  Head(AttentionRoom &room, const Rows &keys, const Rows &values, int tokens)
      : room_(room), tokens_(tokens), padded_((tokens + 31) / 32 * 32) {
    for (int i = 0; i < padded_ / kTileRows; i++)
      for (int j = 0; j < depth; j++)
        transpose_pairs({keys.row(i * kTileRows) + j * kTileDepth, keys.width}, key_tile(i, j));
    const auto pick = [](int first) { // positions first, 32 + first, first + 1, …: numbers of two rows in turn
      alignas(64) uint16_t at[32];
      for (int i = 0; i < 32; i++)
        at[i] = static_cast<uint16_t>(first + i / 2 + i % 2 * 32);
      return _mm512_load_si512(at);
    };
    const __m512i low = pick(0), high = pick(16);
    for (int i = 0; i < padded_; i += 2)
      for (int j = 0; j < depth; j++) {
        const __m512i zero = _mm512_setzero_si512();
        const __m512i even = i < tokens ? _mm512_loadu_si512(values.row(i) + j * kTileDepth) : zero;
        const __m512i odd = i + 1 < tokens ? _mm512_loadu_si512(values.row(i + 1) + j * kTileDepth) : zero;
        bf16 *at = value_tile(i / kTileDepth, 2 * j) + i % kTileDepth / 2 * 32;
        _mm512_store_si512(at, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_store_si512(at + 512, _mm512_permutex2var_epi16(even, high, odd));
      }
  }

  // Write what `n` queries attend to. Rows of queries up to the next multiple of 16 are read.
  void attend(const Rows &queries, int n, bf16 *out, size_t out_width) const {
    for (int first = 0; first < n; first += kTileRows) {
      const int rows = std::min(kTileRows, n - first);
      score({queries.row(first), queries.width});
      float inverse_sums[kTileRows];
      for (int row = 0; row < rows; row++)
        inverse_sums[row] = 1 / share(row);
      mix(rows, inverse_sums, out + first * out_width, out_width);
    }
  }

private:
  bf16 *key_tile(int i, int j) const { return room_.keys.get() + (i * depth + j) * 512; }
  bf16 *value_tile(int i, int j) const { return room_.values.get() + (i * 2 * depth + j) * 512; }

  void score(const Rows &queries) const {
    const long stride = static_cast<long>(queries.width * sizeof(bf16));
    const long out_stride = static_cast<long>(padded_ * sizeof(float));
    float *scores = room_.scores.get();
    for (int i = 0; i < padded_ / kTileColumns; i += 2) {
      zero_tile<0>();
      zero_tile<1>();
      for (int j = 0; j < depth; j++) {
        load_tile<4>(queries.data + j * kTileDepth, stride);
        load_tile<6>(key_tile(i, j), 64);
        multiply_add<0, 4, 6>();
        load_tile<7>(key_tile(i + 1, j), 64);
        multiply_add<1, 4, 7>();
      }
      store_tile<0>(scores + i * kTileColumns, out_stride);
      store_tile<1>(scores + (i + 1) * kTileColumns, out_stride);
    }
  }

  // Turn a row of scores into shares that sum up to what is returned.
  float share(int row) const {
    const float *scores = room_.scores.get() + row * padded_;
    bf16 *shares = room_.shares.get() + row * padded_;
    const auto mask = [this](int i) { // of what the sequence has of the 16 scores from i on
      return static_cast<__mmask16>((1 << std::clamp(tokens_ - i, 0, 16)) - 1);
    };
    __m512 greatest = _mm512_set1_ps(-INFINITY);
    for (int i = 0; i < tokens_; i += 16)
      greatest = _mm512_mask_max_ps(greatest, mask(i), greatest, _mm512_load_ps(scores + i));
    const float to_power_of_2 = 1.4426950408889634f / std::sqrt(static_cast<float>(depth * kTileDepth));
    const __m512 scale = _mm512_set1_ps(to_power_of_2);
    const __m512 shift = _mm512_set1_ps(_mm512_reduce_max_ps(greatest) * to_power_of_2);
    __m512 sums = _mm512_setzero_ps();
    for (int i = 0; i < padded_; i += 32) {
      __m512 first = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(scores + i), scale, shift));
      __m512 second = exp2_of(_mm512_fmsub_ps(_mm512_load_ps(scores + i + 16), scale, shift));
      if (i + 32 > tokens_) {
        first = _mm512_maskz_mov_ps(mask(i), first);
        second = _mm512_maskz_mov_ps(mask(i + 16), second);
      }
      sums = _mm512_add_ps(sums, _mm512_add_ps(first, second));
      _mm512_store_si512(shares + i, to_bf16(first, second));
    }
    return _mm512_reduce_add_ps(sums);
  }

  void mix(int rows, const float *factors, bf16 *out, size_t out_width) const {
    alignas(64) float sums[2 * kTileRows * kTileColumns];
    for (int j = 0; j < depth; j++) {
      zero_tile<0>();
      zero_tile<1>();
      for (int i = 0; i < padded_ / kTileDepth; i++) {
        load_tile<4>(room_.shares.get() + i * kTileDepth, static_cast<long>(padded_ * sizeof(bf16)));
        load_tile<6>(value_tile(i, 2 * j), 64);
        multiply_add<0, 4, 6>();
        load_tile<7>(value_tile(i, 2 * j + 1), 64);
        multiply_add<1, 4, 7>();
      }
      store_tile<0>(sums, 2 * 64);
      store_tile<1>(sums + kTileColumns, 2 * 64);
      for (int row = 0; row < rows; row++) {
        const __m512 factor = _mm512_set1_ps(factors[row]);
        const float *at = sums + row * 2 * kTileColumns;
        const __m512 first = _mm512_mul_ps(_mm512_load_ps(at), factor);
        const __m512 second = _mm512_mul_ps(_mm512_load_ps(at + 16), factor);
        _mm512_storeu_si512(out + row * out_width + j * kTileDepth, to_bf16(first, second));
      }
    }
  }

  AttentionRoom &room_;
  int tokens_, padded_;
};

} // namespace tercet
