#include "mtrain/pipeline/picture.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "mtrain/base/error.h"
#include "mtrain/base/file.h"
#include "mtrain/pipeline/lower.h"
#include "mtrain/pipeline/schedule_text.h"
#include "roots.h"

namespace mtrain {
namespace {

TEST_CASE("pictures: actions have their name and width, idle time is dots") {
  Plan plan{2, 3};
  CHECK(draw_text(simulate(one_f_one_b(plan), plan), 36) ==
        "rank 0 |F0 F1 ......B0    F2 B1    ...B2    |\n"
        "rank 1 |...F0 B0    F1 B1    F2 B2    ......|\n");
  Simulated v = simulate(
      parse_schedule("0F0 3F0 3B0 3W0 0B0 0W0 0R 3R\n1F0 2F0 2B0 1B0 2W0 1W0 1R 2R", "v"), {4, 1});
  REQUIRE(v.faults.empty());
  CHECK(draw_text(v, 27) ==
        "rank 0 |F0 ......f0 b0 w0 ...B0 W0 |\n"
        "rank 1 |...F0 f0 ......b0 B0 w0 W0 |\n");
}

TEST_CASE("pictures: all lines have the width asked for, however long or short actions are") {
  Plan plan{11, 300};
  for (int columns : {1, 7, 80, 500}) {
    std::string text = draw_text(simulate(one_f_one_b(plan), plan), columns);
    CHECK(std::count(text.begin(), text.end(), '\n') == 11);
    for (const std::string& line : split(text, '\n'))
      if (!line.empty())
        CHECK(line.size() == std::string("rank 10 ||").size() + static_cast<size_t>(columns));
  }
  CHECK(draw_text(Simulated{}, 10).empty());
  CHECK(draw_text(simulate(Schedule(2), {1, 1}), 5) == "rank 0 |.....|\nrank 1 |.....|\n");
}

TEST_CASE("pictures: an SVG has a rectangle for each action that takes time, and its name") {
  Plan plan{2, 2};
  Schedule lowered = lower(one_f_one_b(plan), StageMap::looping(2));
  Simulated run =
      simulate(lowered, plan, {.stages = {}, .send = 0.5, .transfer = TransferMode::rendezvous});
  std::string svg = draw_svg(run, 800);
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\""));
  CHECK(svg.ends_with("</svg>\n"));
  auto count = [&](std::string_view what) {
    size_t n = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++n;
    return n;
  };
  CHECK(count("<rect") ==
        2 + 8 + 8);  // a background per rank, 8 computations, both sides of 4 transfers
  CHECK(count("<title>") == 16);
  CHECK(count("<title>0F1, 1.5 to 2.5</title>") == 1);
  CHECK(count("<g>") == count("</g>"));
  CHECK(count("#4c78d8") == 4);
  CHECK_THROWS_AS(draw_svg(run, 10), Error);
}

TEST_CASE("docs/pipeline.md shows what the simulator draws") {
  std::string page = read_file(testing::source_root() / "docs/pipeline.md");
  for (std::string_view name : {"gpipe", "1f1b", "interleaved", "combined", "zb_h1", "zb_v"}) {
    bool two = name == "interleaved" || name == "combined" || name == "zb_v";
    Plan plan{two ? 8 : 4, 8, two ? 2 : 1};
    Simulated run = simulate(make_schedule(name, plan), plan);
    INFO(std::string(name));
    INFO(draw_text(run, static_cast<int>(run.makespan) * 2));
    CHECK(page.find(draw_text(run, static_cast<int>(run.makespan) * 2)) != std::string::npos);
  }
}

TEST_CASE("docs/pipeline.md: its schedule written by hand is ZB-H1") {
  std::string page = read_file(testing::source_root() / "docs/pipeline.md");
  size_t begin = page.find("# rank 0 holds stage 0"), end = page.find("```", begin);
  REQUIRE(end != std::string::npos);
  Schedule schedule = parse_schedule(page.substr(begin, end - begin), "docs/pipeline.md");
  add_reduces(schedule);
  CHECK(schedule == zb_h1({2, 3}));
}

}  // namespace
}  // namespace mtrain
