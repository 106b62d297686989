// Intel AMX: tiles of 16 rows of 64 bytes, multiplied as bfloat16 and summed as floats; and AVX-512 beside them.
// Source: Intel Architecture Instruction Set Extensions Programming Reference, chapter 3 (AMX).
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace tercet {

using bf16 = uint16_t;

constexpr int kTileRows = 16;    // of A and of C
constexpr int kTileColumns = 16; // of B and of C
constexpr int kTileDepth = 32;   // bfloat16 numbers that one product sums over

// The compiler must know that a tile is read from memory: its own intrinsic does not say so.
template <int tile> inline void load_tile(const void *base, long stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(base), "r"(stride), "i"(tile) : "memory");
}

template <int tile> inline void store_tile(void *base, long stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(base), "r"(stride), "i"(tile) : "memory");
}

template <int tile> inline void zero_tile() { __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile)); }

template <int c, int a, int b> inline void multiply_add() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
}

struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_a_row[16] = {};
  uint8_t rows[16] = {};
};

// While one lives, all eight tiles of this thread are whole.
class Tiles {
public:
  Tiles() {
    TileShapes shapes;
    for (int i = 0; i < 8; i++) {
      shapes.bytes_a_row[i] = 64;
      shapes.rows[i] = kTileRows;
    }
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
  }
  ~Tiles() { __asm__ volatile("tilerelease" ::); }
  Tiles(const Tiles &) = delete;
  Tiles &operator=(const Tiles &) = delete;
};

// Memory that tiles like: on a cache line, zeroed, so that what is read behind an end is a finite number.
template <class T> class Buffer {
public:
  void grow(size_t n) {
    if (n <= size_)
      return;
    const size_t bytes = (n * sizeof(T) + 63) / 64 * 64;
    data_.reset(static_cast<T *>(std::aligned_alloc(64, bytes)));
    if (!data_) {
      size_ = 0;
      throw std::bad_alloc();
    }
    std::memset(data_.get(), 0, bytes);
    size_ = n;
  }
  T *get() const { return data_.get(); }

private:
  struct Free {
    void operator()(T *data) const { std::free(data); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

// Return two vectors of 16 floats as 32 bfloat16 numbers, rounded to the nearest.
inline __m512i to_bf16(__m512 first, __m512 second) { return (__m512i)_mm512_cvtne2ps_pbh(second, first); }

inline bf16 to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<bf16>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// 2^x for x <= 0, off by 3e-6 of itself at most.
inline __m512 exp2_of(__m512 x) {
  const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, whole);
  __m512 y = _mm512_fmadd_ps(_mm512_set1_ps(0.009570101276040077f), f, _mm512_set1_ps(0.05591786280274391f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.240247443318367f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.6931217908859253f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0.9999992847442627f));
  return _mm512_scalef_ps(y, whole);
}

// x times the normal distribution function of x (Hendrycks and Gimpel 2016), off by 3e-6 within [-4.25, 4.25] and by
// 1.1e-5 |x| beyond. A polynomial in x squared, least in its greatest error.
inline __m512 gelu(__m512 x) {
  constexpr float kEdge = 4.25f;
  constexpr float kCoefficients[] = {
      0.1659366339445114f,    -0.0807834044098854f,  0.055653009563684464f,  -0.03902817517518997f,
      0.025866879150271416f,  -0.015373106114566326f, 0.0080952113494277f,    -0.00460079126060009f,
      0.0027274354360997677f, -0.0008493119385093451f,
  };
  const __m512 t = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(kEdge)), _mm512_set1_ps(-kEdge));
  const __m512 s = _mm512_fmadd_ps(_mm512_mul_ps(t, t), _mm512_set1_ps(2 / (kEdge * kEdge)), _mm512_set1_ps(-1.0f));
  __m512 y = _mm512_set1_ps(kCoefficients[9]);
  for (int i = 8; i >= 0; i--)
    y = _mm512_fmadd_ps(y, s, _mm512_set1_ps(kCoefficients[i]));
  return _mm512_mul_ps(x, _mm512_fmadd_ps(t, y, _mm512_set1_ps(0.5f)));
}

} // namespace tercet
