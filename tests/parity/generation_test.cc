// Texts that are generated with cached keys and values, one or several at a time, against forwards
// of the whole text, for every decoder of subjects.h.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "mtrain/train/generator.h"
#include "subjects.h"

using namespace mtrain;
using namespace mtrain::testing;

namespace {

constexpr int64_t kLength = 40;  // the most tokens that the models read

/// The models that continue texts.
std::vector<Subject> decoders() {
  std::vector<Subject> all = subjects();
  for (const auto* further : {&variants(), &parts()})
    all.insert(all.end(), further->begin(), further->end());
  std::erase_if(all, [](const Subject& subject) {
    const std::string_view model = subject.model;
    return !built(subject) || model.starts_with("{type: bert") || model.starts_with("{type: t5");
  });
  return all;
}

/// Windows end within the texts.
Recipe short_recipe(const Subject& subject) {
  std::vector<std::string> sizes = {cat("model.seq_length=", kLength), "run.threads=2"};
  if (std::string_view(subject.model).find("{window:") != std::string_view::npos ||
      std::string_view(subject.model).find(", window:") != std::string_view::npos)
    sizes.emplace_back("model.attention.window=9");
  if (std::string_view(subject.name) == "phi")
    sizes.emplace_back("model.rope.percent=0.5");  // an even number
  return recipe_from_text(cat("model: ", subject.model, "\ndataset: mock\ntrain: {steps: 1}\n"),
                          subject.name, fs::current_path(), sizes, plugins());
}

std::vector<int32_t> prompt_of(int64_t length, int64_t key) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < length; ++i)
    out.push_back(static_cast<int32_t>((7 + i * i * 31 + key * 13) % 250));
  return out;
}

/// How far each token is from the most likely one after the whole text before it, relative to the
/// largest logit.
double worst_choice(Generator& generator, std::vector<int32_t> text,
                    const std::vector<int32_t>& made) {
  double worst = 0;
  for (int32_t id : made) {
    const std::span seen = std::span(text).last(std::min<size_t>(text.size(), kLength));
    const std::vector<float> all = generator.logits(seen);
    const std::span last = std::span(all).last(all.size() / seen.size());
    const double top = static_cast<double>(*std::ranges::max_element(last)),
                 chosen = static_cast<double>(last[static_cast<size_t>(id)]);
    worst = std::max(worst, (top - chosen) / std::max(1e-3, std::fabs(top)));
    text.push_back(id);
  }
  return worst;
}

/// Prompts of all lengths, some longer than the model reads, with results of all lengths.
std::vector<TextRequest> requests() {
  std::vector<TextRequest> out;
  for (int64_t i = 0; i < 14; ++i)
    out.push_back({prompt_of(i * 29 % 47, i),
                   {.max_tokens = 1 + i * 5 % 17,
                    .temperature = i % 3 == 0 ? 0.0 : 1.0,
                    .top_k = i % 2 == 0 ? 0 : 20,
                    .seed = static_cast<uint64_t>(i),
                    .stop = {3, 5, 8, 13, 21, 34, 55, 89, 144, 233}}});
  return out;
}

std::vector<GeneratedTokens> generated(Generator& generator, std::span<const TextRequest> wanted) {
  std::vector<GeneratedTokens> out;
  size_t next = 0;
  generator.generate_all(
      [&]() -> std::optional<TextRequest> {
        return next < wanted.size() ? std::optional(wanted[next++]) : std::nullopt;
      },
      [&](GeneratedTokens made) { out.push_back(std::move(made)); });
  return out;
}

}  // namespace

TEST_CASE("a generated token is the most likely one after the whole text") {
  for (const Subject& subject : decoders()) {
    const std::string_view model = subject.model;
    CAPTURE(std::string(subject.name));
    const Recipe recipe = short_recipe(subject);
    Session session(recipe, plugins(), {});
    Generator generator(session);
    CHECK(generator.caches() == (model.find("capacity_factor") == std::string_view::npos));
    // The second prompt begins as the first one; the third one and its text exceed the length.
    for (const auto& [length, key] : {std::pair<int64_t, int64_t>{11, 0}, {20, 0}, {35, 1}}) {
      const std::vector<int32_t> prompt = prompt_of(length, key);
      const GeneratedTokens made = generator.generate(prompt, {.max_tokens = 12, .temperature = 0});
      CHECK(made.ids.size() > 2);
      CHECK(worst_choice(generator, prompt, made.ids) <= 1e-4);
    }
  }
}

TEST_CASE("a text does not depend on those that are generated together with it") {
  for (const Subject& subject : decoders()) {
    CAPTURE(std::string(subject.name));
    const Recipe recipe = short_recipe(subject);
    Session session(recipe, plugins(), {});
    Generator generator(session);
    const std::vector<TextRequest> wanted = requests();
    const std::vector<GeneratedTokens> together = generated(generator, wanted);
    REQUIRE(together.size() == wanted.size());
    size_t ended = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const GeneratedTokens alone = generated(generator, std::span(wanted).subspan(i, 1)).at(0);
      CHECK(together[i].ids == alone.ids);
      CHECK(together[i].ended == alone.ended);
      ended += alone.ended;
    }
    CHECK(ended > 0);
    CHECK(ended < wanted.size());
  }
}
