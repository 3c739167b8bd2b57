// mtrain adapters: lists, compares and combines low-rank adapters.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "adapter_run.h"
#include "cli.h"
#include "model_source.h"
#include "mtrain/base/counted.h"
#include "mtrain/base/error.h"
#include "mtrain/base/log.h"
#include "mtrain/base/text.h"
#include "mtrain/checkpoint/store.h"
#include "mtrain/config/scalar.h"
#include "mtrain/record/saved_step.h"
#include "mtrain/train/adapter_blend.h"

namespace mtrain {
namespace {

using Json = nlohmann::ordered_json;

/// The adapters of a run's newest checkpoint, of one of its checkpoints, or of a folder of peft.
PeftAdapter read_adapter(const std::string& from, PluginHost& plugins) {
  if (is_peft_folder(from)) return read_peft_folder(from);
  MT_USER_CHECK(is_saved_run(from), ErrorClass::checkpoint,
                cat(printable(from),
                    " is neither a run, nor a checkpoint, nor a folder with adapter_config.json"),
                "give what has the adapters");
  MT_USER_CHECK(has_adapters(from), ErrorClass::checkpoint,
                cat(printable(from), " has no adapters: its run trained all weights"),
                "give a run of peft=lora or peft=dora");
  require_base_folder(from);
  return AdapterRun({.from = from, .base = {}, .near = {}}, plugins).adapter();
}

int64_t num_values(const PeftAdapter& adapter) {
  int64_t out = 0;
  for (const PeftModule& m : adapter.modules)
    out += m.rank * (m.in + m.out) + std::ssize(m.magnitude) + std::ssize(m.gains);
  for (const PeftWhole& whole : adapter.whole) out += whole.shape.numel();
  return out;
}

Json summary(const std::string& from, const PeftAdapter& adapter) {
  return {{"adapter", from},
          {"type", type_of(adapter)},
          {"rank", adapter.ia3 ? Json() : Json(adapter.rank)},
          {"alpha", adapter.ia3 ? Json() : Json(adapter.alpha)},
          {"rslora", adapter.rslora},
          {"weights", adapter.modules.size()},
          {"trained_whole", adapter.whole.size()},
          {"parameters", num_values(adapter)},
          {"base", adapter.base}};
}

/// Nothing if it cannot be read; then the reason is added to `unread`. One alone is not caught, so
/// that its own help is shown.
std::optional<PeftAdapter> adapter_unless_faulty(const std::string& from, PluginHost& plugins,
                                                 bool alone, std::vector<std::string>& unread) {
  if (alone) return read_adapter(from, plugins);
  try {
    return read_adapter(from, plugins);
  } catch (const Error& error) {
    const bool named = error.message().find(from) != std::string::npos;
    unread.push_back(named ? error.message() : cat(printable(from), ": ", error.message()));
    return std::nullopt;
  }
}

void list_adapters(const Cli& cli, const std::vector<std::string>& from, bool json) {
  PluginHost plugins = plugin_host(cli);
  size_t width = 7;
  for (const auto& one : from) width = std::max(width, one.size());
  Json rows = Json::array();
  if (!json)
    std::cout << fmt::format("{:{}}  {:4}  {:>5}  {:>6}  {:>7}  {:>10}  {}\n", "adapter", width,
                             "type", "rank", "alpha", "weights", "parameters", "weights of");
  std::vector<std::string> unread;
  for (const auto& one : from) {
    const std::optional<PeftAdapter> read =
        adapter_unless_faulty(one, plugins, from.size() == 1, unread);
    if (!read) continue;
    const PeftAdapter& adapter = *read;
    rows.push_back(summary(one, adapter));
    if (!json)
      std::cout << fmt::format("{:{}}  {:4}  {:>5}  {:>6}  {:>7}  {:>10}  {}\n", one, width,
                               type_of(adapter), adapter.ia3 ? "-" : cat(adapter.rank),
                               adapter.ia3 ? "-" : cat(adapter.alpha), adapter.modules.size(),
                               human_count(static_cast<double>(num_values(adapter))),
                               adapter.base.empty() ? "-" : printable(adapter.base));
  }
  if (json) print_json(rows);
  MT_USER_CHECK(unread.empty(), ErrorClass::checkpoint,
                cat(unread.size(), " of ", counted(from.size(), "adapter"), " cannot be read:\n  ",
                    join(unread, "\n  ")),
                "`mtrain adapters ls` of one of them says what it lacks");
}

std::string norm_text(const std::optional<double>& norm) {
  return norm ? fmt::format("{:.4g}", *norm) : "-";
}

void compare(const Cli& cli, const std::string& a, const std::string& b, bool json) {
  PluginHost plugins = plugin_host(cli);
  const std::vector<AdapterDifference> all =
      adapter_differences(read_adapter(a, plugins), read_adapter(b, plugins));
  double square = 0, square_a = 0, square_b = 0;
  size_t differing = 0, width = 6;
  Json rows = Json::array();
  for (const AdapterDifference& d : all) {
    square += d.distance * d.distance;
    square_a += std::pow(d.norm_a.value_or(0), 2), square_b += std::pow(d.norm_b.value_or(0), 2);
    differing += d.distance > 0 || !d.norm_a || !d.norm_b;
    width = std::max(width, d.module.size());
    rows.push_back({{"module", d.module},
                    {"norm_a", d.norm_a ? Json(*d.norm_a) : Json()},
                    {"norm_b", d.norm_b ? Json(*d.norm_b) : Json()},
                    {"distance", d.distance},
                    {"relative", d.relative()}});
  }
  const double most = std::sqrt(std::max(square_a, square_b)),
               relative = most > 0 ? std::sqrt(square) / most : 0;
  if (json)
    return print_json({{"modules", rows}, {"differing", differing}, {"relative", relative}});
  if (differing > 0)
    std::cout << fmt::format("{:{}}  {:>9}  {:>9}  {:>9}\n", "weight", width, "norm a", "norm b",
                             "relative");
  for (const AdapterDifference& d : all)
    if (d.distance > 0 || !d.norm_a || !d.norm_b)
      std::cout << fmt::format("{:{}}  {:>9}  {:>9}  {:>9.3g}\n", d.module, width,
                               norm_text(d.norm_a), norm_text(d.norm_b), d.relative());
  std::cout << (differing == 0 ? std::string("no difference\n")
                               : fmt::format("{} of {} differ; relative difference of all {:.3g}\n",
                                             differing, counted(all.size(), "weight"), relative));
}

struct BlendArguments {
  std::vector<std::string> from;
  std::string weights, method = "cat", into, dtype = "fp32";
  double density = 1;
  uint64_t seed = 1;
};

constexpr std::pair<const char*, AdapterBlend> kMethods[] = {
    {"cat", AdapterBlend::cat},
    {"linear", AdapterBlend::linear},
    {"ties", AdapterBlend::ties},
    {"dare_linear", AdapterBlend::dare_linear},
    {"dare_ties", AdapterBlend::dare_ties}};

std::vector<double> weights_of(const BlendArguments& arguments) {
  std::vector<double> out;
  if (arguments.weights.empty())
    return std::vector<double>(arguments.from.size(),
                               1.0 / static_cast<double>(arguments.from.size()));
  for (const auto& text : split(arguments.weights, ',')) {
    const std::optional<double> value = parse_number(trim(text));
    MT_USER_CHECK(value && std::isfinite(*value), ErrorClass::usage,
                  cat("--weights: '", printable(std::string(text), 40), "' is not a number"),
                  "wanted numbers with commas between them: --weights 0.7,0.3");
    out.push_back(*value);
  }
  MT_USER_CHECK(out.size() == arguments.from.size(), ErrorClass::usage,
                cat("--weights has ", counted(out.size(), "number"), " for ",
                    counted(arguments.from.size(), "adapter")),
                "give one for each adapter, in their order");
  return out;
}

void blend(const Cli& cli, const BlendArguments& arguments, bool density_given) {
  const auto* method = std::ranges::find(
      kMethods, arguments.method, [](const auto& entry) { return std::string(entry.first); });
  const bool keeps_all =
      method->second == AdapterBlend::cat || method->second == AdapterBlend::linear;
  MT_USER_CHECK(!density_given || !keeps_all, ErrorClass::usage,
                cat("--density has no effect with --method ", arguments.method),
                "ties, dare_linear and dare_ties keep a part of the elements");
  MT_USER_CHECK(density_given || keeps_all, ErrorClass::usage,
                cat("--method ", arguments.method, " needs --density"),
                "the fraction of elements to keep, e.g. --density 0.5");
  PluginHost plugins = plugin_host(cli);
  std::vector<PeftAdapter> adapters;
  for (const auto& from : arguments.from) adapters.push_back(read_adapter(from, plugins));
  auto same_folder = [](const std::string& a, const std::string& b) {
    std::error_code error;  // of names that are no folders here
    return a == b || std::filesystem::equivalent(a, b, error);
  };
  for (const PeftAdapter& other : adapters)
    if (!same_folder(other.base, adapters.front().base))
      log_warn("the adapters name different weights: ", printable(adapters.front().base), " and ",
               printable(other.base), "; the result names the first");
  const PeftAdapter out = blend_adapters(adapters, {.method = method->second,
                                                    .weights = weights_of(arguments),
                                                    .density = arguments.density,
                                                    .seed = arguments.seed});
  const HfExported done = write_peft_folder(out, *dtype_from_name(arguments.dtype), arguments.into);
  if (!cli.quiet)
    std::cout << arguments.into << ": " << counted(adapters.size(), "adapter") << " as one of rank "
              << out.rank << " for " << counted(out.modules.size(), "weight") << ", "
              << human_bytes(done.bytes) << '\n';
}

void add_blend(CLI::App& parent, Cli& cli) {
  auto* command = parent.add_subcommand("merge", "combine adapters of one model into one");
  auto a = std::make_shared<BlendArguments>();
  command->add_option("from", a->from, "runs, checkpoints or folders of peft")
      ->required()
      ->type_name("RUN|DIR");
  command->add_option("--into", a->into, "the new folder of the adapter")
      ->required()
      ->type_name("DIR")
      ->check(check_output_path, "");
  command
      ->add_option("--weights", a->weights,
                   "factor of each adapter, e.g. 0.7,0.3; default: equal ones that add up to 1")
      ->type_name("NUMBERS");
  std::vector<std::string> names;
  for (const auto& [name, method] : kMethods) names.emplace_back(name);
  command
      ->add_option("--method", a->method,
                   "cat: the exact weighted sum, with the sum of the ranks; linear, ties, "
                   "dare_linear, dare_ties: those of peft, for equal ranks, on a and b separately")
      ->check(CLI::IsMember(names))
      ->capture_default_str()
      ->type_name("NAME");
  auto* density =
      command->add_option("--density", a->density, "ties, dare: fraction of the elements to keep")
          ->check(CLI::Range(1e-6, 1.0))
          ->type_name("FRACTION");
  command->add_option("--seed", a->seed, "dare: seed of the elements that are kept")
      ->check(check_count)
      ->capture_default_str();
  command->add_option("--dtype", a->dtype, "dtype of the tensors")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}))
      ->capture_default_str()
      ->type_name("TYPE");
  command->footer(
      "Examples:\n"
      "  mtrain adapters merge runs/style runs/facts --weights 0.7,0.3 --into adapters/both\n"
      "  mtrain adapters merge a b c --method ties --density 0.5 --into adapters/three");
  command->callback([&cli, a, density] { blend(cli, *a, density->count() > 0); });
}

}  // namespace

void add_adapters_command(CLI::App& app, Cli& cli) {
  auto* command = app.add_subcommand("adapters", "list, compare and combine low-rank adapters");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  mtrain adapters ls runs/lora adapters/mine\n"
      "  mtrain adapters diff runs/lora adapters/mine\n"
      "  mtrain adapters merge runs/style runs/facts --into adapters/both\n"
      "To add adapters to the weights of their model: mtrain merge");

  auto* ls = command->add_subcommand("ls", "show rank, factor and size of adapters");
  auto from = std::make_shared<std::vector<std::string>>();
  auto json = std::make_shared<bool>(false);
  ls->add_option("from", *from, "runs, checkpoints or folders of peft")
      ->required()
      ->type_name("RUN|DIR");
  ls->add_flag("--json", *json, "print as JSON");
  ls->footer("Example:\n  mtrain adapters ls runs/lora adapters/mine");
  ls->callback([&cli, from, json] { list_adapters(cli, *from, *json); });

  auto* diff = command->add_subcommand(
      "diff", "compare the changes of weights, s * b * a, of two adapters of one model");
  auto both = std::make_shared<std::pair<std::string, std::string>>();
  auto as_json = std::make_shared<bool>(false);
  diff->add_option("a", both->first, "a run, checkpoint or folder of peft")
      ->required()
      ->type_name("RUN|DIR");
  diff->add_option("b", both->second, "another one")->required()->type_name("RUN|DIR");
  diff->add_flag("--json", *as_json, "print as JSON");
  diff->footer(
      "For each weight: the Frobenius norms of both changes, and that of their difference in "
      "shares of the larger one.\n"
      "Example:\n  mtrain adapters diff runs/a runs/b");
  diff->callback([&cli, both, as_json] { compare(cli, both->first, both->second, *as_json); });
  add_blend(*command, cli);
}

}  // namespace mtrain
