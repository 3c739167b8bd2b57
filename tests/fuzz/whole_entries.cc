// Entries that take a whole recipe, with the settings of the plugins that are built, and a whole
// folder of Hugging Face's layout.
#include <unistd.h>

#include <fstream>

#include "built_plugins.h"
#include "mtrain/base/error.h"
#include "mtrain/chat/chat_template.h"
#include "mtrain/chat/template_file.h"
#include "mtrain/checkpoint/hf_dir.h"
#include "mtrain/recipe/hf_config.h"
#include "mtrain/recipe/hf_tensors.h"
#include "mtrain/recipe/recipe.h"
#include "mtrain/train/peft_adapter.h"
#include "tests/fuzz/entries.h"
#include "tests/fuzz/want.h"

namespace mtrain::fuzz {
namespace {

const PluginHost& plugins() {
  static const PluginHost kHost = testing::built_plugins();
  return kHost;
}

/// Runs what may end with an error that is the input's.
template <class Act>
void input_fault_only(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    want(error.error_class() != ErrorClass::bug, cat("a defect: ", error.message()));
    want(!error.message().empty(), "an error has words");
  }
}

constexpr std::string_view kBetween = "\n=====\n";

/// Files that the text gives: a name in the first line, then the content. Names that lead elsewhere
/// are left out.
void write_files(std::string_view text, const fs::path& folder) {
  while (!text.empty()) {
    size_t end = std::min(text.find(kBetween), text.size());
    std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + kBetween.size()));
    size_t line = std::min(part.find('\n'), part.size());
    std::string name(part.substr(0, line));
    bool plain = !name.empty() && name.size() < 100 && name.find('/') == std::string::npos &&
                 name.find('\0') == std::string::npos && name[0] != '.';
    if (plain)
      std::ofstream(folder / name, std::ios::binary)
          << part.substr(std::min(part.size(), line + 1));
  }
}

}  // namespace

void recipe(std::string_view text) {
  RecipeRequest request{.recipe = "fuzz.yaml",
                        .text = std::string(text),
                        .directory = {},
                        .overrides = {},
                        .cluster = {}};
  input_fault_only([&] {
    Recipe read = read_recipe(request, plugins());
    want(!read.report.text().empty() || read.report.diagnostics().empty(), "a fault has words");
    read.report.json();
    if (!read.report.ok()) return;
    request.text = read.config.to_yaml();
    Recipe again = read_recipe(request, plugins());
    want(again.report.ok(), "a resolved recipe is right: " + again.report.text());
    want(again.config.to_yaml() == *request.text, "a resolved recipe resolves to itself");
  });
}

void hf_folder(std::string_view text) {
  const fs::path folder = fs::temp_directory_path() / cat("mtrain-fuzz-hf-", ::getpid());
  fs::create_directories(folder);
  write_files(text, folder);
  static const SchemaCatalog kCatalog = schema_catalog(plugins());
  input_fault_only([&] {
    HfDir source(folder);
    for (const TensorInfo* tensor : source.tensors())
      want(source.find(tensor->name) == tensor, "a tensor is found by its name");
  });
  input_fault_only([&] {
    HfDir source(folder);
    static const HfFamilies kFamilies = HfFamilies::read(plugins().folders());
    HfTarget target{.families = kFamilies,
                    .plugin = "llama",
                    .schemas = {kCatalog.section("model")},
                    .schema_of = model_schemas(kCatalog)};
    if (const Schema* llama = kCatalog.component("model", "llama")) target.schemas.push_back(llama);
    read_hf_config(source.config_text(), "config.json", target);
  });
  input_fault_only([&] {
    chat::TemplateFile file = chat::read_template(folder);
    chat::ChatInput input;
    input.special = file.special;
    chat::ChatTemplate(file.source, file.name).render(input);
  });
  fs::remove_all(folder);
}

void peft_folder(std::string_view text) {
  const fs::path folder = fs::temp_directory_path() / cat("mtrain-fuzz-peft-", ::getpid());
  fs::create_directories(folder);
  write_files(text, folder);
  input_fault_only([&] {
    const PeftAdapter adapter = read_peft_folder(folder);
    for (const PeftModule& m : adapter.modules) {
      want(static_cast<int64_t>(m.a.size()) == m.rank * m.in, "a has its shape");
      want(static_cast<int64_t>(m.b.size()) == m.out * m.rank, "b has its shape");
      want(m.scale > 0, "a factor is positive");
      constexpr int64_t kMost = 1 << 20;
      if (m.out * m.in > kMost) continue;
      std::vector<float> weight(static_cast<size_t>(m.out * m.in));
      add_product(m, weight);
    }
  });
  fs::remove_all(folder);
}

void hf_family(std::string_view text) {
  const fs::path folder = fs::temp_directory_path() / cat("mtrain-fuzz-family-", ::getpid()),
                 file = folder / "llama.yaml";
  fs::create_directories(folder);
  std::ofstream(file, std::ios::binary) << text;
  static const SchemaCatalog kCatalog = schema_catalog(plugins());
  input_fault_only([&] {
    Report report;
    const auto family = read_hf_family(file, "llama", report);
    want(family.has_value() == report.ok(), "a family is read, or its faults are named");
    want(report.ok() || !report.text().empty(), "a fault has words");
    const Schema* llama = kCatalog.component("model", "llama");
    if (!family || !llama) return;
    const Node section = Node::map();
    const HfModel model(section, *llama);
    for (const HfTensor& tensor : hf_tensors(*family, model))
      hf_placement(tensor, model.heads(),
                   std::vector<Shape>(tensor.parameters.size(), Shape{4096, 64}));
  });
  fs::remove_all(folder);
}

}  // namespace mtrain::fuzz
