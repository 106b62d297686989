// BERT's tokenization of ASCII text: clean, lower, split at whitespace and around punctuation, then WordPiece (Devlin et
// al. 2019; greedy longest match first, Wu et al. 2016). A stretch between whitespace that holds anything else is left
// to the caller, whom it cannot concern what stands around it: nothing of the tokenization looks across whitespace.
//
// Python loads this by ctypes (models/native_wordpiece.py).

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <vector>

namespace {

constexpr int64_t kForeign = -1; // stands where the caller puts what a stretch of other characters becomes
constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;

enum Class : uint8_t { kLetter, kSpace, kDropped, kPunctuation };

Class class_of(uint8_t byte) {
  if (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r')
    return kSpace;
  if (byte < 0x20 || byte == 0x7F)
    return kDropped;
  const bool is_alphanumeric =
      (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
  return is_alphanumeric ? kLetter : kPunctuation;
}

// The hash of a piece, byte by byte, so that those of all prefixes of a word come at once.
uint64_t hash_step(uint64_t hash, uint8_t byte) { return (hash ^ byte) * kFactor ^ (hash >> 29); }

struct Piece {
  std::string text;
  int32_t id;
};

// Pieces by their text, in open addressing.
class Pieces {
public:
  void add(std::string text, int32_t id) {
    longest_ = std::max(longest_, text.size());
    pieces_.push_back({std::move(text), id});
  }

  void index() {
    size_t size = 16;
    while (size < pieces_.size() * 2)
      size *= 2;
    slots_.assign(size, -1);
    for (size_t i = 0; i < pieces_.size(); ++i) {
      uint64_t hash = 0;
      for (const char byte : pieces_[i].text)
        hash = hash_step(hash, static_cast<uint8_t>(byte));
      size_t at = slot(hash);
      while (slots_[at] >= 0)
        at = (at + 1) & (size - 1);
      slots_[at] = static_cast<int32_t>(i);
    }
  }

  // The length of the longest piece that the text begins with, its number in id; 0 for none.
  size_t longest_prefix(const char *text, size_t length, int32_t &id) const {
    uint64_t hashes[kMostBytes];
    uint64_t hash = 0;
    const size_t most = std::min({length, longest_, kMostBytes});
    for (size_t n = 0; n < most; ++n)
      hashes[n] = hash = hash_step(hash, static_cast<uint8_t>(text[n]));
    for (size_t n = most; n > 0; --n) {
      for (size_t at = slot(hashes[n - 1]); slots_[at] >= 0; at = (at + 1) & (slots_.size() - 1)) {
        const Piece &piece = pieces_[slots_[at]];
        if (piece.text.size() == n && std::memcmp(piece.text.data(), text, n) == 0) {
          id = piece.id;
          return n;
        }
      }
    }
    return 0;
  }

  size_t longest() const { return longest_; }
  static constexpr size_t kMostBytes = 256;

private:
  size_t slot(uint64_t hash) const { return (hash ^ hash >> 32) & (slots_.size() - 1); }

  size_t longest_ = 0;
  std::vector<Piece> pieces_;
  std::vector<int32_t> slots_;
};

class WordPiece {
public:
  WordPiece(bool lowers, int32_t unknown_id, int64_t most_characters)
      : unknown_id_(unknown_id), most_characters_(static_cast<size_t>(most_characters)) {
    for (int byte = 0; byte < 128; ++byte) {
      classes_[byte] = class_of(static_cast<uint8_t>(byte));
      lowered_[byte] = static_cast<char>(lowers && byte >= 'A' && byte <= 'Z' ? byte + 32 : byte);
    }
  }

  // Take a vocabulary: texts behind one another, each with where it ends; whether all fit.
  bool fill(const char *bytes, const int64_t *ends, int64_t n, const std::string &prefix) {
    for (int64_t id = 0; id < n; ++id) {
      const int64_t start = id ? ends[id - 1] : 0;
      const std::string text(bytes + start, bytes + ends[id]);
      if (text.empty() || std::any_of(text.begin(), text.end(), [](char byte) { return (byte & 0x80) != 0; }))
        continue;
      if (text.compare(0, prefix.size(), prefix) == 0 && text.size() > prefix.size())
        inner_.add(text.substr(prefix.size()), static_cast<int32_t>(id));
      first_.add(text, static_cast<int32_t>(id)); // "##a" is also the beginning of a word "##a"
    }
    first_.index();
    inner_.index();
    return std::max(first_.longest(), inner_.longest()) <= Pieces::kMostBytes;
  }

  // Write the ids of a text, at most one a byte, and the bounds of its foreign stretches; how many ids there are.
  int64_t encode(const uint8_t *text, int64_t size, int64_t *ids, std::vector<int64_t> &foreign) const {
    int64_t n = 0;
    std::string word;
    for (int64_t at = 0; at < size;) {
      int64_t end = at;
      bool is_ascii = true;
      for (; end < size && (text[end] >= 0x80 || classes_[text[end]] != kSpace); ++end)
        is_ascii &= text[end] < 0x80;
      if (is_ascii) {
        n += encode_stretch(text + at, end - at, ids + n, word);
      } else {
        ids[n++] = kForeign;
        foreign.insert(foreign.end(), {at, end});
      }
      at = end + 1;
    }
    return n;
  }

private:
  int64_t encode_stretch(const uint8_t *text, int64_t size, int64_t *ids, std::string &word) const {
    int64_t n = 0;
    word.clear();
    for (int64_t i = 0; i <= size; ++i) {
      const Class kind = i < size ? classes_[text[i]] : kSpace;
      if (kind == kLetter)
        word += lowered_[text[i]];
      if (kind == kLetter || kind == kDropped)
        continue;
      n += pieces_of(word, ids + n);
      word.clear();
      if (kind == kPunctuation)
        n += pieces_of(std::string(1, static_cast<char>(text[i])), ids + n);
    }
    return n;
  }

  int64_t pieces_of(const std::string &word, int64_t *ids) const {
    if (word.empty())
      return 0;
    if (word.size() > most_characters_) {
      ids[0] = unknown_id_;
      return 1;
    }
    int64_t n = 0;
    for (size_t at = 0; at < word.size();) {
      int32_t id = 0;
      const size_t length = (at ? inner_ : first_).longest_prefix(word.data() + at, word.size() - at, id);
      if (length == 0) {
        ids[0] = unknown_id_;
        return 1;
      }
      ids[n++] = id;
      at += length;
    }
    return n;
  }

  Class classes_[128];
  char lowered_[128];
  int32_t unknown_id_;
  size_t most_characters_;
  Pieces first_, inner_; // what a word may begin with, and go on with
};

} // namespace

extern "C" {

// bytes, ends: the vocabulary in order of its ids, n texts behind one another. Returns null when there is no memory or a
// piece is too long.
void *tercet_wordpiece_new(const char *bytes, const int64_t *ends, int64_t n, const char *prefix, int32_t lowers,
                           int32_t unknown_id, int64_t most_characters) {
  try {
    WordPiece *made = new WordPiece(lowers != 0, unknown_id, most_characters);
    if (made->fill(bytes, ends, n, prefix))
      return made;
    delete made;
    return nullptr;
  } catch (const std::bad_alloc &) {
    return nullptr;
  }
}

void tercet_wordpiece_delete(void *wordpiece) { delete static_cast<WordPiece *>(wordpiece); }

// Encode n texts that stand behind one another in UTF-8. ids has room for one a byte; id_ends[i] is where those of text i
// end. What is left to the caller is -1 among the ids, and its bounds in bytes stand in foreign, which has room for as
// many numbers as there are bytes and one more. Returns how many stretches those are, -1 when there is no memory.
int64_t tercet_wordpiece_encode(const void *wordpiece, const uint8_t *bytes, const int64_t *ends, int64_t n,
                                int64_t *ids, int64_t *id_ends, int64_t *foreign) {
  try {
    const WordPiece &own = *static_cast<const WordPiece *>(wordpiece);
    int64_t n_ids = 0, n_foreign = 0;
    std::vector<int64_t> bounds;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t start = i ? ends[i - 1] : 0;
      bounds.clear();
      n_ids += own.encode(bytes + start, ends[i] - start, ids + n_ids, bounds);
      id_ends[i] = n_ids;
      for (const int64_t bound : bounds)
        foreign[n_foreign++] = start + bound;
    }
    return n_foreign / 2;
  } catch (const std::bad_alloc &) {
    return -1;
  }
}
}
