// The output of `mtrain verify layouts`: a line for each layout, the summary, and the certificate.
// Stateless functions; safe from any thread.
#pragma once
#include <string>
#include <vector>

#include "mtrain/verify/layouts.h"

namespace mtrain {

/// The header of the table, and one line of it: result, fraction of the bound, differences,
/// seconds, layout; a problem follows on the next line.
MT_API std::string verify_table_head();
MT_API std::string verify_table_line(const LayoutVerdict& verdict);
/// The numbers of layouts that are equal, differ or were refused, with reasons; names the simplest
/// one that differs.
MT_API std::string verify_summary(const LayoutList& list,
                                  const std::vector<LayoutVerdict>& verdicts);
/// JSON with all inputs and results of the comparison, so that others can check or repeat it.
MT_API std::string verify_certificate(const Recipe& recipe, const LayoutVerifier& verifier,
                                      const VerifyOptions& options,
                                      const std::vector<LayoutVerdict>& verdicts);

}  // namespace mtrain
