// Boxes against enumeration of their elements.
#include "mtrain/base/box.h"

#include <doctest/doctest.h>

#include <limits>

using namespace mtrain;

namespace {

/// Calls visit(box) for every box, the empty ones included, of a tensor of this shape.
template <class Visit>
void for_each_box(const Shape& shape, Visit&& visit, Box box = {}) {
  int d = box.offset.rank();
  if (d == shape.rank()) return visit(box);
  for (int64_t lo = 0; lo <= shape[d]; ++lo)
    for (int64_t hi = lo; hi <= shape[d]; ++hi) {
      Box next = box;
      next.offset.push_back(lo), next.extent.push_back(hi - lo);
      for_each_box(shape, visit, next);
    }
}

/// Its elements as positions in the flattened tensor, rising.
std::vector<int64_t> elements(const Box& box, const Shape& shape) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    bool in = true;
    int64_t rest = i;
    for (int d = shape.rank() - 1; d >= 0; --d, rest /= shape[d + 1]) {
      int64_t at = rest % shape[d];
      in = in && at >= box.offset[d] && at < box.offset[d] + box.extent[d];
    }
    if (in) out.push_back(i);
  }
  return out;
}

}  // namespace

TEST_CASE("box: what two boxes have in common, compared with their elements") {
  const Shape shape{2, 3, 2};
  for_each_box(shape, [&](const Box& a) {
    std::vector<int64_t> in_a = elements(a, shape);
    for_each_box(shape, [&](const Box& b) {
      std::vector<int64_t> both;
      for (int64_t i : elements(b, shape))
        if (std::find(in_a.begin(), in_a.end(), i) != in_a.end()) both.push_back(i);
      auto common = intersect(a, b);
      REQUIRE(common.has_value() == !both.empty());
      if (common) REQUIRE(elements(*common, shape) == both);
    });
  });
  CHECK(intersect(Box{}, Box{}) == Box{});  // one element
}

TEST_CASE("box: whether a box is within a shape, for any numbers") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const Shape shape{4, 6};
  CHECK(fits(whole_box(shape), shape));
  CHECK(fits({{4, 0}, {0, 6}}, shape));
  CHECK(fits(Box{}, Shape{}));
  for (const Box& box : {Box{{0, 0}, {5, 1}}, Box{{3, 0}, {2, 1}}, Box{{-1, 0}, {2, 1}},
                         Box{{0, 0}, {1, -1}}, Box{{0, 0, 0}, {1, 1, 1}}, Box{{0}, {1}},
                         Box{{kMost, 0}, {kMost, 1}}, Box{{1, 0}, {kMost, 1}}}) {
    CAPTURE(describe(box));
    CHECK_FALSE(fits(box, shape));
  }
  CHECK(describe({{0, 4}, {2, 8}}) == "offset [0, 4] size [2, 8]");
}

TEST_CASE("box: a range of a flattened tensor is a few boxes that hold its elements in order") {
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 4}, Shape{2, 3, 4}, Shape{2, 1, 3, 2}})
    for (int64_t begin = 0; begin <= shape.numel(); ++begin)
      for (int64_t end = begin; end <= shape.numel(); ++end) {
        std::vector<int64_t> found, wanted;
        std::vector<Box> boxes = boxes_of_range(shape, begin, end);
        for (const Box& box : boxes) {
          REQUIRE(fits(box, shape));
          for (int64_t i : elements(box, shape)) found.push_back(i);
        }
        for (int64_t i = begin; i < end; ++i) wanted.push_back(i);
        REQUIRE(found == wanted);
        REQUIRE(static_cast<int>(boxes.size()) <= std::max(1, 2 * shape.rank() - 1));
      }
}

TEST_CASE("box: the runs of two boxes copy one onto the other, each as long as it can be") {
  const Shape from_shape{3, 4, 2};
  for_each_box(from_shape, [&](const Box& from) {
    for (const Shape& room : {Shape{0, 0, 0}, Shape{1, 0, 0}, Shape{0, 2, 0}, Shape{2, 1, 3}}) {
      Shape to_shape = from.extent, corner = room;
      for (int d = 0; d < 3; ++d) to_shape[d] += room[d], corner[d] = room[d] / 2;
      Box to = moved(from, from.offset, corner);
      REQUIRE(to == Box{corner, from.extent});
      std::vector<int64_t> sources, targets;
      int64_t last_from = -1, last_to = -1;
      for_each_run(from, from_shape, to, to_shape, [&](int64_t a, int64_t b, int64_t count) {
        REQUIRE(count > 0);
        REQUIRE(!(a == last_from && b == last_to));  // else it is the rest of the run before it
        for (int64_t i = 0; i < count; ++i) sources.push_back(a + i), targets.push_back(b + i);
        last_from = a + count, last_to = b + count;
      });
      REQUIRE(sources == elements(from, from_shape));
      REQUIRE(targets == elements(to, to_shape));
    }
  });
  int num_runs = 0;
  for_each_run(Box{}, Shape{}, Box{}, Shape{}, [&](int64_t a, int64_t b, int64_t count) {
    CHECK((a == 0 && b == 0 && count == 1));
    ++num_runs;
  });
  CHECK(num_runs == 1);
}
