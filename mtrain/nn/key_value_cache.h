// KeyValueCache: the keys and values of the tokens of some texts, so that a model can read further
// tokens without computing the earlier ones again. The caller owns it and passes it in
// ModelInput::cache; the attention layers of one model write it. For the rank's own thread.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "mtrain/autograd/cached_attention.h"

namespace mtrain {

class MT_API KeyValueCache {
 public:
  /// The further tokens of a text in one forward: one sequence of its micro-batch.
  struct Part {
    int64_t text = 0, tokens = 0;
  };
  /// Room for `texts` texts of up to `capacity` tokens. Memory grows with the longest text.
  explicit KeyValueCache(int64_t capacity, int64_t texts = 1);
  int64_t texts() const { return static_cast<int64_t>(held_.size()); }
  /// The tokens of a text that every layer has read.
  int64_t tokens(int64_t text = 0) const { return held_.at(static_cast<size_t>(text)); }
  /// Forgets all tokens of a text after its first `count`. REQUIRES: count <= tokens(text).
  void keep(int64_t count, int64_t text = 0);
  /// Says what the next forward reads, in the order of its sequences. REQUIRES: no text twice.
  void read(std::vector<Part> parts);
  /// After this forward: the cache holds its tokens.
  void advance();

  // For attention layers, during a forward.
  /// True if no text of this forward has earlier tokens.
  bool begins() const;
  /// The rows of one layer, in the dtype of `like`: [rows, groups * 2 * E], group by group a key
  /// and a value. `layer` identifies the layer.
  const Tensor& rows(const void* layer, const HeadLayout& layout, const Tensor& like);
  /// The sequences of this forward as queries, and the rows of their texts, with the tokens of this
  /// forward, as keys.
  AttentionSpans spans() const { return spans_; }

 private:
  int64_t capacity_, rows_ = 0;  // rows_: of each text
  std::vector<int64_t> held_;
  std::vector<Part> parts_;
  AttentionSpans spans_;
  struct Layer {
    Tensor rows;
    int64_t of_text = 0;
  };
  std::unordered_map<const void*, Layer> layers_;
};

}  // namespace mtrain
