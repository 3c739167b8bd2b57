// What a run's checkpoint recorded besides its weights and its recipe: the chat template and the
// tokenizer of the training, for exports and chats. Stateless functions; safe from any thread.
#pragma once
#include <ctime>
#include <optional>
#include <string>

#include "mtrain/chat/template_file.h"
#include "mtrain/data/tokenizer.h"
#include "mtrain/finetune/sft_data.h"
#include "mtrain/recipe/saved_run.h"
#include "mtrain/train/hf_run_export.h"

namespace mtrain {

/// The time of now, for templates that write it.
std::tm local_time();
/// The settings of a dataset of records that may be conversations; nothing for other datasets.
std::optional<finetune::RecordSettings> record_settings(const Recipe& recipe);
/// The chat template with which the run was trained, as its checkpoint recorded it. For checkpoints
/// of older versions, the one that its settings name, by name or as a file. Nothing where it uses
/// the tokenizer's or none.
std::optional<chat::TemplateFile> template_of_run(const SavedRun& run, const Tokenizer& tokenizer);
/// The chat template in a folder of adapters, where trainers save the one that they used; nothing
/// where it has none. `run`: what the adapters are added to. Throws Error for a faulty template.
std::optional<chat::TemplateFile> template_of_adapters(const fs::path& folder, const SavedRun& run,
                                                       const Tokenizer& tokenizer);

/// Options for an export of the run, with its chat template and the identity of its tokenizer.
HfRunOptions export_options(const SavedRun& run);

}  // namespace mtrain
