//! The header for C: what cbindgen makes of this crate, and a table with every function of it.
//!
//! Goal: no declaration is written twice. Method: cbindgen reads functions, structs and constants;
//! the fields of the table are made of the functions' declarations, in the order of the list in
//! `table.rs`. The test compares what comes of it with the file, which `make header` writes.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use cbindgen::{
    Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, RenameRule, SortKey,
    Style,
};

const FOLDER: &str = "crates/accelrt-capi/src";

/// The files with functions, in the order of the header.
const FILES: [&str; 13] = [
    "status",
    "runtime",
    "device",
    "stream",
    "arguments",
    "launch",
    "event",
    "buffer",
    "memory",
    "pool",
    "history",
    "log",
    "compute",
];

/// Names of types in Rust, and in C. Constants get `ACCELRT_` in front.
const TYPES: [(&str, &str); 38] = [
    ("Status", "accelrt_status"),
    ("RuntimeCounters", "accelrt_runtime_counters"),
    ("CDevice", "accelrt_device"),
    ("CDeviceProperties", "accelrt_device_properties"),
    ("CStream", "accelrt_stream"),
    ("CStreamInfo", "accelrt_stream_info"),
    ("CEvent", "accelrt_event"),
    ("CBuffer", "accelrt_buffer"),
    ("CBufferInfo", "accelrt_buffer_info"),
    ("BufferUse", "accelrt_buffer_use"),
    ("TaskFunction", "accelrt_task_function"),
    ("DropFunction", "accelrt_drop_function"),
    ("UsedRange", "accelrt_used_range"),
    ("TaskDescription", "accelrt_task_description"),
    ("StartFunction", "accelrt_start_function"),
    ("CCompletion", "accelrt_completion"),
    ("CPool", "accelrt_pool"),
    ("CTagStatistics", "accelrt_tag_statistics"),
    ("CObserver", "accelrt_observer"),
    ("CShortage", "accelrt_shortage"),
    ("ObserverFunction", "accelrt_observer_function"),
    ("CMemoryInfo", "accelrt_memory_info"),
    ("CStat", "accelrt_stat"),
    ("CPooledStat", "accelrt_pooled_stat"),
    ("CMemoryStatistics", "accelrt_memory_statistics"),
    ("CDurationStat", "accelrt_duration_stat"),
    ("CHostStatistics", "accelrt_host_statistics"),
    ("CSnapshot", "accelrt_snapshot"),
    ("CSegment", "accelrt_segment"),
    ("CBlock", "accelrt_block"),
    ("CHistory", "accelrt_history"),
    ("CMemoryEvent", "accelrt_memory_event"),
    ("CLog", "accelrt_log"),
    ("CLogRecord", "accelrt_log_record"),
    ("CGenerator", "accelrt_generator"),
    ("CProgram", "accelrt_program"),
    ("CKernel", "accelrt_kernel"),
    ("CKernelArgument", "accelrt_kernel_argument"),
];

const HEAD: &str = "\
// accelrt.h: streams, events and stream-ordered memory of any device, for C11 and C++17.
//
// Made by cbindgen of crates/accelrt-capi: `make header` writes it, `make check` compares it.
// docs/c.md has the rules and a first program.
//
// - A function returns an accelrt_status unless it says otherwise: 0, or why it did nothing. The
//   text of a thread's last error is accelrt_error_text().
// - A handle that a function returns is the caller's: it is given back by the destroy function of
//   its noun. A handle that was destroyed is an error where it is used; destroying it while another
//   thread's call uses it is not allowed.
// - Every function may be called by any thread, and by tasks. What waits says so.
// - A struct that begins with `size` grows in later versions: set it to sizeof the struct first.
// - Functions that a program passes must not throw, jump out or end their thread; accelrt.hpp turns
//   exceptions of C++ into errors.
";

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn path() -> PathBuf {
    root().join("include/accelrt.h")
}

/// What cbindgen makes of the files.
fn declarations() -> String {
    let rename = TYPES.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
    let config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Type,
        documentation_style: DocumentationStyle::C99,
        usize_is_size_t: true,
        no_includes: true,
        line_length: 100,
        sort_by: SortKey::None,
        export: ExportConfig { rename, ..ExportConfig::default() },
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        ..Config::default()
    };
    let builder = Builder::new().with_config(config);
    let builder = FILES.iter().fold(builder, |builder, file| {
        builder.with_src(root().join(FOLDER).join(file).with_extension("rs"))
    });
    let mut text = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut text);
    let text = String::from_utf8(text).expect("a header is text");
    text.lines().fold(String::new(), |mut all, line| {
        let constant = line.strip_prefix("#define ").filter(|it| it.contains(' '));
        match constant {
            Some(constant) if constant.contains(" -") => {
                writeln!(all, "#define ACCELRT_{})", constant.replace(" -", " (-"))
            }
            Some(constant) => writeln!(all, "#define ACCELRT_{constant}"),
            None if line == "// # Safety" => writeln!(all, "// What the caller promises:"),
            None => writeln!(all, "{line}"),
        }
        .expect("a string");
        all
    })
}

/// A function's result, its name, and its parameters in parentheses.
struct Declaration<'a> {
    result: &'a str,
    name: &'a str,
    parameters: String,
}

fn functions(header: &str) -> Vec<Declaration<'_>> {
    let lines: Vec<_> = header.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let is_code = line.starts_with(|first: char| first.is_ascii_lowercase());
        let Some((head, rest)) = line.split_once('(').filter(|_| is_code) else { continue };
        let Some(start) = head.rfind("accelrt_").filter(|_| !line.starts_with("typedef")) else {
            continue;
        };
        let mut parameters = format!("({rest}");
        for more in lines[index + 1..].iter().take_while(|_| !line.ends_with(");")) {
            parameters = format!("{parameters} {}", more.trim());
            if more.ends_with(");") {
                break;
            }
        }
        let parameters = parameters.trim_end_matches(';').to_owned();
        found.push(Declaration {
            result: head[..start].trim_end(),
            name: &head[start..],
            parameters,
        });
    }
    found
}

/// The names of the table's functions, in its order.
fn listed() -> Vec<String> {
    let text =
        fs::read_to_string(root().join(FOLDER).join("table.rs")).expect("the table can be read");
    let list = text.split("table! {").nth(1).and_then(|rest| rest.split('}').next());
    let names = list.expect("the table has a list").split_whitespace();
    names.map(|name| name.split("::").last().expect("a name").to_owned()).collect()
}

/// The struct of the table, and the list of its functions for macros.
fn table(header: &str) -> String {
    let functions = functions(header);
    let mut fields = String::new();
    let mut list = String::new();
    let mut macros = String::new();
    for name in listed() {
        let short = name.trim_start_matches("accelrt_");
        let declared = functions.iter().find(|function| function.name == name);
        let Declaration { result, parameters, .. } = declared.expect("cbindgen has it");
        let gap = if result.ends_with('*') { "" } else { " " };
        writeln!(fields, "  {result}{gap}(*{short}){parameters};").expect("a string");
        write!(list, " \\\n  X({short})").expect("a string");
        writeln!(macros, "#define {name} (ACCELRT_TABLE->{short})").expect("a string");
    }
    format!(
        "\
// Every function, for programs that cannot link the library: in Python's process the capsule
// accelrt._core._C_API has it, by this name. A table only grows, at its end: before the use of a
// function that is newer than the oldest library to be used, ask ACCELRT_TABLE_HAS.
typedef struct accelrt_table {{
  // The size of the whole table in bytes.
  size_t size;
  // ACCELRT_ABI_VERSION of the library.
  uint32_t abi;
  // The number of functions.
  uint32_t count;
{fields}}} accelrt_table;

// Whether a table has a function: ACCELRT_TABLE_HAS(table, stream_launch).
#define ACCELRT_TABLE_HAS(table, function) \\
  ((table)->size >= offsetof(accelrt_table, function) + sizeof((table)->function))

// X(error_text) and so on, for every function of the table.
#define ACCELRT_FOR_EACH_FUNCTION(X){list}

#ifndef ACCELRT_TABLE
// The table of the library, valid for ever. Never blocks, never fails.
#ifdef __cplusplus
extern \"C\"
#endif
const accelrt_table *accelrt_get_table(void);
#else
// A program that defines ACCELRT_TABLE, as the name of a `const accelrt_table *` of its own, before
// it includes this header calls every function through that.
{macros}#endif
"
    )
}

fn generated() -> String {
    let declarations = declarations();
    let table = table(&declarations);
    format!(
        "{HEAD}\n#ifndef ACCELRT_H\n#define ACCELRT_H\n\n\
         #include <stddef.h>\n#include <stdint.h>\n\n\
         {}\n{table}\n#endif // ACCELRT_H\n",
        declarations.trim_start()
    )
}

#[test]
fn the_header_is_that_of_the_code() {
    let there = fs::read_to_string(path()).unwrap_or_default();
    let generated = generated();
    let differing = (1..).zip(there.lines().zip(generated.lines())).find(|(_, (a, b))| a != b);
    assert!(there == generated, "`make header` writes it: {differing:?}");
}

#[test]
fn the_table_has_every_function_once() {
    let declarations = declarations();
    let mut declared: Vec<_> =
        functions(&declarations).iter().map(|function| function.name.to_owned()).collect();
    let mut listed = listed();
    declared.sort();
    listed.sort();
    assert_eq!(declared, listed);
    assert!(listed.windows(2).all(|pair| pair[0] != pair[1]), "twice in the table");
}

#[test]
fn the_documentation_names_every_function() {
    let page = fs::read_to_string(root().join("docs/c.md")).expect("docs/c.md can be read");
    let table = page.split("## Functions").nth(1).expect("it has a table of functions");
    let is_missing = |name: &String| {
        let short = name.trim_start_matches("accelrt_");
        !table.contains(&format!("`{short}`"))
    };
    assert_eq!(listed().into_iter().filter(is_missing).collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
#[ignore = "writes a file: `make header`"]
fn the_header_is_written() {
    fs::create_dir_all(path().parent().expect("a file is in a folder")).expect("a folder");
    fs::write(path(), generated()).expect("the header can be written");
}
