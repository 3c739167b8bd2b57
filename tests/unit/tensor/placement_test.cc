#include "mtrain/tensor/placement.h"

#include <doctest/doctest.h>

#include <set>

#include "mtrain/base/error.h"

namespace mtrain {
namespace {

using Letter = Placement::Letter;

const Placement kPlacements[] = {Placement::R(), Placement::I(), Placement::S(0), Placement::S(1),
                                 Placement::P()};

TEST_CASE("placement: text and back") {
  const char* texts[] = {"R", "I", "S(0)", "S(1)", "P"};
  for (size_t i = 0; i < std::size(kPlacements); ++i) {
    CHECK(to_text(kPlacements[i]) == texts[i]);
    CHECK(parse_placement(texts[i]) == kPlacements[i]);
  }
  CHECK(parse_placement("S(12)").dim() == 12);
  for (const char* bad :
       {"", "r", "S", "S()", "S(-1)", "S(1", "S(x)", "S(1)x", "S(999)", "RI", "S(1 )"}) {
    INFO(bad);
    CHECK_THROWS_WITH_AS(parse_placement(bad), doctest::Contains("is not a placement"), Error);
  }
  CHECK_THROWS_AS(Placement::S(-1), Error);
  CHECK_THROWS_AS((void)Placement::R().dim(), Error);
}

TEST_CASE("placement: the dual of the dual is the placement") {
  CHECK(dual(Placement::R()) == Placement::P());
  CHECK(dual(Placement::I()) == Placement::I());
  CHECK(dual(Placement::S(1)) == Placement::S(1));
  for (Placement p : kPlacements) CHECK(dual(dual(p)) == p);
}

TEST_CASE("placement: the backward of a -> b is the forward of dual(b) -> dual(a)") {
  size_t rows = 0;
  for (Placement from : kPlacements)
    for (Placement to : kPlacements) {
      if (!refusal(from, to).empty()) continue;
      INFO(from, " -> ", to);
      ++rows;
      CHECK(transition(from, to).backward == transition(dual(to), dual(from)).forward);
    }
  // Five equal pairs; seven rows, where S stands for two dims in four rows and for two pairs in
  // one.
  CHECK(rows == 5 + 2 + 4 * 2 + 2);
}

TEST_CASE("placement: the table") {
  struct Row {
    Placement from, to;
    Transfer forward;
  };
  const Row rows[] = {
      {Placement::I(), Placement::R(), Transfer::none},
      {Placement::P(), Placement::I(), Transfer::all_reduce},
      {Placement::S(0), Placement::R(), Transfer::all_gather},
      {Placement::P(), Placement::S(0), Transfer::reduce_scatter},
      {Placement::S(0), Placement::I(), Transfer::all_gather},
      {Placement::I(), Placement::S(0), Transfer::slice},
      {Placement::S(0), Placement::S(1), Transfer::all_to_all},
      {Placement::S(1), Placement::S(1), Transfer::none},
  };
  for (const Row& row : rows) CHECK(transition(row.from, row.to).forward == row.forward);
  CHECK(transitions().size() == 7);
}

TEST_CASE("placement: every pair is in the table or refused with what to do") {
  std::set<std::string> refused;
  for (Placement from : kPlacements)
    for (Placement to : kPlacements) {
      std::string why = refusal(from, to);
      if (why.empty()) {
        CHECK_NOTHROW(transition(from, to));
        continue;
      }
      refused.insert(to_text(from)[0] + std::string(">") + to_text(to)[0]);
      try {
        transition(from, to);
        FAIL(from, " -> ", to, " was accepted");
      } catch (const Error& e) {
        CHECK(e.error_class() == ErrorClass::bug);
        CHECK(e.message() == cat("a tensor cannot be redistributed from ", from, " to ", to));
        CHECK(e.hint() == why);
      }
    }
  CHECK(refused == std::set<std::string>{"R>I", "R>S", "R>P", "I>P", "S>P", "P>R"});
}

}  // namespace
}  // namespace mtrain
