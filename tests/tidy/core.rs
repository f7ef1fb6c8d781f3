//! The core: what it does not know, and its lines of code beside a number that only falls.

use std::collections::BTreeSet;

use super::repository::{Repository, Violation};
use super::source::Source;

/// The lines that the core has at most. This is lowered, never raised: what would make the core
/// larger belongs into a room beside it, or takes the place of something. The exceptions: that
/// nobody spins for a thread without a processor took 240 lines, that the host heap has no
/// allocator of its own 320, for 900 of a room beside, that free blocks stay listed 105, that
/// memory which one thread allocates and another frees costs half the instructions 136, that tasks
/// of executors wait without a thread, and functions may block one, 390, that the log tells several
/// subscribers of tasks and waits 870: it is written where they happen, that memory which its
/// stream still uses serves the sizes of both arenas 80, and that allocators tell the log too, and
/// count by tag, 700: where each block, segment and page changes hands. A miss of an eighth fewer
/// instructions took 80 with it, that data types may grow, pools' options by a builder, 25, and
/// that new buffers wait for their memory's earlier life, and kinds come by libraries, 75. That
/// waiting threads can run streams by a schedule, and calls fail by a plan, took 160: where streams
/// become runnable, where threads wait and poll, what the clock shows; what decides is beside. That
/// the order is told to the sanitizer took 270: where tasks, waits, allocations and frees are.
/// Types share the code of sorts and of enqueueing, for 90 lines, and the module is a twentieth
/// smaller. That a program is asked for memory before a request fails took 60,
/// that a task that waits under a schedule runs what it needs alone, 5, and that what one thread
/// frees goes to another one past the slabs, for two fifths fewer instructions, 81. A watch
/// asks which buffers are older than itself in 8. A seventh fewer instructions for whole recordings
/// took 79: most requests look at one block alone, and caches forget what is used no more.
/// Another twelfth took 123: classes of sizes share what is left below a peak, caches keep what has
/// pages of its own, and growth asks once. That work on pages keeps its lists, and that what is
/// rare stands apart, took 47, and that a panic of the device loses no block 7. Steps on blocks
/// that look their area and arena up once, counts of splits without what follows from them, and
/// tables that a new allocator does not outgrow at once took 126; that the runtime's own waits are
/// known to requests in tasks, each of several side by side and from their enqueue on, and streams
/// that are just being dropped to all requests, 164. That a device creates, maps and moves several
/// pages in one call took 100, a tenth of whole recordings on some processors, and one search for
/// both ways to take a place, 7. That a thread which is alone has freed pieces until it has the
/// lock next took 106, for a twenty-fifth of the time of such a free with its request. That blocks
/// which stay beside no unmapped one are listed without a look at their neighbours, pieces handed
/// out by what was planned, and amounts counted below their peaks, took 193, for an eleventh. That
/// memory beside a restored snapshot has other addresses than it, and that caches are emptied
/// without the runtime's lock, took 39, and that what others free while a program is asked for
/// memory is seen, and asked for beside the device's own as often as it comes, 24.
const MOST_LINES: usize = 30_960;

/// A core that is smaller by so many lines has earned a lower number.
const SLACK_LINES: usize = 500;

/// The rooms of the core in `src`, and in `src/backend`: what `make core` leaves.
const ROOMS: &[&str] =
    &["base", "queue", "ffi", "backend", "engine", "memory", "compute", "runtime"];
const KINDS: &[&str] = &["contract", "registry", "fault", "driver", "null", "cpu"];

/// What the core neither reads nor writes nor talks to: that belongs into rooms beside it.
const STRANGERS: [&str; 6] = ["json", "pickle", "html", "numpy", "dask", "pyo3"];

/// No name and no text of the core's code has a word of those.
pub(crate) fn check_words(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in repository.src().filter(|source| is_core(source)) {
        for (_, token) in source.product_code() {
            let text = token.text.to_lowercase();
            if let Some(word) = STRANGERS.iter().find(|word| text.contains(**word)) {
                let message = format!("the core knows no {word}: {}", token.text);
                violations.push(Violation::new("core", &source.path, token.line, message));
            }
        }
    }
    violations
}

/// How many lines of the core have code, without those of its tests.
pub(crate) fn lines(repository: &Repository) -> usize {
    let core = repository.src().filter(|source| is_core(source));
    core.map(|source| {
        let lines: BTreeSet<_> = source.product_code().map(|(_, token)| token.line).collect();
        lines.len()
    })
    .sum()
}

fn is_core(source: &Source) -> bool {
    let path = source.module_path();
    let is_of =
        |place: usize, names: &[&str]| path.get(place).is_some_and(|it| names.contains(&&**it));
    is_of(1, ROOMS) && (path[1] != "backend" || path.len() == 2 || is_of(2, KINDS))
}

/// What is to be done about a core of so many lines.
pub(crate) fn complaint(lines: usize) -> Option<String> {
    let constant = format!("MOST_LINES of tests/tidy/core.rs ({MOST_LINES})");
    if lines > MOST_LINES {
        let more = lines - MOST_LINES;
        let place = "move it to a room beside the core, or make something else smaller";
        return Some(format!("the core has {lines} lines, {more} above {constant}: {place}"));
    }
    let is_far_below = MOST_LINES - lines > SLACK_LINES;
    is_far_below.then(|| format!("the core has {lines} lines only: lower {constant}"))
}

/// What the Makefile has for the core, when it is something else.
pub(crate) fn other_rooms(repository: &Repository) -> Option<String> {
    let makefile = repository.documents.iter().find(|document| document.path == "Makefile")?;
    let expected = [("CORE_ROOMS", ROOMS), ("CORE_KINDS", KINDS)]
        .map(|(name, rooms)| format!("{name} := {}", rooms.join(" ")));
    let is_there = |line: &String| makefile.text.lines().any(|it| it == line);
    expected.into_iter().find(|line| !is_there(line))
}

/// How often each file marks what `make core` deletes.
pub(crate) fn marks(repository: &Repository) -> Vec<(&str, usize)> {
    let count = |text: &str| text.matches("// `make core` deletes this block").count();
    let sources = repository.sources.iter().filter(|source| source.path.starts_with("src/"));
    let marked = sources.map(|source| (source.path.as_str(), count(&source.text)));
    marked.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::{MOST_LINES, Repository, SLACK_LINES, check_words, complaint, lines, other_rooms};

    fn lines_of(path: &str, text: &str) -> usize {
        lines(&Repository::of(&[(path, text)]))
    }

    #[test]
    fn the_core_knows_no_formats_and_no_frameworks() {
        let count = |path, text| check_words(&Repository::of(&[(path, text)])).len();
        assert_eq!(count("src/memory/a.rs", "fn to_json() -> u8 { \"a.pickle\" }"), 2);
        assert_eq!(count("src/python/a.rs", "fn to_json() {}"), 0);
        assert_eq!(count("src/memory/a.rs", "// Not JSON.\nfn f() {}"), 0);
    }

    #[test]
    fn lines_with_code_count_and_no_comments_and_tests() {
        let text = "//! Head.\n\nfn f(\n) {\n    // Why.\n    let a = \"x\n y\"; /* b */ }\n";
        assert_eq!(lines_of("src/base/a.rs", text), 4);
        let tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(lines_of("src/base/a.rs", tests), 1);
        assert_eq!(lines_of("src/base/a_tests.rs", "fn f() {}"), 0);
    }

    #[test]
    fn the_rooms_of_the_core_count_and_no_others() {
        let count = |path| lines_of(path, "fn f() {}");
        let core = ["src/queue/mod.rs", "src/backend/mod.rs", "src/backend/cpu/copy.rs"];
        assert_eq!(core.map(count), [1; 3]);
        let others = ["src/lib.rs", "src/backend/xpu/mod.rs", "src/python/mod.rs", "tests/a.rs"];
        assert_eq!(others.map(count), [0; 4]);
    }

    #[test]
    fn a_larger_core_is_wrong_and_a_much_smaller_one_lowers_the_number() {
        assert_eq!(complaint(MOST_LINES), None);
        assert_eq!(complaint(MOST_LINES - SLACK_LINES), None);
        assert!(complaint(MOST_LINES + 1).is_some_and(|it| it.contains("1 above MOST_LINES")));
        let lower = complaint(MOST_LINES - SLACK_LINES - 1);
        assert!(lower.is_some_and(|it| it.contains("lower MOST_LINES")));
    }

    #[test]
    fn a_makefile_with_other_rooms_is_found() {
        let repository = Repository::of(&[("Makefile", "CORE_ROOMS := base\n")]);
        assert!(
            other_rooms(&repository).is_some_and(|line| line.starts_with("CORE_ROOMS := base q"))
        );
    }
}
