// The ring of kernels/cuda/device/pipeline.cuh, as RunPipeline walks it: a block of two threads that
// are producer and consumer both, a copy engine, S slots, k_tiles steps.
//
// Each thread copies its share of a panel, here a half, and reads all of it. Copies land when they
// like; cp_async_wait_group returns when all of a thread's own groups but the newest have landed. Behind
// the block barrier of a step the panel has landed for both threads, and nobody reads the slot of the
// step before. With S = 1 a second barrier stands before the refill.
#include "common.pml"

#define NONE 255  // no step
#define THREADS 2

byte panel[THREADS * SLOTS] = NONE;   // the step that each half of each slot holds
byte flying[THREADS * SLOTS] = NONE;  // the step that is on its way there

// By thread: past the last step whose read has begun, and ended.
byte begun[THREADS], ended[THREADS];

// __syncthreads
byte at_barrier;
bit generation;

inline block_barrier() {
  d_step {
    printf("thread %d    arrives at the block's barrier\n", t);
    mine = generation;
    at_barrier++;
    if
    :: at_barrier == THREADS ->
      at_barrier = 0;
      generation = 1 - generation;
      printf("barrier     lets both threads go on\n")
    :: else
    fi
  };
  d_step {
    generation != mine ->
    mine = 0
  }
}

// Group g, counted from 0, holds the copies of step g.
#define LANDED(slot, leaving) \
  (flying[THREADS * slot + t] == NONE || flying[THREADS * slot + t] + leaving >= groups)
inline wait_group(leaving) {
  d_step {
    LANDED(0, (leaving)) && LANDED(1, (leaving)) && LANDED(2, (leaving)) && LANDED(3, (leaving)) ->
    printf("thread %d    passes wait_group<%d>, of %d groups\n", t, leaving, groups)
  }
}

inline produce(load) {
#ifndef NO_BARRIER_BEFORE_REFILL
  if
  :: stages == 1 -> block_barrier()
  :: else
  fi;
#endif
  d_step {
    if
    :: load < k_tiles ->
      printf("thread %d    issues its half of step %d into slot %d\n", t, load, fill);
      RULE(flying[THREADS * fill + t] == NONE,
           ("breach      a copy into the same half is in flight\n"));
      flying[THREADS * fill + t] = load;
      groups++
    :: else
#ifndef NO_EMPTY_GROUPS
      -> groups++
#endif
    fi;
    fill = (fill + 1) % stages
  }
}

// What a read finds when it begins stays until it ends, by check_overwrite.
inline compute() {
  d_step {
    printf("thread %d    begins to read step %d in slot %d\n", t, step, slot);
    begun[t] = step + 1;
    RULE(panel[THREADS * slot] == step && panel[THREADS * slot + 1] == step,
         ("breach      slot %d does not hold all of step %d\n", slot, step))
  };
  d_step {
    printf("thread %d    ends its read of step %d in slot %d\n", t, step, slot);
    ended[t] = step + 1
  }
}

proctype Thread(byte stages, k_tiles, t) {
  byte step, fill, slot, groups;
  byte lead = (stages == 1 -> 1 : stages - 1);
#ifdef WAIT_LEAVES_ONE_MORE
  byte leaving = (stages == 1 -> 1 : stages - 1);
#else
  byte leaving = (stages == 1 -> 0 : stages - 2);
#endif
  bit mine;

  do
  :: step < lead ->
    produce(step);
    step++
  :: else -> break
  od;
  step = 0;
  do
  :: step < k_tiles ->
#if defined(NO_BARRIER)
    wait_group(leaving);
#elif defined(BARRIER_BEFORE_WAIT)
    block_barrier();
    wait_group(leaving);
#elif defined(REFILL_BEFORE_BARRIER)
    wait_group(leaving);
    if
    :: stages > 1 -> produce(step + lead)
    :: else
    fi;
    block_barrier();
#else
    wait_group(leaving);
    block_barrier();
#endif
#ifndef REFILL_BEFORE_BARRIER
    if
    :: stages > 1 -> produce(step + lead)
    :: else
    fi;
#endif
    compute();
    slot = (slot + 1) % stages;
    if
    :: stages == 1 -> produce(step + 1)
    :: else
    fi;
    step++
  :: else -> break
  od;
#ifdef NO_DRAIN
  skip;
#else
  wait_group(0);
  block_barrier();
#endif
  d_step {
    printf("thread %d    is through\n", t);
    RULE(ended[0] == k_tiles && ended[1] == k_tiles,
         ("breach      a thread has steps to read, and the ring's memory is given up\n"));
    slot = 0;
    do
    :: slot < THREADS * stages ->
      RULE(flying[slot] == NONE, ("breach      a copy is in flight, and the ring's memory is given up\n"));
      slot++
    :: else -> break
    od
  }
}

// The step that the slot held has been read by the thread.
inline check_overwrite(thread) {
  if
  :: step >= stages ->
    RULE(begun[thread] > step - stages,
         ("breach      thread %d has still to read step %d there\n", thread, step - stages));
    RULE(ended[thread] > step - stages,
         ("breach      thread %d still reads step %d there\n", thread, step - stages))
  :: else
  fi
}

// Of one thread's half of one slot.
proctype CopyEngine(byte stages, k_tiles, slot, half) {
  byte step;

end:
  do
  :: d_step {
      flying[THREADS * slot + half] != NONE ->
      step = flying[THREADS * slot + half];
      printf("copy engine lands thread %d's half of step %d in slot %d\n", half, step, slot);
      flying[THREADS * slot + half] = NONE;
      panel[THREADS * slot + half] = step;
      RULE(step < k_tiles, ("breach      there is no step %d\n", step));
      check_overwrite(0);
      check_overwrite(1);
      step = 0
    }
  od
}

init {
  byte stages, k_tiles, slot;

  choose_sizes();
  if
  :: SIZES ->
    atomic {
      do
      :: slot < stages ->
        run CopyEngine(stages, k_tiles, slot, 1);
        run CopyEngine(stages, k_tiles, slot, 0);
        slot++
      :: else -> break
      od;
      run Thread(stages, k_tiles, 1);
      run Thread(stages, k_tiles, 0)
    }
  :: else
  fi
}
