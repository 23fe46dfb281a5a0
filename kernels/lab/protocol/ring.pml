// The ring of kernels/cuda/device/tma_pipeline.cuh, as gemm_tma_wgmma.cuh walks it: one producer, two
// consumers of a warp each, a copy engine, S slots, tiles of k_tiles steps.
//
// full, empty and turn are mbarriers: a phase ends when all its arrivals and bytes are in, and a wait
// tells phases apart by parity alone, so that it passes, too, while the phase before the one that is
// meant is still under way. A panel has two halves, A's and B's. They land when they like: those of one
// half of one slot in the order of their issue, others in any. A read begins and ends, and its slot is
// released behind the end: with S > 1 one step late, under the next step's read, as
// wgmma_wait_group<1> has it.
//
// Both ways to share the tiles are walked: consumers that read every step, and ping-pong (in_turn),
// where tiles are taken in turn (TmaTurns) and a slot has one consumer. Left out: pairs of blocks, and
// what README.md lists.
//
// A tile without steps releases nothing here. The kernel's would release a slot that it never had; the
// host launches none with k_tiles = 0.
#include "common.pml"

#define TILES 4  // each of two consumers in turn has a second one
#define NONE 255  // no step

// Arrivals or bytes too many leave pending or bytes below 0, and the phase does not end.
typedef Barrier {
  byte count;     // arrivals of a phase
  short pending;  // of those, still to come
  short bytes;    // still to come, in halves of a panel
  bit phase
};
Barrier full_bar[SLOTS], empty_bar[SLOTS], turn_bar[2];

byte panel[2 * SLOTS] = NONE;              // the step that each half of each slot holds
chan flying[2 * SLOTS] = [3] of { byte };  // steps, issued and not landed

// By consumer. The first two are past the last step whose read has begun, and ended.
byte begun[2], ended[2], reads[2];
byte done;  // of the producer and the consumers, how many

inline init_barrier(barrier, arrivals) {
  barrier.count = arrivals;
  barrier.pending = arrivals
}
inline complete_if_all_in(barrier) {
  if
  :: barrier.pending == 0 && barrier.bytes == 0 ->
    barrier.phase = 1 - barrier.phase;
    barrier.pending = barrier.count
  :: else
  fi
}
inline arrive(barrier) {
  barrier.pending--;
  complete_if_all_in(barrier)
}
inline arrive_expect_tx(barrier, halves) {
  barrier.bytes = barrier.bytes + halves;
  arrive(barrier)
}
inline complete_tx(barrier) {
  barrier.bytes--;
  complete_if_all_in(barrier)
}
#define PASSES(barrier, parity) (barrier.phase != parity)
#define QUIET(barrier) (barrier.pending == barrier.count && barrier.bytes == 0)

// RingState
inline advance() {
  slot++;
  if
  :: slot == stages ->
    slot = 0;
    phase = 1 - phase
  :: else
  fi
}
inline skip_steps(steps) {
  phase = phase ^ (((slot + steps) / stages) & 1);
  slot = (slot + steps) % stages
}

// Sizes are parameters, not globals: a step that reads no global is taken at once, in no order with
// the others' steps.
proctype Producer(byte stages, steps) {
  byte step, slot;
  bit phase;

  do
  :: step < steps ->
#ifndef NO_REUSE_EDGE
    d_step {
      PASSES(empty_bar[slot], 1 - phase) ->
      printf("producer    finds empty[%d] past parity %d: the slot is free\n", slot, 1 - phase)
    };
#endif
    d_step {
      nfull(flying[2 * slot]) && nfull(flying[2 * slot + 1]) ->
      printf("producer    issues the copy of step %d into slot %d\n", step, slot);
#ifdef ISSUE_IS_COMPLETION
      arrive(full_bar[slot]);
      SAY_IF(QUIET(full_bar[slot]), ("full[%d]     ends a phase\n", slot));
#else
      arrive_expect_tx(full_bar[slot], 2);
#endif
      flying[2 * slot]!step;
      flying[2 * slot + 1]!step;
      step++;
      advance()
    }
  :: else -> break
  od;
  done++
}

// The step that the slot held has been read by the consumer, if it had to.
inline check_overwrite(consumer) {
  if
  :: step >= stages && (!in_turn || (step - stages) / k_tiles % 2 == consumer) ->
    RULE(begun[consumer] > step - stages,
         ("breach      consumer %d has still to read step %d there\n", consumer, step - stages));
    RULE(ended[consumer] > step - stages,
         ("breach      consumer %d still reads step %d there\n", consumer, step - stages))
  :: else
  fi
}

// Of one half of one slot.
proctype CopyEngine(byte stages, k_tiles; bit in_turn; byte slot, half) {
  byte step;

end:
  do
  :: d_step {
      flying[2 * slot + half]?step ->
      printf("copy engine lands half %c of step %d in slot %d\n", 'A' + half, step, slot);
      panel[2 * slot + half] = step;
      check_overwrite(0);
      check_overwrite(1);
#ifndef ISSUE_IS_COMPLETION
      complete_tx(full_bar[slot]);
      SAY_IF(QUIET(full_bar[slot]), ("full[%d]     ends a phase\n", slot));
#endif
      step = 0
    }
  od
}

// What a read finds when it begins stays until it ends, by check_overwrite.
inline begin_read() {
  d_step {
#ifdef NO_READY_EDGE
    printf("consumer %d  begins to read step %d in slot %d\n", c, step, slot);
#else
    PASSES(full_bar[slot], phase) ->
    printf("consumer %d  finds full[%d] past parity %d: begins to read step %d\n", c, slot, phase, step);
#endif
    begun[c] = step + 1;
    RULE(panel[2 * slot] == step && panel[2 * slot + 1] == step,
         ("breach      slot %d does not hold all of step %d\n", slot, step))
  }
}
inline end_read(from, read) {
  d_step {
    printf("consumer %d  ends its read of step %d in slot %d\n", c, read, from);
    ended[c] = read + 1;
    reads[c]++
  }
}
inline release(from) {
  d_step {
    printf("consumer %d  releases slot %d\n", c, from);
    arrive(empty_bar[from]);
    SAY_IF(QUIET(empty_bar[from]), ("empty[%d]    ends a phase\n", from))
  }
}
inline end_and_release(from, read) {
#ifdef RELEASE_BEFORE_READ
  release(from);
  end_read(from, read)
#else
  end_read(from, read);
  release(from)
#endif
}

proctype Consumer(byte stages, k_tiles, tiles; bit in_turn; byte c) {
  byte tile = (in_turn -> c : 0), step = (in_turn -> c * k_tiles : 0), last, slot, previous;
  bit phase, turn_phase = (c == 0);
#ifdef LATE_RELEASE
  bit single = 0;
#else
  bit single = (stages == 1);
#endif

  skip_steps(step);
  do
  :: tile < tiles ->
#ifndef NO_TURNS
    if
    :: in_turn ->
      d_step {
        PASSES(turn_bar[c], turn_phase) ->
        printf("consumer %d  has its turn, for tile %d\n", c, tile);
        turn_phase = 1 - turn_phase
      }
    :: else
    fi;
#endif
    last = step + k_tiles;
    do
    :: step < last ->
      begin_read();
      if
      :: single -> end_and_release(slot, step)
      :: !single && step > last - k_tiles -> end_and_release(previous, step - 1)
      :: else
      fi;
      d_step {
        previous = slot;
        step++;
        advance()
      }
    :: else -> break
    od;
#ifndef NO_TURNS
    if
    :: in_turn ->
      d_step {
        printf("consumer %d  passes the turn\n", c);
        arrive(turn_bar[1 - c])
      }
    :: else
    fi;
#endif
    if
    :: !single && k_tiles > 0 -> end_and_release(previous, step - 1)
    :: else
    fi;
    d_step {
      if
      :: in_turn ->
        tile = tile + 2;
        step = step + k_tiles;
        skip_steps(k_tiles)
      :: else -> tile++
      fi;
#ifdef PHASE_PER_TILE
      phase = 0;
#endif
    }
  :: else -> break
  od;
  done++
}

inline check_end() {
  RULE((in_turn -> reads[0] + reads[1] == tiles * k_tiles
                 : reads[0] == tiles * k_tiles && reads[1] == tiles * k_tiles),
       ("breach      the consumers have not read every step once\n"));
#ifndef FAULT  // which goes on past the barriers, to what becomes of a panel
  do
  :: slot < stages ->
    RULE(QUIET(full_bar[slot]) && QUIET(empty_bar[slot]) &&
             full_bar[slot].phase == empty_bar[slot].phase,
         ("breach      the barriers of slot %d are not quiet at the end\n", slot));
    slot++
  :: else -> break
  od;
  slot = 0
#endif
}

init {
  byte stages, k_tiles, tiles, slot;
  bit in_turn;

  choose_sizes();
  select(tiles : 1 .. TILES);
  select(in_turn : 0 .. 1);
  if
  :: SIZES ->
    atomic {
      do
      :: slot < stages ->
        init_barrier(full_bar[slot], 1);
#ifdef ONE_RELEASES
        init_barrier(empty_bar[slot], 1);
#else
        init_barrier(empty_bar[slot], (in_turn -> 1 : 2));
#endif
        run CopyEngine(stages, k_tiles, in_turn, slot, 1);
        run CopyEngine(stages, k_tiles, in_turn, slot, 0);
        slot++
      :: else -> break
      od;
      init_barrier(turn_bar[0], 1);
      init_barrier(turn_bar[1], 1);
      run Consumer(stages, k_tiles, tiles, in_turn, 1);
      run Consumer(stages, k_tiles, tiles, in_turn, 0);
      run Producer(stages, tiles * k_tiles)
    };
    d_step {
      done == 3 ->
      slot = 0;
      check_end()
    }
  :: else
  fi
}
