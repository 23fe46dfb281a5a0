#include "kernels/core/signals.h"

#include <csignal>
#include <thread>

#include <gtest/gtest.h>

namespace gemmd {
namespace {

using std::chrono::milliseconds;

auto HandlerOf(int number) {
  struct sigaction action {};
  sigaction(number, nullptr, &action);
  return action.sa_handler;
}

TEST(SignalsTest, EachIsTakenByItsNumberInTurn) {
  const Signals signals(Signals::Take::kAll);
  EXPECT_EQ(signals.Wait(milliseconds(0)), 0);
  for (const int number : {SIGTERM, SIGINT, SIGTERM}) std::raise(number);
  for (const int number : {SIGTERM, SIGINT, SIGTERM}) {
    EXPECT_EQ(signals.Wait(Signals::kForever), number);
  }
  EXPECT_EQ(signals.Wait(milliseconds(0)), 0);
}

TEST(SignalsTest, TheSecondOfAKindIsTheProcesssWhereTheFirstIsTaken) {
  const Signals signals(Signals::Take::kFirst);
  std::raise(SIGINT);
  EXPECT_EQ(signals.Wait(Signals::kForever), SIGINT);
  EXPECT_EQ(HandlerOf(SIGINT), SIG_DFL);
  EXPECT_NE(HandlerOf(SIGTERM), SIG_DFL);
}

TEST(SignalsTest, WhatIsIgnoredStaysSoWhereTheFirstIsTaken) {
  std::signal(SIGINT, SIG_IGN);
  {
    const Signals signals(Signals::Take::kFirst);
    EXPECT_EQ(HandlerOf(SIGINT), SIG_IGN);
  }
  {
    const Signals signals(Signals::Take::kAll);
    EXPECT_NE(HandlerOf(SIGINT), SIG_IGN);
  }
  EXPECT_EQ(HandlerOf(SIGINT), SIG_IGN);
  std::signal(SIGINT, SIG_DFL);
}

TEST(SignalsTest, AHangUpThatIsIgnoredStaysSo) {  // nohup
  std::signal(SIGHUP, SIG_IGN);
  {
    const Signals signals(Signals::Take::kAll);
    EXPECT_EQ(HandlerOf(SIGHUP), SIG_IGN);
  }
  std::signal(SIGHUP, SIG_DFL);
  const Signals signals(Signals::Take::kAll);
  std::raise(SIGHUP);
  EXPECT_EQ(signals.Wait(Signals::kForever), SIGHUP);
}

TEST(SignalsTest, TheNextHearsNothingOfThoseBefore) {
  {
    const Signals signals(Signals::Take::kAll);
    std::raise(SIGINT);
  }
  const Signals signals(Signals::Take::kAll);
  EXPECT_EQ(signals.Wait(milliseconds(0)), 0);
}

TEST(SignalsTest, AWaitEndsByAWake) {
  const Signals signals(Signals::Take::kAll);
  int number = -1;
  std::thread waits([&] { number = signals.Wait(Signals::kForever); });
  signals.Wake();
  waits.join();
  EXPECT_EQ(number, 0);
}

}  // namespace
}  // namespace gemmd
