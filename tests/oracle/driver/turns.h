// Threads that act one after the other, as a program says.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

// A thread that does what it is told and tells when it is done.
class Actor {
  std::mutex lock;
  std::condition_variable changed;
  std::function<void()> task;
  bool is_over = false;
  std::thread thread{[this] { run(); }};

  void run() {
    std::unique_lock held(lock);
    while (true) {
      changed.wait(held, [this] { return task || is_over; });
      if (!task) return;
      task();
      task = nullptr;
      changed.notify_all();
    }
  }

 public:
  ~Actor() {
    {
      std::lock_guard held(lock);
      is_over = true;
    }
    changed.notify_all();
    thread.join();
  }

  void act(std::function<void()> action) {
    std::unique_lock held(lock);
    task = std::move(action);
    changed.notify_all();
    changed.wait(held, [this] { return !task; });
  }
};

class Turns {
  std::map<int64_t, std::unique_ptr<Actor>> actors;

 public:
  // Does something on the thread with a number; 0 is the caller's.
  void on(int64_t thread, const std::function<void()>& action) {
    if (thread == 0) return action();
    auto& actor = actors[thread];
    if (!actor) actor = std::make_unique<Actor>();
    actor->act(action);
  }
};
