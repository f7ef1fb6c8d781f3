//! The calls that printed lines of oneMKL, oneDNN and this runtime report.
//!
//! A line may be cut off or mixed with other text. A malformed line is not a call. A line may
//! contain several keywords, because processes that share an output cut each other's lines: each
//! keyword begins a new part of the line.

use std::borrow::Cow;

use crate::verbose::library::VerboseLibrary;

/// The maximum length of a verbose line from its keyword on. A longer line is not read as a call.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;

/// The parts of a line of oneDNN 1.1 to 3, unless a header that the library prints before its first
/// call lists others.
const TEMPLATE: &str = "operation,engine,primitive,implementation,prop_kind,memory_descriptors,\
                        attributes,auxiliary,problem_desc,exec_time";
/// The same before 1.1, when the library was called MKL-DNN and printed no header.
const MKLDNN_TEMPLATE: &str = "operation,primitive,implementation,prop_kind,memory_descriptors,\
                               auxiliary,problem_desc,exec_time";
/// A partition of a graph, from 3.3 on.
const GRAPH_TEMPLATE: &str = "operation,engine,partition_id,partition_kind,op_names,data_formats,\
                              logical_tensors,fpmath_mode,implementation,backend,exec_time";
/// The same up to 3.2, which printed no header and a keyword for graphs.
const OLD_GRAPH_TEMPLATE: &str = "operation,engine,partition_id,partition_kind,op_names,\
                                  data_formats,logical_tensors,fpmath_mode,backend,exec_time";
/// A single operation of a graph: `_gen_index(name),7,attrs:{},inputs:{},outputs:{}`.
const GRAPH_OP_TEMPLATE: &str = "operation,engine,op,op_details,exec_time";
/// The parts of a line of this runtime.
const RUNTIME_PARTS: [&str; 6] = ["kind", "device", "stream", "what", "bytes", "ms"];

/// The keywords, which may follow other text.
const KEYWORDS: [(&str, Dialect); 8] = [
    ("MKL_VERBOSE ", Dialect::Mkl),
    ("accelrt_verbose,", Dialect::Accelrt),
    ("onednn_verbose,", Dialect::OneDnn(Format::Primitive)),
    ("onednn_graph_verbose,", Dialect::OneDnn(Format::OldGraph)),
    ("dnnl_verbose,", Dialect::OneDnn(Format::Primitive)),
    ("dnnl_graph_verbose,", Dialect::OneDnn(Format::OldGraph)),
    ("mkldnn_verbose,", Dialect::OneDnn(Format::MklDnn)),
    ("mkldnn_graph_verbose,", Dialect::OneDnn(Format::OldGraph)),
];

#[derive(Clone, Copy, Debug)]
enum Dialect {
    Mkl,
    Accelrt,
    OneDnn(Format),
}

impl Dialect {
    fn library(self) -> VerboseLibrary {
        match self {
            Self::Mkl => VerboseLibrary::Mkl,
            Self::Accelrt => VerboseLibrary::Accelrt,
            Self::OneDnn(_) => VerboseLibrary::OneDnn,
        }
    }
}

/// The formats of oneDNN: each version has one for primitives and one for graphs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Format {
    Primitive,
    MklDnn,
    Graph,
    OldGraph,
}

/// One call: the library that printed it, its name, its duration, and its fields in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct VerboseRecord {
    /// The library that printed the line.
    pub library: VerboseLibrary,
    /// The name of the function or primitive.
    pub name: String,
    /// The duration in milliseconds.
    pub ms: f64,
    /// The other parts of the line, by name.
    pub fields: Vec<(String, String)>,
    /// The line from its keyword on, without colours and its end.
    pub line: String,
}

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum VerboseLine {
    /// A call of the library.
    Call(VerboseRecord),
    /// A line with which a library introduces itself or its lines.
    Introduction,
    /// Any other line.
    Other,
}

impl VerboseLine {
    /// The record of a call.
    #[must_use]
    pub fn call(self) -> Option<VerboseRecord> {
        match self {
            Self::Call(record) => Some(record),
            Self::Introduction | Self::Other => None,
        }
    }
}

/// The first keyword of a text: where it begins, where it ends, and the library that prints it.
pub(super) fn first_keyword(
    text: &[u8],
    libraries: &[VerboseLibrary],
) -> Option<(usize, usize, VerboseLibrary)> {
    let found = KEYWORDS.iter().filter(|(_, dialect)| libraries.contains(&dialect.library()));
    let found = found.filter_map(|(word, dialect)| {
        let start = text.windows(word.len()).position(|part| part == word.as_bytes())?;
        Some((start, start + word.len(), dialect.library()))
    });
    found.min_by_key(|(start, ..)| *start)
}

/// The number of bytes at the end of a text that may be the beginning of a keyword.
pub(super) fn begun_keyword(text: &[u8], libraries: &[VerboseLibrary]) -> usize {
    let words = KEYWORDS.iter().filter(|(_, dialect)| libraries.contains(&dialect.library()));
    let begun = words.flat_map(|(word, _)| {
        (1..word.len()).filter(|length| text.ends_with(&word.as_bytes()[..*length]))
    });
    begun.max().unwrap_or(0)
}

/// Reads lines in the order in which they were printed: headers say what later lines mean.
#[derive(Debug)]
pub struct VerboseParser {
    /// The names of the parts, by format.
    templates: [Vec<String>; 4],
}

impl Default for VerboseParser {
    fn default() -> Self {
        let templates = [TEMPLATE, MKLDNN_TEMPLATE, GRAPH_TEMPLATE, OLD_GRAPH_TEMPLATE];
        Self { templates: templates.map(names) }
    }
}

fn names(template: &str) -> Vec<String> {
    template.split(',').map(str::to_owned).collect()
}

impl VerboseParser {
    /// Reads the next line; returns the meaning of each of its parts that begins with a keyword.
    pub fn read(&mut self, line: &str) -> Vec<VerboseLine> {
        let line = without_colours(line);
        let mut rest = next_part(&line);
        let mut meanings = Vec::new();
        while let Some((part, length, dialect)) = rest {
            let next = next_part(&part[length..]);
            let end = next.map_or(part.len(), |(next, ..)| part.len() - next.len());
            meanings.push(if part.trim_end_matches('\n').len() > MAX_LINE_BYTES {
                VerboseLine::Other
            } else {
                self.read_part(&part[..end], length, dialect, next.is_some())
            });
            rest = next;
        }
        meanings
    }

    /// Reads a part of a line. The part begins with a keyword of `length` bytes. `is_cut` is true
    /// when another part follows, because another process may have interrupted this part.
    fn read_part(
        &mut self,
        part: &str,
        length: usize,
        dialect: Dialect,
        is_cut: bool,
    ) -> VerboseLine {
        let line = part.trim_end();
        let text = line.get(length..).unwrap_or_default();
        let call = match dialect {
            Dialect::Mkl => mkl_call(text),
            // These lines end with a time. A prefix of a time is a number too, so a cut line could
            // report a wrong time.
            Dialect::Accelrt | Dialect::OneDnn(_) if is_cut => return VerboseLine::Other,
            Dialect::Accelrt => runtime_call(text),
            Dialect::OneDnn(format) => {
                let parts = Parts::new(text, format);
                let template = &mut self.templates[parts.format as usize];
                if let Some(names) = parts.template() {
                    *template = names;
                }
                parts.call(template)
            }
        };
        match call {
            Some(Call { name, ms, fields }) => {
                let (library, line) = (dialect.library(), line.to_owned());
                VerboseLine::Call(VerboseRecord { library, name, ms, fields, line })
            }
            None if is_introduction(text) => VerboseLine::Introduction,
            None => VerboseLine::Other,
        }
    }
}

/// The rest of a text from its first keyword on, the keyword's length and its dialect.
fn next_part(text: &str) -> Option<(&str, usize, Dialect)> {
    let found =
        KEYWORDS.iter().filter_map(|(word, dialect)| Some((text.find(word)?, word, dialect)));
    let (start, word, dialect) = found.min_by_key(|(start, ..)| *start)?;
    Some((&text[start..], word.len(), *dialect))
}

/// A line without the escape sequences by which terminals change colours.
fn without_colours(line: &str) -> Cow<'_, str> {
    if !line.contains('\u{1b}') {
        return Cow::Borrowed(line);
    }
    let mut parts = line.split('\u{1b}');
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (parameters, rest) = match part.strip_prefix('[') {
            Some(rest) => (' '..='?', rest),
            None => (' '..='/', part),
        };
        let rest = rest.trim_start_matches(|it: char| parameters.contains(&it));
        // A sequence that is cut off may be followed by a line.
        let is_final = rest.starts_with(|it: char| ('0'..='~').contains(&it))
            && KEYWORDS.iter().all(|(word, _)| !rest.starts_with(word));
        shown.push_str(&rest[usize::from(is_final)..]);
    }
    Cow::Owned(shown)
}

/// True for a line that oneMKL prints, also where it is cut off behind its call.
pub(super) fn is_of_mkl(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    let line = without_colours(&line);
    let text = line.strip_prefix(KEYWORDS[0].0).unwrap_or(&line);
    is_introduction(text) || mkl_call(text).is_some() || text.contains(" CNR:")
}

struct Call {
    name: String,
    ms: f64,
    fields: Vec<(String, String)>,
}

/// True for the lines with which oneMKL and oneDNN describe themselves and their devices.
fn is_introduction(text: &str) -> bool {
    ["oneMKL ", "Intel(R) ", "Detected "].iter().any(|word| text.starts_with(word))
        || text.split(',').any(|part| part == "info")
}

/// `DGEMM(N,N,64) 12.5us CNR:OFF NThr:2`: the first bracket that a time follows ends the call.
fn mkl_call(text: &str) -> Option<Call> {
    let (name, _) = text.split_once('(')?;
    if name.is_empty() || name.contains(char::is_whitespace) || text.contains('\n') {
        return None;
    }
    let mut ends = text.match_indices(") ").filter(|(end, _)| *end >= name.len());
    let (end, ms, rest) = ends.find_map(|(end, _)| {
        let behind = &text[end + 2..];
        let (time, rest) = behind.split_once(char::is_whitespace).unwrap_or((behind, ""));
        Some((end, mkl_ms(time)?, rest))
    })?;
    let mut fields = vec![("call".to_owned(), text[..=end].to_owned())];
    for part in rest.split_whitespace() {
        if let Some((key, value)) = part.split_once(':').filter(|(_, value)| !value.is_empty()) {
            set(&mut fields, key, value);
        }
    }
    ms.is_finite().then(|| Call { name: name.to_owned(), ms, fields })
}

fn mkl_ms(time: &str) -> Option<f64> {
    let digits = time.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let unit_ms = match &time[digits.len()..] {
        "ns" => 1e-6,
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        _ => return None,
    };
    number(digits).map(|value| value * unit_ms)
}

fn runtime_call(text: &str) -> Option<Call> {
    let parts: Vec<_> = text.split(',').collect();
    let [.., what, _, ms] = parts[..] else { return None };
    let ms = number(ms).filter(|_| parts.len() == RUNTIME_PARTS.len() && !what.is_empty())?;
    let fields = RUNTIME_PARTS.iter().zip(&parts);
    let fields = fields.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Some(Call { name: what.to_owned(), ms, fields })
}

/// The parts of a line of oneDNN. From 3.3 on, `v1` and a component come first.
struct Parts<'a> {
    texts: Vec<&'a str>,
    timestamp: Option<&'a str>,
    format: Format,
}

impl<'a> Parts<'a> {
    fn new(text: &'a str, format: Format) -> Self {
        let mut parts: Vec<_> = text.split(',').collect();
        let is_version = |part: &str| {
            let digits = part.strip_prefix('v').unwrap_or_default();
            !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit())
        };
        if is_version(parts[0]) {
            parts.remove(0);
        }
        let mut take = |is_it: &dyn Fn(&str) -> bool| {
            let is_there = parts.first().is_some_and(|part| is_it(part));
            is_there.then(|| parts.remove(0))
        };
        let timestamp = take(&|part| number(part).is_some());
        let component = take(&|part| ["primitive", "graph", "ukernel"].contains(&part));
        let has_engine = parts.get(1).is_some_and(|part| ["cpu", "gpu"].contains(part));
        let format = match component {
            Some("graph") => Format::Graph,
            Some(_) => Format::Primitive,
            None if format == Format::MklDnn && has_engine => Format::Primitive,
            None => format,
        };
        Self { texts: parts, timestamp, format }
    }

    /// The names of the parts, if this line is a header.
    fn template(&self) -> Option<Vec<String>> {
        let [kind, first, ..] = self.texts[..] else { return None };
        let first =
            ["prim_", "graph_"].iter().find_map(|it| first.strip_prefix(it)).unwrap_or(first);
        let first = first.strip_prefix("template:").filter(|_| kind == "info")?;
        let is_word = |it: char| it.is_alphanumeric() || it == '_';
        let (first, _) = first.split_at(first.find(|it| !is_word(it)).unwrap_or(first.len()));
        let names = std::iter::once(first).chain(self.texts[2..].iter().copied());
        let names = names.filter(|name| *name != "timestamp").map(str::to_owned);
        (!first.is_empty()).then(|| names.collect())
    }

    /// The call that this line reports.
    fn call(&self, template: &[String]) -> Option<Call> {
        let operation = *self.texts.first()?;
        let (stage, _) = operation.split_once(':').unwrap_or((operation, ""));
        let is_call = operation == "exec" || ["create", "compile"].contains(&stage);
        let (time, texts) = self.texts.split_last().filter(|_| is_call)?;
        let ms = number(time)?;
        let mut texts = texts.to_vec();
        let op =
            texts.get(2).copied().filter(|op| self.format == Format::Graph && op.contains('('));
        let of_op;
        let mut scratchpad = None;
        let template = if op.is_some() {
            of_op = names(GRAPH_OP_TEMPLATE);
            &of_op
        } else {
            // Newer versions print it without naming it in their template.
            let is_it = |text: &&str| text.starts_with("scratchpad:");
            let place = texts.iter().position(is_it).filter(|_| self.format == Format::Graph);
            scratchpad = place.map(|place| texts.remove(place));
            template
        };
        let last = template.len().checked_sub(2).filter(|last| texts.len() > *last)?;
        if texts.get(last + 1).is_some_and(|text| begins_with_time(text)) && op.is_none() {
            return None; // other text follows the line
        }
        // The last part before the time is free text, which may contain commas.
        let text = texts[last..].join(",");
        let values = texts[..last].iter().copied().chain([text.as_str(), *time]);
        let mut fields = Vec::with_capacity(template.len() + 2);
        for (name, value) in template.iter().zip(values) {
            set(&mut fields, name, value);
        }
        for (name, value) in [("scratchpad", scratchpad), ("timestamp", self.timestamp)] {
            if let Some(value) = value {
                set(&mut fields, name, value.strip_prefix("scratchpad:").unwrap_or(value));
            }
        }
        let name = match op {
            Some(op) => op.split('(').next().map(str::to_owned),
            None => ["primitive", "partition_kind"].into_iter().find_map(|key| {
                let field = fields.iter().find(|(name, value)| name == key && !value.is_empty());
                field.map(|(_, value)| value.clone())
            }),
        };
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned());
        if name.contains(char::is_whitespace) {
            return None;
        }
        let name = if operation == "exec" { name } else { format!("{name} {operation}") };
        Some(Call { name, ms, fields })
    }
}

/// True for a text that begins with a complete number. False for the sizes of a problem, such as
/// `64x64`.
fn begins_with_time(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_digit() || it == '.';
    text.starts_with(|it: char| it.is_ascii_digit())
        && !text.trim_start_matches(is_part).starts_with('x')
}

/// Adds a field, or gives it another value.
fn set(fields: &mut Vec<(String, String)>, key: &str, value: &str) {
    match fields.iter_mut().find(|(name, _)| name == key) {
        Some((_, old)) => value.clone_into(old),
        None => fields.push((key.to_owned(), value.to_owned())),
    }
}

/// A decimal number without a sign, as libraries print times.
fn number(text: &str) -> Option<f64> {
    let is_one = text.starts_with(|it: char| it.is_ascii_digit())
        && text.ends_with(|it: char| it.is_ascii_digit())
        && text.bytes().all(|it| it.is_ascii_digit() || b".eE+-".contains(&it));
    text.parse().ok().filter(|value: &f64| is_one && value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_a_line_has_twice_is_one_with_its_last_value() {
        let line = "MKL_VERBOSE DGEMM(1) 2us CNR:OFF NThr:2 CNR:AVX2";
        let read = VerboseParser::default().read(line);
        let [VerboseLine::Call(record)] = &read[..] else { panic!("it is a call") };
        let fields = record.fields.iter().map(|(name, value)| format!("{name}={value}"));
        assert_eq!(fields.collect::<Vec<_>>(), ["call=DGEMM(1)", "CNR=AVX2", "NThr=2"]);
    }
}
