//! Layers: arrows only point down, and one table says which way is down.

use super::paths::Paths;
use super::repository::{Repository, Violation};
use super::source::Source;

/// A module and what it may name.
///
/// It may name everything of a lower layer, itself, and of its own layer what `peers` lists.
struct Area {
    /// `"backend::cpu"` for `src/backend/cpu/`; the longest match counts.
    module: &'static str,
    layer: u8,
    peers: &'static [&'static str],
    /// Lower modules it does not name all the same.
    never: &'static [&'static str],
    /// When not empty: the only modules that name this one.
    only_for: &'static [&'static str],
}

const fn area(module: &'static str, layer: u8, peers: &'static [&'static str]) -> Area {
    Area { module, layer, peers, never: &[], only_for: &[] }
}

/// A kind of device: known to the registry alone.
const fn kind(module: &'static str) -> Area {
    let peers = &[
        "backend::contract",
        "backend::courier",
        "backend::blocking",
        "backend::capacity",
        "backend::machine_memory",
        "backend::opencl_c",
    ];
    Area { module, layer: 1, peers, never: &[], only_for: &["backend", "backend::registry"] }
}

/// A binding: sees the runtime, not the machine.
const fn binding(module: &'static str) -> Area {
    Area { module, layer: 4, peers: &[], never: &["backend"], only_for: &[] }
}

const RUNTIME: &[&str] =
    &["runtime", "guard", "host_heap", "mkl_allocator", "profiler", "verbose", "hooks"];

/// The picture in ARCHITECTURE.md as a table; amend both together.
const AREAS: &[Area] = &[
    // L0, values and mechanisms. Errors name devices and devices fail with errors.
    area("sync", 0, &[]),
    area("size", 0, &[]),
    area("shortage", 0, &["size"]),
    area("error", 0, &["device", "shortage", "size", "sync"]),
    area("device", 0, &["error"]),
    area("config", 0, &["device", "error", "size"]),
    area("contain", 0, &[]),
    area("dylib", 0, &["device", "error", "sync"]),
    area("asymmetric", 0, &["sync"]),
    area("fork", 0, &["error", "sync"]),
    area("signals", 0, &[]),
    area("spin", 0, &["sync"]),
    area("stack", 0, &[]),
    area("steps", 0, &[]),
    area("stream_map", 0, &["steps"]),
    area("queue", 0, &["size", "spin", "sync"]),
    area("native", 0, &["error"]),
    // L1, the machine. A kind never names another; `backend` itself is `src/backend/mod.rs`.
    area("backend", 1, &[]),
    area("backend::contract", 1, &[]),
    area("backend::blocking", 1, &[]),
    area("backend::capacity", 1, &["backend::contract"]),
    area("backend::courier", 1, &["backend::blocking", "backend::contract"]),
    area("backend::opencl_c", 1, &["backend::contract"]),
    area("backend::machine_memory", 1, &[]),
    area("backend::owned", 1, &["backend::contract"]),
    area("backend::fault", 1, &["backend::contract", "backend::courier"]),
    kind("backend::null"),
    kind("backend::cpu"),
    kind("backend::cuda"),
    kind("backend::xpu"),
    area(
        "backend::registry",
        1,
        &[
            "backend::contract",
            "backend::courier",
            "backend::fault",
            "backend::null",
            "backend::cpu",
            "backend::cuda",
            "backend::xpu",
        ],
    ),
    // L2, the engine: generator, program, buffer, allocator, event, stream, frontier, in this order
    // downwards.
    area("generator", 2, &["program", "buffer", "stream"]),
    area("program", 2, &["buffer", "event", "stream", "frontier"]),
    area("buffer", 2, &["allocator", "event", "stream", "frontier"]),
    area("allocator", 2, &["event", "stream", "frontier"]),
    area("event", 2, &["stream", "frontier"]),
    area("stream", 2, &["frontier"]),
    area("frontier", 2, &[]),
    area("log", 2, &[]),
    // L3, the runtime: one level.
    area("runtime", 3, RUNTIME),
    area("guard", 3, RUNTIME),
    area("host_heap", 3, RUNTIME),
    area("mkl_allocator", 3, RUNTIME),
    area("profiler", 3, RUNTIME),
    area("verbose", 3, RUNTIME),
    area("hooks", 3, RUNTIME),
    // L4, the bindings.
    binding("python"),
    binding("capi"),
];

/// The layer of a file, when the table has a place for it.
pub(crate) fn layer_of(source: &Source) -> Option<u8> {
    area_of(&source.module_path()).map(|area| area.layer)
}

/// Arrows between modules point down. Tests and `src/lib.rs`, which is the tour, are free.
pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let exports = Exports::of(repository);
    let files = repository.src().filter(|source| {
        !source.is_test_file && !["src/lib.rs", "src/main.rs"].contains(&&*source.path)
    });
    files.flat_map(|source| check_file(source, &exports)).collect()
}

fn check_file(source: &Source, exports: &Exports) -> Vec<Violation> {
    let module = source.module_path();
    let Some(from) = area_of(&module).filter(|area| is_placed(&module, area)) else {
        let message = format!("{} has no place in the table of tests/tidy/layers.rs", source.path);
        return vec![Violation::new("layers", &source.path, 1, message)];
    };
    let mut violations = Vec::new();
    for path in Paths::of(source).uses.iter().filter(|path| !source.is_test(path.index)) {
        // As written, and as what a re-export stands for: the second finds what hides behind the
        // crate root or a `mod.rs`.
        let whole = exports.resolve(&path.segments);
        let is_root_name = area_of(&path.segments).is_none();
        let complaint = match area_of(&path.segments) {
            Some(to) => complaint(from, to).or_else(|| banned(from, to)),
            None => None,
        };
        let complaint = complaint.or_else(|| complaint_of(from, &whole));
        if let Some(complaint) = complaint {
            let via = if is_root_name { format!(" (as {})", path.text()) } else { String::new() };
            let line = source.code[path.index].line;
            let message = format!("{complaint}{via}");
            violations.push(Violation::new("layers", &source.path, line, message));
        }
    }
    violations.sort();
    violations.dedup();
    violations
}

/// False for a module that lies between areas, as `backend::other` in `backend`.
fn is_placed(module: &[String], area: &Area) -> bool {
    let has_areas =
        AREAS.iter().any(|a| a.module != area.module && is_inside(a.module, area.module));
    !has_areas || module[1..].join("::") == area.module
}

fn complaint_of(from: &Area, path: &[String]) -> Option<String> {
    complaint(from, area_of(path)?)
}

/// What is wrong with an arrow between two areas.
fn complaint(from: &Area, to: &Area) -> Option<String> {
    if is_inside(from.module, to.module) || is_inside(to.module, from.module) {
        return None;
    }
    let is_reserved = !to.only_for.is_empty() && !to.only_for.contains(&from.module);
    let (name, layer, target) = (from.module, from.layer, to.module);
    if layer > to.layer && !is_reserved || layer == to.layer && from.peers.contains(&target) {
        return None;
    }
    Some(if is_reserved {
        format!("{name} names {target}, which only {} may", to.only_for.join(" and "))
    } else {
        format!("{name} (L{layer}) may not name {target} (L{})", to.layer)
    })
}

/// What a binding does not name although it is lower.
fn banned(from: &Area, to: &Area) -> Option<String> {
    let is_banned = from.never.iter().any(|module| is_inside(to.module, module));
    is_banned.then(|| format!("{} never names {}", from.module, to.module))
}

/// True for `backend::cpu` in `backend`, and for a module in itself.
fn is_inside(module: &str, holder: &str) -> bool {
    module.strip_prefix(holder).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The area that a whole path of this crate points into.
fn area_of(path: &[String]) -> Option<&'static Area> {
    let [root, inside @ ..] = path else { return None };
    let inside = inside.join("::");
    let areas = AREAS.iter().filter(|area| root == "crate" && is_inside(&inside, area.module));
    areas.max_by_key(|area| area.module.len())
}

/// Names under which modules hand on what others define.
struct Exports(Vec<(Vec<String>, Vec<String>)>);

impl Exports {
    fn of(repository: &Repository) -> Self {
        let mut exports = Vec::new();
        for source in repository.src() {
            for import in Paths::of(source).imports.into_iter().filter(|import| import.is_public) {
                let mut name = import.module;
                name.push(import.name);
                if import.target != name {
                    exports.push((name, import.target));
                }
            }
        }
        Self(exports)
    }

    /// Follows re-exports, a bounded number of times since they may go round in circles.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let mut path = path.to_vec();
        for _ in 0..8 {
            let Some((name, target)) = self.0.iter().find(|(name, _)| path.starts_with(name))
            else {
                break;
            };
            path.splice(..name.len(), target.iter().cloned());
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use super::{AREAS, Repository, area_of, check};

    /// The messages about one file, in a crate whose root and backend re-export things.
    fn messages(path: &str, text: &str) -> Vec<String> {
        let root = "pub use device::Device; pub use backend::CpuBackend; mod device; mod backend;";
        let repository = Repository::of(&[
            ("src/lib.rs", root),
            ("src/backend/mod.rs", "mod cpu; pub use cpu::CpuBackend;"),
            (path, text),
        ]);
        check(&repository).into_iter().map(|violation| violation.to_string()).collect()
    }

    fn is_fine(path: &str, text: &str) {
        assert_eq!(messages(path, text), Vec::<String>::new(), "{path}: {text}");
    }

    fn is_wrong(path: &str, text: &str, expected: &str) {
        let messages = messages(path, text);
        assert!(messages.len() == 1 && messages[0].contains(expected), "{text}: {messages:?}");
    }

    #[test]
    fn arrows_that_point_down_are_fine() {
        is_fine("src/stream/mod.rs", "use crate::{backend::contract::Backend, error::Result};");
        is_fine("src/runtime/mod.rs", "use crate::allocator::A; use crate::guard::G;");
        is_fine("src/event.rs", "use crate::stream::{Stream, self}; use crate::frontier::F;");
        is_fine("src/error.rs", "use crate::device::Device;");
        is_fine("src/backend/registry.rs", "use super::{cpu::Cpu, null::Null, contract::B};");
        is_fine("src/backend/cpu/mod.rs", "mod clock; use clock::C; use super::contract::B;");
        is_fine("src/backend/cpu/clock.rs", "use super::workers::W; use std::fmt;");
        is_fine("src/python/stream.rs", "use crate::{Device, runtime::Runtime};");
    }

    #[test]
    fn arrows_that_point_up_or_aside_are_found() {
        is_wrong("src/sync.rs", "use crate::error::Error;", "sync (L0) may not name error (L0)");
        is_wrong("src/queue/mod.rs", "use crate::{sync::A, error::B};", "may not name error");
        is_wrong("src/stream/mod.rs", "use crate::event::Event;", "stream (L2) may not name event");
        is_wrong("src/frontier.rs", "fn f() -> crate::stream::Id {}", "may not name stream");
        is_wrong("src/allocator/mod.rs", "use super::runtime::R;", "may not name runtime (L3)");
        is_wrong("src/backend/contract.rs", "use super::courier::C;", "may not name backend::cour");
        is_wrong("src/generator.rs", "\n\nuse crate::log::L;", "src/generator.rs:3: layers:");
    }

    #[test]
    fn a_kind_is_known_to_the_registry_alone() {
        is_wrong("src/backend/cpu/copy.rs", "use super::super::null::N;", "names backend::null");
        is_wrong("src/stream/mod.rs", "use crate::backend::cuda::C;", "which only backend and");
        is_wrong("src/runtime/mod.rs", "use crate::backend; type C = backend::xpu::X;", "xpu");
        is_wrong("src/backend/fault.rs", "use super::cpu::C;", "names backend::cpu");
    }

    #[test]
    fn a_re_export_hides_nothing() {
        is_wrong("src/runtime/mod.rs", "use crate::CpuBackend;", "names backend::cpu, which only");
        is_wrong("src/stream/mod.rs", "use crate::backend::CpuBackend;", "names backend::cpu");
        is_wrong("src/queue/mod.rs", "use crate::Device;", "device (L0) (as crate::Device)");
    }

    #[test]
    fn bindings_know_neither_each_other_nor_the_machine() {
        is_wrong("src/python/mod.rs", "use crate::capi::c;", "may not name capi");
        is_wrong("src/capi/mod.rs", "use crate::python::p;", "may not name python");
        is_wrong("src/capi/mod.rs", "use crate::backend::contract::B;", "capi never names backend");
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        is_wrong("src/helpers.rs", "", "no place in the table");
        is_wrong("src/backend/helpers.rs", "", "no place in the table");
        is_fine("src/backend/cpu/helpers.rs", "");
    }

    #[test]
    fn tests_and_the_tour_are_free() {
        is_fine("src/frontier.rs", "#[cfg(test)] mod tests { use crate::runtime::Runtime; }");
        is_fine("src/stream/order_tests.rs", "use crate::event::Event;");
        is_fine("src/sync.rs", "// crate::runtime\nconst A: &str = \"crate::runtime::R\";");
    }

    #[test]
    fn the_table_names_only_what_it_has() {
        for area in AREAS {
            let named = area.peers.iter().chain(area.never).chain(area.only_for);
            for module in named {
                let path = format!("crate::{module}");
                let path: Vec<_> = path.split("::").map(str::to_owned).collect();
                assert!(area_of(&path).is_some_and(|found| found.module == *module), "{module}");
            }
        }
    }
}
