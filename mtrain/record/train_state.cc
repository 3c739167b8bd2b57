#include "mtrain/record/train_state.h"

#include <nlohmann/json.hpp>

#include "mtrain/base/error.h"

namespace mtrain {

using nlohmann::json;

std::string to_json(const CheckpointMeta& m) {
  const TrainState& s = m.state;
  json state{{"step", s.step},
             {"consumed_samples", s.consumed_samples},
             {"consumed_tokens", s.consumed_tokens},
             {"updates", s.updates},
             {"loss_scale", s.loss_scale},
             {"good_steps", s.good_steps},
             {"bad_steps", s.bad_steps}};
  if (s.skips > 0) state["skips"] = s.skips;  // otherwise digests equal those of older versions
  if (s.validation_due) state["validation_due"] = true;
  if (const auto& v = s.validations; v.last >= 0)
    state["validations"] = {{"last", v.last},           {"best_loss", v.best_loss},
                            {"best_step", v.best_step}, {"waited", v.waited},
                            {"kept_loss", v.kept_loss}, {"kept_step", v.kept_step},
                            {"samples", v.samples}};
  json out{{"state", std::move(state)},
           {"rng", {{"algorithm", "philox4x32-10"}, {"seed", s.seed}, {"step", s.step}}},
           {"config", m.config},
           {"name", m.name},
           {"directory", m.directory},
           {"data", m.data},
           {"order", m.order},
           {"tokenizer", m.tokenizer},
           {"version", m.version},
           {"run", json::parse(m.saved.empty() ? "{}" : m.saved)}};
  if (!m.base.empty()) out["base"] = m.base;
  if (!m.reference.empty()) out["reference"] = m.reference;
  return out.dump();
}

CheckpointMeta meta_from_json(const std::string& text, const std::string& where) {
  try {
    json j = json::parse(text);
    CheckpointMeta m;
    const json& s = j.at("state");
    m.state.step = s.at("step").get<int64_t>();
    m.state.consumed_samples = s.at("consumed_samples").get<int64_t>();
    m.state.consumed_tokens = s.at("consumed_tokens").get<int64_t>();
    m.state.updates = s.at("updates").get<int64_t>();
    m.state.loss_scale = s.at("loss_scale").get<double>();
    m.state.good_steps = s.at("good_steps").get<int64_t>();
    m.state.bad_steps = s.value("bad_steps", int64_t{0});
    m.state.skips = s.value("skips", int64_t{0});
    m.state.validation_due = s.value("validation_due", false);
    if (s.contains("validations")) {
      const json& v = s["validations"];
      m.state.validations = {.last = v.at("last").get<int64_t>(),
                             .best_loss = v.at("best_loss").get<double>(),
                             .best_step = v.at("best_step").get<int64_t>(),
                             .waited = v.at("waited").get<int64_t>(),
                             .kept_loss = v.at("kept_loss").get<double>(),
                             .kept_step = v.at("kept_step").get<int64_t>(),
                             .samples = v.at("samples").get<std::string>()};
    }
    m.state.seed = j.at("rng").at("seed").get<uint64_t>();
    m.config = j.at("config").get<std::string>();
    m.name = j.at("name").get<std::string>();
    m.directory = j.at("directory").get<std::string>();
    m.data = j.at("data").get<std::string>();
    m.order = j.value("order", "");
    m.tokenizer = j.at("tokenizer").get<std::string>();
    m.base = j.value("base", "");
    m.reference = j.value("reference", "");
    m.version = j.at("version").get<std::string>();
    m.saved = j.contains("run") ? j.at("run").dump() : "{}";
    return m;
  } catch (const json::exception& e) {
    throw Error(
        ErrorClass::checkpoint, cat(where, " has no usable metadata of a run: ", e.what()),
        "it was not written by `mtrain train`; to load only its weights, use model.init_from");
  }
}

}  // namespace mtrain
