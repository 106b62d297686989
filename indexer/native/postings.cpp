// The best passages by the sum of their postings' weights. Cost goes with the postings, not with the passages.
//
// Python loads this by ctypes (indexer/native_postings.py). Sums are in double and in the order of the terms, as numpy
// adds them up in indexer/bm25.py, so that both give the same bits.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace {

// Sums of all passages, zero between two searches.
class Sums {
public:
  explicit Sums(size_t n) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!free_.empty()) {
      sums_ = std::move(free_.back());
      free_.pop_back();
    }
    if (sums_.size() < n)
      sums_.assign(n, 0.0);
  }
  ~Sums() {
    const std::lock_guard<std::mutex> guard(mutex_);
    free_.push_back(std::move(sums_));
  }
  Sums(const Sums &) = delete;
  Sums &operator=(const Sums &) = delete;
  double &operator[](int32_t row) { return sums_[row]; }

private:
  static inline std::mutex mutex_;
  static inline std::vector<std::vector<double>> free_;
  std::vector<double> sums_;
};

struct Hit {
  double score;
  int64_t row;
  // Whether it stands before another: the greater score, then the lesser row.
  bool operator<(const Hit &other) const { return score > other.score || (score == other.score && row < other.row); }
};

// Texts behind one another, each with where it ends.
struct Texts {
  const uint8_t *bytes;
  const int64_t *ends;
  int64_t n;

  int compare(int64_t i, const uint8_t *text, size_t length) const {
    const int64_t start = i ? ends[i - 1] : 0;
    const size_t own = static_cast<size_t>(ends[i] - start);
    const int order = std::memcmp(bytes + start, text, std::min(own, length));
    return order ? order : own < length ? -1 : own > length;
  }
  // The number of a text where they are sorted, -1 for none.
  int64_t find(const uint8_t *text, size_t length) const {
    int64_t low = 0, high = n;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (compare(middle, text, length) < 0)
        low = middle + 1;
      else
        high = middle;
    }
    return low < n && compare(low, text, length) == 0 ? low : -1;
  }
};

} // namespace

extern "C" {

struct Index { // of a term i, the postings are [starts[i], starts[i + 1]); its rows are distinct
  Texts terms;
  const int64_t *starts;
  const int32_t *rows;
  const float *weights;
  int64_t n_passages;
};

struct Query { // distinct sorted terms, each of which counts several times
  Texts terms;
  const int64_t *times;
};

// Write the k best rows and their scores, rounded to float, best first, and return how many there are; -1 when there is
// no memory. allowed says of each passage whether it may be among them; null for all.
int64_t tercet_best_passages(const Index *index, const Query *query, const uint8_t *allowed, int64_t k,
                             int64_t *best_rows, double *best_scores) {
  try {
    Sums sums(index->n_passages);
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (int64_t i = 0; i < query->terms.n; i++) {
      const int64_t start = i ? query->terms.ends[i - 1] : 0;
      const size_t length = static_cast<size_t>(query->terms.ends[i] - start);
      const int64_t term = index->terms.find(query->terms.bytes + start, length);
      if (term < 0)
        continue;
      ranges.emplace_back(index->starts[term], index->starts[term + 1]);
      const double times = static_cast<double>(query->times[i]);
      for (int64_t at = ranges.back().first; at < ranges.back().second; at++)
        sums[index->rows[at]] += times * index->weights[at];
    }
    std::vector<Hit> best; // a heap with the last of the best at its top
    best.reserve(static_cast<size_t>(k));
    for (const auto &[start, end] : ranges)
      for (int64_t at = start; at < end; at++) {
        const int32_t row = index->rows[at];
        const Hit hit{static_cast<float>(sums[row]), row};
        sums[row] = 0; // of a passage that is met again, nothing is left
        if (hit.score <= 0 || (allowed != nullptr && !allowed[row]))
          continue;
        if (static_cast<int64_t>(best.size()) < k) {
          best.push_back(hit);
          std::push_heap(best.begin(), best.end());
        } else if (hit < best.front()) {
          std::pop_heap(best.begin(), best.end());
          best.back() = hit;
          std::push_heap(best.begin(), best.end());
        }
      }
    std::sort_heap(best.begin(), best.end());
    for (size_t i = 0; i < best.size(); i++) {
      best_rows[i] = best[i].row;
      best_scores[i] = best[i].score;
    }
    return static_cast<int64_t>(best.size());
  } catch (const std::bad_alloc &) {
    return -1;
  }
}
}
