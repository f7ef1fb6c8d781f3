// accelrt.hpp: accelrt.h for C++17, with owners of handles and exceptions.
//
// - A failed call throws accelrt::Error, with its status and its text.
// - Stream, Event, Buffer and Generator own a handle and can be moved. get() is the handle, for the
//   functions of accelrt.h that have no method here.
// - Stream::launch takes any callable. What it throws fails the stream, with the exception's text;
//   it is destroyed once, on any thread.
// - Threads and blocking are as accelrt.h says of the function that a method calls.

#ifndef ACCELRT_HPP
#define ACCELRT_HPP

#include <accelrt.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace accelrt {

// A call that failed.
class Error : public std::runtime_error {
public:
    Error(accelrt_status status, const char *text) : std::runtime_error(text), status_(status) {}

    accelrt_status status() const noexcept { return status_; }

private:
    accelrt_status status_;
};

// Throws the thread's last error when a call has failed.
inline void check(accelrt_status status)
{
    if (status != ACCELRT_STATUS_OK)
        throw Error(status, accelrt_error_text());
}

// The calling thread's current device of the accelerator's kind.
constexpr accelrt_device current_device{ACCELRT_ACCELERATOR, ACCELRT_CURRENT};

// A device of a text such as "cpu:1".
inline accelrt_device device(const char *name)
{
    accelrt_device device{};
    check(accelrt_device_parse(name, &device));
    return device;
}

namespace detail {

// Owns a handle; destroys it once.
template <typename Handle, accelrt_status (*destroy)(Handle *)> class Owner {
public:
    Owner() noexcept = default;
    explicit Owner(Handle *handle) noexcept : handle_(handle) {}
    Owner(Owner &&other) noexcept : handle_(other.release()) {}
    Owner &operator=(Owner &&other) noexcept
    {
        if (this != &other)
            reset(other.release());
        return *this;
    }
    Owner(const Owner &) = delete;
    Owner &operator=(const Owner &) = delete;
    ~Owner() { reset(nullptr); }

    // The handle, which stays this object's.
    Handle *get() const noexcept { return handle_; }

    // Gives the handle up to the caller.
    Handle *release() noexcept { return std::exchange(handle_, nullptr); }

private:
    void reset(Handle *handle) noexcept
    {
        if (handle_ != nullptr)
            destroy(handle_); // a handle that other code has destroyed is no error here
        handle_ = handle;
    }

    Handle *handle_ = nullptr;
};

inline accelrt_status destroy_stream(accelrt_stream *it) { return accelrt_stream_destroy(it); }
inline accelrt_status destroy_event(accelrt_event *it) { return accelrt_event_destroy(it); }
inline accelrt_status destroy_buffer(accelrt_buffer *it) { return accelrt_buffer_destroy(it); }
inline accelrt_status destroy_generator(accelrt_generator *it)
{
    return accelrt_generator_destroy(it);
}

inline void write_text(char *to, std::size_t capacity, const char *text) noexcept
{
    if (capacity == 0)
        return;
    std::strncpy(to, text, capacity - 1);
    to[capacity - 1] = 0;
}

// A task: calls the callable, and turns what it throws into a text.
template <typename Callable>
std::int32_t call(void *data, char *error_text, std::size_t error_capacity) noexcept
{
    try {
        (*static_cast<Callable *>(data))();
        return 0;
    } catch (const std::exception &error) {
        write_text(error_text, error_capacity, error.what());
    } catch (...) {
        write_text(error_text, error_capacity, "an exception that is no std::exception");
    }
    return 1;
}

template <typename Callable> void drop(void *data) noexcept
{
    delete static_cast<Callable *>(data);
}

} // namespace detail

// A place in a stream, which streams and threads wait for.
class Event : public detail::Owner<accelrt_event, detail::destroy_event> {
public:
    // Owns a handle that a function of accelrt.h has returned.
    explicit Event(accelrt_event *event) noexcept : Owner(event) {}

    explicit Event() : Event(false) {}

    // A template, so that no pointer becomes `true`.
    template <typename Flag, typename = std::enable_if_t<std::is_same_v<Flag, bool>>>
    explicit Event(Flag is_timed) : Owner(create(is_timed))
    {
    }

    // Everything before the latest record is done. Does not block.
    bool is_done() const
    {
        std::int32_t is_done = 0;
        check(accelrt_event_query(get(), &is_done));
        return is_done != 0;
    }

    // Blocks until everything before the latest record is done.
    void synchronize(std::int64_t timeout_ms = ACCELRT_NO_LIMIT) const
    {
        check(accelrt_event_synchronize(get(), timeout_ms));
    }

    // Milliseconds from this event's record to that of `end`; both have timing.
    double elapsed_ms(const Event &end) const
    {
        double elapsed_ms = 0;
        check(accelrt_event_get_elapsed(get(), end.get(), &elapsed_ms));
        return elapsed_ms;
    }

private:
    static accelrt_event *create(bool is_timed)
    {
        accelrt_event *event = nullptr;
        check(accelrt_event_create(is_timed ? 1 : 0, &event));
        return event;
    }
};

class Buffer;

// In-order work on one device.
class Stream : public detail::Owner<accelrt_stream, detail::destroy_stream> {
public:
    // Owns a handle that a function of accelrt.h has returned.
    explicit Stream(accelrt_stream *stream) noexcept : Owner(stream) {}

    // A stream for this owner alone.
    explicit Stream(accelrt_device device = current_device, std::int32_t priority = 0)
        : Owner(create(device, priority))
    {
    }

    // The thread's current stream of a device.
    static Stream current(accelrt_device device = current_device)
    {
        accelrt_stream *stream = nullptr;
        check(accelrt_stream_get_current(device, &stream));
        return Stream(stream);
    }

    // Enqueues a callable, which any thread calls once in stream order. What it throws fails the
    // stream. The buffers' memory stays until it has run, and later copies, fills and reads of the
    // host wait for it.
    template <typename Callable>
    void launch(Callable &&callable, std::initializer_list<accelrt_buffer_use> uses = {})
    {
        using Task = std::decay_t<Callable>;
        auto task = std::make_unique<Task>(std::forward<Callable>(callable));
        // The call drops the task also when it fails.
        check(accelrt_stream_launch(get(), detail::call<Task>, task.release(), detail::drop<Task>,
                                    uses.begin(), uses.size()));
    }

    void record(const Event &event) { check(accelrt_event_record(event.get(), get())); }

    // What is enqueued from now on runs behind the event's latest record. No thread waits.
    void wait(const Event &event) { check(accelrt_stream_wait_event(get(), event.get())); }

    // What is enqueued from now on runs behind everything that was enqueued on `other`.
    void wait(const Stream &other) { check(accelrt_stream_wait_stream(get(), other.get())); }

    bool is_done() const
    {
        std::int32_t is_done = 0;
        check(accelrt_stream_query(get(), &is_done));
        return is_done != 0;
    }

    // Blocks until everything that was enqueued is done; throws and ends the stream's error.
    void synchronize(std::int64_t timeout_ms = ACCELRT_NO_LIMIT)
    {
        check(accelrt_stream_synchronize(get(), timeout_ms));
    }

private:
    static accelrt_stream *create(accelrt_device device, std::int32_t priority)
    {
        accelrt_stream *stream = nullptr;
        check(accelrt_stream_create(device, priority, &stream));
        return stream;
    }
};

// A view of memory, which is freed in stream order.
class Buffer : public detail::Owner<accelrt_buffer, detail::destroy_buffer> {
public:
    // Owns a handle that a function of accelrt.h has returned. A template, so that `Buffer(0)` is a
    // buffer of no bytes.
    template <typename Handle,
              typename = std::enable_if_t<std::is_same_v<Handle, accelrt_buffer *>>>
    explicit Buffer(Handle buffer) noexcept : Owner(buffer)
    {
    }

    // Memory of a device, whose home is the thread's current stream.
    explicit Buffer(std::size_t bytes, accelrt_device device = current_device)
        : Owner(create([&](accelrt_buffer **buffer) {
              return accelrt_buffer_create(device, bytes, buffer);
          }))
    {
    }

    // Memory whose home is a stream.
    Buffer(std::size_t bytes, const Stream &home)
        : Owner(create([&](accelrt_buffer **buffer) {
              return accelrt_buffer_create_on(home.get(), bytes, buffer);
          }))
    {
    }

    Buffer slice(std::size_t offset_bytes, std::size_t bytes) const
    {
        return Buffer(create([&](accelrt_buffer **buffer) {
            return accelrt_buffer_slice(get(), offset_bytes, bytes, buffer);
        }));
    }

    std::uint64_t address() const
    {
        std::uint64_t address = 0;
        check(accelrt_buffer_get_address(get(), &address));
        return address;
    }

    // The address as a pointer, where the host can read it: behind wait(), or inside of a task.
    template <typename Number> Number *data() const
    {
        return reinterpret_cast<Number *>(static_cast<std::uintptr_t>(address()));
    }

    void copy_from(const Buffer &from, const Stream &stream)
    {
        check(accelrt_buffer_copy(get(), from.get(), stream.get()));
    }

    void fill(std::uint8_t byte, const Stream &stream)
    {
        check(accelrt_buffer_fill(get(), byte, stream.get()));
    }

    // Blocks until the copy is done.
    void write(const void *source, std::size_t bytes, const Stream &stream)
    {
        check(accelrt_buffer_write(get(), source, bytes, stream.get()));
    }

    // Blocks until the copy is done.
    void read(void *target, std::size_t bytes, const Stream &stream) const
    {
        check(accelrt_buffer_read(get(), target, bytes, stream.get()));
    }

    // Blocks until every recorded use is done.
    void wait(std::int64_t timeout_ms = ACCELRT_NO_LIMIT) const
    {
        check(accelrt_buffer_wait(get(), timeout_ms));
    }

    // For the uses of a launch: the task reads it, or reads and writes it.
    accelrt_buffer_use reads() const { return {get(), ACCELRT_READS, 0}; }
    accelrt_buffer_use writes() const { return {get(), ACCELRT_WRITES, 0}; }

private:
    template <typename Make> static accelrt_buffer *create(Make make)
    {
        accelrt_buffer *buffer = nullptr;
        check(make(&buffer));
        return buffer;
    }
};

// Random numbers: the same bits on every kind of device.
class Generator : public detail::Owner<accelrt_generator, detail::destroy_generator> {
public:
    explicit Generator(accelrt_device device = current_device) : Owner(create(device)) {}

    void seed(std::uint64_t seed) { check(accelrt_generator_set_seed(get(), seed)); }

    // `numbers` is one of ACCELRT_RANDOM_UINT32 to ACCELRT_RANDOM_NORMAL_DOUBLE.
    void fill(Buffer &buffer, std::int32_t numbers, const Stream &stream)
    {
        check(accelrt_generator_fill(get(), buffer.get(), numbers, stream.get()));
    }

private:
    static accelrt_generator *create(accelrt_device device)
    {
        accelrt_generator *generator = nullptr;
        check(accelrt_generator_create(device, &generator));
        return generator;
    }
};

} // namespace accelrt

#endif // ACCELRT_HPP
