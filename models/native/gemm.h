// Products of activations by weights, the weights packed as tiles.
#pragma once

#include "tiles.h"

#include <algorithm>

namespace tercet {

// A linear layer's (n, k) weights and n biases. Its tiles are ordered by 16 columns, then by 32 of k; in a tile, row i
// holds k = 2i and 2i + 1 of each column side by side.
struct Linear {
  int n = 0, k = 0;
  Buffer<bf16> tiles;
  Buffer<float> bias;

  void pack(const float *weights, const float *biases, int rows, int columns) {
    n = rows;
    k = columns;
    tiles.grow(static_cast<size_t>(n) * k);
    bias.grow(n);
    std::copy(biases, biases + n, bias.get());
    for (int column = 0; column < n; column++)
      for (int i = 0; i < k; i++)
        tiles.get()[place(column, i)] = to_bf16(weights[static_cast<size_t>(column) * k + i]);
  }
  const bf16 *column_tiles(int column) const { return tiles.get() + static_cast<size_t>(column) * k; }

private:
  size_t place(int column, int i) const {
    const size_t tile = static_cast<size_t>(column / kTileColumns) * (k / kTileDepth) + i / kTileDepth;
    return tile * 512 + (i % kTileDepth) / 2 * 32 + column % kTileColumns * 2 + i % 2;
  }
};

constexpr int kBlock = 32; // rows and columns of what is summed in four tiles

// One block of sums that waits for its epilogue.
struct Block {
  const float *sums = nullptr; // (rows, 32)
  int row = 0, column = 0, rows = 0;
};

// Sum a block of 32 columns, and 16 or 32 rows, over all of k; between the products run the epilogue of the block
// before, a few rows at a time, for which the matrix unit does not wait.
template <int row_tiles, class Epilogue>
inline void sum_block(const bf16 *a, size_t a_width, const Linear &linear, int column, float *sums, const Block &before,
                      const Epilogue &epilogue) {
  const long stride = static_cast<long>(a_width * sizeof(bf16));
  const bf16 *b0 = linear.column_tiles(column), *b1 = linear.column_tiles(column + kTileColumns);
  const bf16 *a1 = a + kTileRows * a_width;
  const int steps = linear.k / kTileDepth, rows_a_step = (kBlock + steps - 1) / steps;
  zero_tile<0>();
  zero_tile<1>();
  if (row_tiles == 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
  int done = 0;
  for (int step = 0; step < steps; step++) {
    load_tile<4>(a + step * kTileDepth, stride);
    load_tile<6>(b0 + step * 512, 64);
    multiply_add<0, 4, 6>();
    load_tile<7>(b1 + step * 512, 64);
    multiply_add<1, 4, 7>();
    if (row_tiles == 2) {
      load_tile<5>(a1 + step * kTileDepth, stride);
      multiply_add<2, 5, 6>();
      multiply_add<3, 5, 7>();
    }
    for (const int until = std::min(done + rows_a_step, before.rows); done < until; done++)
      epilogue(before.sums + done * kBlock, before.row + done, before.column);
  }
  constexpr long width = kBlock * sizeof(float);
  store_tile<0>(sums, width);
  store_tile<1>(sums + kTileColumns, width);
  if (row_tiles == 2) {
    store_tile<2>(sums + kTileRows * kBlock, width);
    store_tile<3>(sums + kTileRows * kBlock + kTileColumns, width);
  }
}

// Multiply the first `rows` rows of a, (rows, a_width) of which linear.k count, by columns [from, to) of a linear
// layer. The epilogue is called with 32 sums, their row and their first column. What stands behind the last row is read, up to
// the next multiple of 16, and comes to nothing.
template <class Epilogue>
inline void multiply(const bf16 *a, size_t a_width, int rows, const Linear &linear, int from, int to,
                     const Epilogue &epilogue) {
  alignas(64) float sums[2][kBlock * kBlock];
  Block before;
  int turn = 0;
  for (int column = from; column < to; column += kBlock) {
    for (int row = 0; row < rows; row += kBlock) {
      const int left = std::min(kBlock, rows - row);
      const bf16 *here = a + row * a_width;
      if (left > kTileRows)
        sum_block<2>(here, a_width, linear, column, sums[turn], before, epilogue);
      else
        sum_block<1>(here, a_width, linear, column, sums[turn], before, epilogue);
      before = {sums[turn], row, column, left};
      turn = 1 - turn;
    }
  }
  for (int row = 0; row < before.rows; row++)
    epilogue(before.sums + row * kBlock, before.row + row, before.column);
}

// Epilogues: what becomes of 32 sums of a row.

struct Biased {
  __m512 first, second;
  Biased(const float *sums, const float *bias, int column)
      : first(_mm512_add_ps(_mm512_load_ps(sums), _mm512_loadu_ps(bias + column))),
        second(_mm512_add_ps(_mm512_load_ps(sums + 16), _mm512_loadu_ps(bias + column + 16))) {}
};

// As bfloat16.
struct Store {
  const float *bias;
  bf16 *out;
  size_t width;
  void operator()(const float *sums, int row, int column) const {
    const Biased x(sums, bias, column);
    _mm512_storeu_si512(out + row * width + column, to_bf16(x.first, x.second));
  }
};

struct StoreGelu {
  const float *bias;
  bf16 *out;
  size_t width;
  void operator()(const float *sums, int row, int column) const {
    const Biased x(sums, bias, column);
    _mm512_storeu_si512(out + row * width + column, to_bf16(gelu(x.first), gelu(x.second)));
  }
};

// Add to what is in out, as floats.
struct AddTo {
  const float *bias;
  float *out;
  size_t width;
  void operator()(const float *sums, int row, int column) const {
    const Biased x(sums, bias, column);
    float *at = out + row * width + column;
    _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), x.first));
    _mm512_storeu_ps(at + 16, _mm512_add_ps(_mm512_loadu_ps(at + 16), x.second));
  }
};

} // namespace tercet
