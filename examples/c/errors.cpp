// Errors in C++17: what a task throws is thrown by the synchronise, with its text.
//
// Two streams work on one buffer, ordered by an event. A task that throws fails its stream: what
// comes later is skipped until a synchronise has told of it. Owners give everything back.

#include <accelrt.hpp>

#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>

int main()
{
    accelrt::Stream load, compute;
    accelrt::Buffer numbers(1000 * sizeof(float), load);
    accelrt::Event loaded(true), computed(true);

    std::vector<float> source(1000);
    std::iota(source.begin(), source.end(), 1.0F);
    numbers.write(source.data(), source.size() * sizeof(float), load);
    load.record(loaded);

    double sum = 0;
    compute.wait(loaded); // ordered on the device; no thread waits
    compute.launch(
        [first = numbers.data<float>(), &sum] {
            sum = std::accumulate(first, first + 1000, 0.0);
            if (sum != 500500)
                throw std::runtime_error("the numbers are not there");
        },
        {numbers.reads()});
    compute.record(computed);
    compute.synchronize();
    std::printf("the sum is %.0f, after %.3f ms\n", sum, loaded.elapsed_ms(computed));

    int runs = 0;
    compute.launch([] { throw std::out_of_range("no such row"); });
    compute.launch([&runs] { runs++; }); // is skipped
    try {
        compute.synchronize();
        return 1;
    } catch (const accelrt::Error &error) {
        std::printf("%s\n", error.what());
        if (error.status() != ACCELRT_STATUS_STREAM_FAILED || runs != 0)
            return 1;
    }
    compute.launch([&runs] { runs++; }); // the error has ended
    compute.synchronize();
    return runs == 1 && sum == 500500 ? 0 : 1;
}
