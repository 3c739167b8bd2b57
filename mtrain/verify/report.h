// What `mtrain verify layouts` shows and writes: a line for each layout, the summary, and the
// certificate. Stateless.
#pragma once
#include <string>
#include <vector>

#include "mtrain/verify/layouts.h"

namespace mtrain {

/// The head of the table, and a line of it: result, share of the bound, differences, seconds,
/// layout; a problem below it.
MT_API std::string verify_table_head();
MT_API std::string verify_table_line(const LayoutVerdict& verdict);
/// How many layouts are the same, differ, were refused and by what; the simplest one that differs.
MT_API std::string verify_summary(const LayoutList& list,
                                  const std::vector<LayoutVerdict>& verdicts);
/// What was compared with what, so that others can judge it or do it again; JSON.
MT_API std::string verify_certificate(const Recipe& recipe, const LayoutVerifier& verifier,
                                      const VerifyOptions& options,
                                      const std::vector<LayoutVerdict>& verdicts);

}  // namespace mtrain
