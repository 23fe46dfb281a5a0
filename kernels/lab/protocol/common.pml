// What the models share. SIZES is a condition on what a model's init chooses; one search walks every
// choice that meets it. A fault is put in by a macro of its name, and FAULT beside it;
// deploy/ci/protocol_check.py says what each does.

#ifndef SIZES
#define SIZES true
#endif
#define SLOTS 4

inline choose_sizes() {
  select(stages : 1 .. SLOTS);
  select(k_tiles : 0 .. 2 * stages + 1)
}

// Both are the parenthesised arguments of a printf. A breach is the last line of a trace.
#define SAY_IF(condition, what) \
  if \
  :: (condition) -> printf what \
  :: else \
  fi
#define RULE(condition, breach) \
  if \
  :: (condition) \
  :: else -> printf breach; assert(false) \
  fi
