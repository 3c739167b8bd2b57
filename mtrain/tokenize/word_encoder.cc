#include "mtrain/tokenize/word_encoder.h"

#include <array>

#include "mtrain/tokenize/token_table.h"

namespace mtrain::tokenize {
namespace {

constexpr size_t kBatch = 512;      // words that are scanned together
constexpr size_t kKeptIds = 65536;  // a scratch buffer keeps memory for this many
constexpr size_t kOutput = 4096;    // ids that are buffered before they are passed to the caller

}  // namespace

class WordEncoder::Lease {
 public:
  explicit Lease(const WordEncoder& owner) : owner_(owner) {
    std::lock_guard lock(owner.mutex_);
    if (owner.free_.empty()) return;
    scratch_ = std::move(owner.free_.back());
    owner.free_.pop_back();
  }
  ~Lease() {
    if (scratch_ && scratch_->tokens.ids.capacity() > kKeptIds)
      scratch_->tokens = {};  // frees the memory of a very long word
    std::lock_guard lock(owner_.mutex_);
    owner_.free_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& get() {
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
    return *scratch_;
  }

 private:
  const WordEncoder& owner_;
  std::unique_ptr<Scratch> scratch_;
};

/// Looks up words in the caches, encodes missing ones by the model, and passes ids on in large
/// blocks.
class WordEncoder::Writer {
 public:
  Writer(const WordModel& model, Scratch& scratch, std::string_view text, std::vector<int32_t>& ids)
      : model_(model),
        scratch_(scratch),
        cache_(scratch.cache),
        text_end_(text.data() + text.size()),
        ids_(ids) {
    scratch.out.resize(kOutput + WordCache::kLongIds);
    out_ = scratch.out.data();
  }
  ~Writer() = default;
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void word(std::string_view word) {
    if (count_ >= kOutput) flush();
    if (word.size() <= WordCache::kShortBytes) {
      const auto key = WordCache::key_of(word, text_end_);
      if (const auto* entry = cache_.find_short(key)) {
        std::memcpy(out_ + count_, entry->ids.data(), sizeof(entry->ids));
        count_ += entry->count;
        return;
      }
      ask(word);
      if (scratch_.tokens.ids.size() <= WordCache::kShortIds)
        return cache_.insert_short(key, scratch_.tokens.ids);
      return;
    }
    if (word.size() > WordCache::kLongBytes) return ask(word);
    bool same = false;
    auto& entry = cache_.find_long(word, hash_bytes(word), same);
    if (same) {
      std::memcpy(out_ + count_, entry.ids.data(), sizeof(entry.ids));
      count_ += entry.count;
      return;
    }
    ask(word);
    if (scratch_.tokens.ids.size() <= WordCache::kLongIds)
      WordCache::store(entry, word, scratch_.tokens.ids);
  }

  void flush() {
    ids_.insert(ids_.end(), out_, out_ + count_);
    count_ = 0;
  }

 private:
  void ask(std::string_view word) {
    auto& tokens = scratch_.tokens;
    tokens.clear();
    model_.encode(word, tokens);
    if (tokens.ids.size() <= WordCache::kLongIds) {
      std::copy(tokens.ids.begin(), tokens.ids.end(), out_ + count_);
      count_ += tokens.ids.size();
      return;
    }
    flush();
    ids_.insert(ids_.end(), tokens.ids.begin(), tokens.ids.end());
  }

  const WordModel& model_;
  Scratch& scratch_;
  WordCache& cache_;
  const char* text_end_;
  std::vector<int32_t>& ids_;
  int32_t* out_;
  size_t count_ = 0;
};

void WordEncoder::encode(std::string_view text, std::span<const TextSpan> words,
                         std::vector<int32_t>& ids) const {
  Lease lease(*this);
  Writer writer(*model_, lease.get(), text, ids);
  for (const auto& word : words)
    if (word.end > word.begin) writer.word(text.substr(word.begin, word.end - word.begin));
  writer.flush();
}

void WordEncoder::encode(std::string_view text, KnownPattern pattern,
                         std::vector<int32_t>& ids) const {
  Lease lease(*this);
  Writer writer(*model_, lease.get(), text, ids);
  std::array<uint32_t, kBatch> ends;
  for (size_t at = 0, begin = 0; at < text.size();) {
    const size_t count = scan_words(pattern, text, at, ends.data(), ends.size());
    for (size_t i = 0; i < count; ++i) {
      writer.word({text.data() + begin, ends[i] - begin});
      begin = ends[i];
    }
  }
  writer.flush();
}

}  // namespace mtrain::tokenize
