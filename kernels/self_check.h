// Proves, before a server takes requests, that every kernel it may choose multiplies correctly on
// this device: a wrong driver, a wrong BLAS or a wrong build must not serve.
#pragma once

#include "kernels/backend.h"
#include "kernels/core/status.h"

namespace gemmd {

// Runs every usable row of the table, at one and at the most stages, over types, transposes and an
// epilogue, on small awkward problems with fixed seeds, against ReferenceGemm. INTERNAL names the
// first mismatch. Needs an idle backend; takes well under a second.
Status SelfCheck(Backend& backend);

}  // namespace gemmd
