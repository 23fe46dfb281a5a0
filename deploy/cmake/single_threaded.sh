#!/bin/sh
# single_threaded.sh NM PROGRAM: fails where the program itself can start a thread.
calls=$("$1" -D --undefined-only "$2") || exit 1
if printf '%s\n' "$calls" | grep -E 'pthread_create|_M_start_thread|_ZNK?4grpc'; then
  echo "$2 can start a thread: it is not SINGLE_THREADED, and the thread sanitizer must see it" >&2
  exit 1
fi
