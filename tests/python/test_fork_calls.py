"""No call of a forked child takes a lock, whatever the threads of its parent held at the fork.

Method: a parent makes an object of each class. Its child calls all their methods, and all functions
of the modules, without arguments, and some calls with arguments. A lock that a child takes panics
in debug builds of the module; in others only a hang is noticed.
"""

from processes import output_of

CODE = """
    import inspect, os, sys, warnings
    import accelrt
    from accelrt import _core, accelerator, backends, cpu, profiler, sanitizer, testing

    warnings.simplefilter("ignore")
    stream, event = accelrt.Stream(), accelrt.Event(enable_timing=True)
    stream.record_event(event)
    buffer, pinned = accelrt.zeros(64), accelrt.empty_pinned(64)
    view = buffer.view("uint8")
    done = stream.launch_host(lambda: None)
    failed = stream.launch_host(lambda: 1 / 0)
    pool, generator = accelerator.MemPool(), accelrt.Generator("cpu")
    profile = profiler.profile()
    profile.__enter__()
    report = sanitizer.watch()
    report.__enter__()
    tag, guard = accelrt.memory_tag("tag"), accelrt.device("cpu:0")
    accelerator.record_memory_history()
    observer = accelerator.register_oom_observer(lambda *_: None)
    reclaimer = accelerator.register_reclaimer(lambda *_: False)
    done.exception(), failed.exception()
    stream.launch_host(lambda: None)
    broken = accelrt.Stream(dedicated=True)
    unheard, skipped = broken.launch_host(lambda: 1 / 0), broken.launch_host(int)
    written, missed = accelrt.zeros(64), accelrt.Event(enable_timing=True)
    with broken:
        written.fill_(1)
        broken.record_event(missed)
    while not broken.query():
        pass
    made = dict(locals())
    EXITS = "shut_down", "finish_streams"  # the parent's exit, and the schedule's turns

    def calls():
        for name, it in made.items():
            if type(it).__module__.split(".")[0] == "accelrt" or name in ("observer", "reclaimer"):
                for method in dir(type(it)):
                    if not method.startswith("__") or method in ("__repr__", "__len__", "__exit__"):
                        yield f"{name}.{method}", lambda: getattr(it, method)
        for module in (_core, accelrt, accelerator, cpu, profiler, sanitizer, testing,
                       backends.mkl, backends.mkldnn, backends.openmp, backends.cpu):
            for name, it in vars(module).items():
                if callable(it) and not name.startswith("__") and name not in EXITS:
                    yield f"{module.__name__}.{name}", lambda: it
        for text in (
            "accelerator.set_allocator_settings('max_split_size_mb:64')",
            "accelrt.ordered(stream, stream)", "accelrt.host_access(buffer)",
            "buffer.copy_(pinned)", "buffer.fill_(1)", "view[0]", "view.tolist()", "bytes(view)",
            "event.record(stream)", "event.elapsed_time(event)", "event.wait(stream)",
            "stream.launch_host(print)", "stream.wait_event(event)", "generator.random_raw(1)",
            "generator.fill_uniform_(buffer, 'float32')", "accelrt.manual_seed(1)",
            "cpu.manual_seed_all(1)", "cpu.default_generator(0).initial_seed()",
            "testing.schedule(1)", "testing.faults('copy:1')", "accelrt.verbose(1).__enter__()",
            "profiler.profile().__enter__()", "sanitizer.watch().__enter__()",
            "profiler.record_function('range').__enter__()", "accelrt.memory_tag('t').__enter__()",
            "accelerator.use_mem_pool(pool).__enter__()", "accelrt.numpy_memory().__enter__()",
            "backends.mkl.verbose(1).__enter__()", "accelrt.memory_report()",
            "accelerator.memory_snapshot()", "accelerator.memory_stats()", "stream.query()",
            "broken.synchronize(0)", "missed.synchronize(0)", "missed.elapsed_time(missed)",
            "bytes(written)", "written.copy_(bytes(64))", "stream.wait_stream(broken)",
        ):
            yield text, lambda: lambda: eval(text, {**made})

    sys.stdout.flush()
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os._exit(0)
    locked, count = [], 0
    null = os.open(os.devnull, os.O_WRONLY)
    output = os.dup(1)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for name, get in calls():
        count += 1
        try:
            result = get()
            if callable(result):
                result = result()
            if inspect.iscoroutine(result):
                result.close()
            repr(result)
        except BaseException as error:
            if "forked child" in str(error) and "taken" in str(error):
                locked.append(f"{name}: {error}")
    os.write(output, "\\n".join(sorted(set(locked)) + [f"{count > 300}"]).encode())
    os._exit(0)
"""


def test_no_call_of_a_forked_child_takes_a_lock() -> None:
    assert output_of(CODE) == "True"
