// Runs programs on PyTorch's own CUDA caching allocator (libc10_cuda.so) over the stub.
//   driver <PROGRAMS   prints for each what is compared, between `program NAME` and `end NAME`
// The allocator is one a process and reads its settings once, so each program has a process of its
// own, forked before anything asked the allocator.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <unordered_map>

#include "allocator.h"
#include "program.h"
#include "report.h"
#include "turns.h"

// A program that takes longer than this hangs.
static const unsigned MOST_SECONDS = 60;

class World {
  std::unordered_map<int64_t, void*> live;
  PoolNumbers pools;
  Turns turns;
  int64_t thread = 0;
  int device = 0;

  static c10::MempoolId_t pool_id(int64_t number) { return {0, (c10::CaptureId_t)number}; }

  void allocate(int64_t id, int64_t bytes, int64_t stream) {
    std::string answer;
    try {
      void* at = allocator::raw_alloc_with_stream((size_t)bytes, stream_of(stream));
      live[id] = at;
      uint64_t offset;
      long range = stub_range((uint64_t)at, &offset);
      answer = std::to_string(range) + "+" + std::to_string(offset);
    } catch (const c10::OutOfMemoryError& error) {
      answer = "out_of_memory";
    }
    print_calls();
    printf("%ld at %s", id, answer.c_str());
    print_bytes(device);
  }

  void free(int64_t id) {
    auto found = live.find(id);
    if (found == live.end()) return; // its request failed
    allocator::raw_delete(found->second);
    live.erase(found);
  }

  // Only memory that names the allocator's own deleter is looked at.
  void record_use(int64_t id, int64_t stream) {
    auto found = live.find(id);
    if (found == live.end()) return;
    c10::Device on(c10::kCUDA, (c10::DeviceIndex)device);
    c10::DataPtr data(found->second, found->second, allocator::get()->raw_deleter(), on);
    allocator::recordStream(
        data, c10::cuda::getStreamFromExternal(stream_of(stream), (c10::DeviceIndex)device));
    data.release_context();
  }

  void make_pool(const Step& step) {
    auto id = pool_id(step.number(0));
    pools[id] = step.number(0);
    allocator::createOrIncrefPool((c10::DeviceIndex)device, id);
    for (size_t i = 1; i < step.arguments.size(); i++) {
      if (step.arguments[i] == "helps") allocator::setUseOnOOM((c10::DeviceIndex)device, id, true);
      if (step.arguments[i] == "whole") allocator::setNoSplit((c10::DeviceIndex)device, id);
    }
  }

  // As torch.cuda.use_mem_pool: for requests of this thread.
  void enter_pool(int64_t number) {
    auto self = std::this_thread::get_id();
    allocator::beginAllocateToPool(
        (c10::DeviceIndex)device, pool_id(number),
        [self](cudaStream_t) { return std::this_thread::get_id() == self; });
  }
  void leave_pool(int64_t number) {
    allocator::endAllocateToPool((c10::DeviceIndex)device, pool_id(number));
    allocator::releasePool((c10::DeviceIndex)device, pool_id(number));
  }
  // As the end of a torch.cuda.MemPool.
  void drop_pool(int64_t number) {
    allocator::releasePool((c10::DeviceIndex)device, pool_id(number));
    allocator::emptyCache(pool_id(number));
  }

  void act(const Step& step) {
    const std::string& word = step.word;
    cudaSetDevice(device);
    if (word == "allocate") allocate(step.number(0), step.number(1), step.number(2));
    else if (word == "free") free(step.number(0));
    else if (word == "use") record_use(step.number(0), step.number(1));
    else if (word == "work") stub_work((int)step.number(0), (uint64_t)step.number(1));
    else if (word == "finish") stub_finish((int)step.number(0), step.number(1));
    else if (word == "synchronize") cudaDeviceSynchronize();
    else if (word == "empty") allocator::emptyCache();
    else if (word == "settings") c10::CachingAllocator::setAllocatorSettings(step.rest);
    else if (word == "fraction")
      allocator::setMemoryFraction(std::stod(step.arguments.at(0)), (c10::DeviceIndex)device);
    else if (word == "reset_peaks") allocator::resetPeakStats((c10::DeviceIndex)device);
    else if (word == "reset_sums") allocator::resetAccumulatedStats((c10::DeviceIndex)device);
    else if (word == "refuse")
      stub_refuse(step.arguments.at(0) == "create" ? 'c' : 'a', (uint64_t)step.number(1));
    else if (word == "pool") make_pool(step);
    else if (word == "enter") enter_pool(step.number(0));
    else if (word == "leave") leave_pool(step.number(0));
    else if (word == "drop") drop_pool(step.number(0));
    else throw std::invalid_argument("no step: " + word);
    print_calls();
  }

 public:
  void run(const Program& program) {
    for (const Step& step : program.steps) {
      if (step.word == "device") device = (int)step.number(0);
      else if (step.word == "thread") thread = step.number(0);
      else turns.on(thread, [&] { act(step); });
    }
    for (int each = 0; each < program.devices; each++) {
      printf("device %d\n", each);
      print_statistics(each);
      print_layout(each, pools);
    }
  }
};

static void begin(const Program& program) {
  stub_configure(program.devices, program.capacity_bytes);
  setenv("PYTORCH_CUDA_ALLOC_CONF", program.settings.c_str(), 1);
  make_ready(program.devices);
}

static void print_error(const std::string& text) {
  printf("error %s\n", text.substr(0, text.find('\n')).c_str());
}

// What a program throws ends it.
static int run(const Program& program) {
  alarm(MOST_SECONDS);
  try {
    begin(program);
    World().run(program);
  } catch (const c10::Error& error) {
    print_error(error.what_without_backtrace());
  } catch (const std::exception& error) {
    print_error(error.what());
  }
  fflush(stdout);
  return 0;
}

static void run_all(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    printf("program %s\n", program.name.c_str());
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(run(program));
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) printf("error it ended by status %d\n", status);
    printf("end %s\n", program.name.c_str());
  }
}

int main() {
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  run_all(parse_programs(std::cin));
}
