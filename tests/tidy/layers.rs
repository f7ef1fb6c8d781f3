//! Layers: arrows only point down, and one table says which way is down.

use super::paths::Paths;
use super::repository::{Repository, Violation};
use super::source::Source;

/// A module and what it may name: everything of a lower level, and itself.
struct Area {
    /// `"backend::cpu"` for `src/backend/cpu/`; the longest match counts.
    module: &'static str,
    /// Its layer, and which step of it: areas of one level never name each other.
    level: (u8, u8),
    /// When not empty: the only modules that name this one.
    only_for: &'static [&'static str],
}

const fn area(module: &'static str, level: (u8, u8)) -> Area {
    Area { module, level, only_for: &[] }
}

/// A kind of device: known to the registry alone.
const fn kind(module: &'static str) -> Area {
    Area { only_for: &["backend", "backend::registry"], ..area(module, (1, 3)) }
}

/// The picture in ARCHITECTURE.md as a table, from below; amend both together.
const AREAS: &[Area] = &[
    // L0, values and mechanisms.
    area("base", (0, 0)),
    area("queue", (0, 1)),
    area("ffi", (0, 1)),
    // L1, the machine. `backend` itself is `src/backend/mod.rs`, as with the folders below.
    area("backend::contract", (1, 0)),
    area("backend::driver", (1, 1)),
    area("backend::callbacks", (1, 2)),
    Area { only_for: &["backend", "kinds"], ..area("backend::foreign", (1, 3)) },
    kind("backend::cpu"),
    area("backend::registry", (1, 4)),
    area("backend", (1, 5)),
    // L2, the engine, the memory and what is computed.
    area("engine::log", (2, 0)),
    area("engine::frontier", (2, 0)),
    area("engine::stream", (2, 1)),
    area("engine::event", (2, 2)),
    area("engine", (2, 3)),
    area("memory::allocator", (2, 4)),
    area("memory::buffer", (2, 5)),
    area("memory", (2, 6)),
    area("compute", (2, 7)),
    // L3, the runtime and what watches and serves it.
    area("runtime", (3, 0)),
    area("kinds", (3, 1)),
    area("face", (3, 1)),
    // What other crates use.
    area("internal", (4, 1)),
];

/// Arrows between modules point down. Tests and `src/lib.rs`, which is the tour, are free.
pub(crate) fn check(repository: &Repository) -> Vec<Violation> {
    let exports = Exports::of(repository);
    let files = repository.root().filter(|source| {
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
            Some(to) => complaint(from, to),
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
    if from.level > to.level && !is_reserved {
        return None;
    }
    let (name, target) = (from.module, to.module);
    Some(if is_reserved {
        format!("{name} names {target}, which only {} may", to.only_for.join(" and "))
    } else {
        format!("{name} (L{}) may not name {target} (L{})", from.level.0, to.level.0)
    })
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
pub(crate) struct Exports(Vec<(Vec<String>, Vec<String>)>);

impl Exports {
    pub(crate) fn of(repository: &Repository) -> Self {
        let mut exports = Vec::new();
        for source in repository.product() {
            for import in Paths::of(source).imports.into_iter().filter(|import| import.is_public) {
                let mut name = import.module;
                name.push(import.name);
                if import.target != name {
                    exports.push((source.in_crate(&name), source.in_crate(&import.target)));
                }
            }
        }
        Self(exports)
    }

    /// Follows re-exports, a bounded number of times since they may go round in circles.
    pub(crate) fn resolve(&self, path: &[String]) -> Vec<String> {
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
        let root = "pub use engine::event::Event; pub use backend::Cpu; mod engine; mod backend;";
        let repository = Repository::of(&[
            ("src/lib.rs", root),
            ("src/backend/mod.rs", "mod cpu; pub use cpu::Cpu;"),
            ("src/engine/mod.rs", "mod event;"),
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
        let stream = "use crate::{backend::contract::Backend, base::error::Result};";
        is_fine("src/engine/stream/mod.rs", stream);
        is_fine("src/runtime/mod.rs", "use crate::memory::allocator::A; mod guard; use guard::G;");
        let event = "use crate::engine::stream::{Stream, self}; use super::frontier::F;";
        is_fine("src/engine/event.rs", event);
        is_fine("src/base/error.rs", "use crate::base::device::Device;");
        is_fine("src/backend/registry.rs", "use super::{cpu::Cpu, null::Null, contract::B};");
        is_fine("src/backend/cpu/mod.rs", "mod clock; use clock::C; use super::contract::B;");
        is_fine("src/backend/cpu/clock.rs", "use super::workers::W; use std::fmt;");
        is_fine("src/face/a.rs", "use crate::{Event, runtime::Runtime};");
    }

    #[test]
    fn arrows_that_point_up_or_aside_are_found() {
        let (queue, base) = ("src/queue/mod.rs", "src/base/sync.rs");
        is_wrong(base, "use crate::queue::Q;", "base (L0) may not name queue (L0)");
        is_wrong(queue, "use crate::{base::sync::A, ffi::B};", "may not name ffi");
        let stream = "src/engine/stream/mod.rs";
        is_wrong(stream, "use crate::engine::event::E;", "stream (L2) may not name engine::event");
        is_wrong("src/engine/frontier.rs", "fn f() -> super::stream::Id {}", "engine::stream (L2)");
        let allocator = "src/memory/allocator/mod.rs";
        is_wrong(allocator, "use crate::runtime::R;", "may not name runtime (L3)");
        is_wrong(allocator, "use super::buffer::B;", "may not name memory::buffer (L2)");
        is_wrong("src/runtime/mod.rs", "use crate::face::F;", "may not name face");
        is_wrong("src/backend/contract.rs", "use super::driver::D;", "may not name backend::driv");
        let log = "\n\nuse crate::runtime::R;";
        is_wrong("src/engine/log.rs", log, "src/engine/log.rs:3: layers:");
    }

    #[test]
    fn a_kind_is_known_to_the_registry_alone() {
        let foreign = "use super::super::foreign::X;";
        is_wrong("src/backend/cpu/copy.rs", foreign, "names backend::foreign");
        let cpu = "use crate::backend::cpu::C;";
        is_wrong("src/engine/stream/mod.rs", cpu, "which only backend and");
        is_wrong("src/runtime/mod.rs", "use crate::backend; type C = backend::cpu::X;", "cpu");
        is_wrong("src/backend/driver/a.rs", "use super::super::cpu::C;", "names backend::cpu");
    }

    #[test]
    fn a_re_export_hides_nothing() {
        is_wrong("src/runtime/mod.rs", "use crate::Cpu;", "names backend::cpu, which only");
        is_wrong("src/engine/stream/mod.rs", "use crate::backend::Cpu;", "names backend::cpu");
        is_wrong("src/queue/mod.rs", "use crate::Event;", "engine::event (L2) (as crate::Event)");
    }

    #[test]
    fn a_module_without_a_place_is_found() {
        is_wrong("src/helpers.rs", "", "no place in the table");
        is_wrong("src/backend/helpers.rs", "", "no place in the table");
        is_wrong("src/engine/helpers.rs", "", "no place in the table");
        is_fine("src/backend/cpu/helpers.rs", "");
    }

    #[test]
    fn tests_and_the_tour_are_free() {
        let frontier = "#[cfg(test)] mod tests { use crate::runtime::Runtime; }";
        is_fine("src/engine/frontier.rs", frontier);
        is_fine("src/engine/stream/order_tests.rs", "use crate::engine::event::Event;");
        is_fine("src/base/sync.rs", "// crate::runtime\nconst A: &str = \"crate::runtime::R\";");
    }

    #[test]
    fn the_table_names_only_what_it_has() {
        for area in AREAS {
            let named = area.only_for.iter();
            for module in named {
                let path = format!("crate::{module}");
                let path: Vec<_> = path.split("::").map(str::to_owned).collect();
                assert!(area_of(&path).is_some_and(|found| found.module == *module), "{module}");
            }
        }
    }
}
