//! What one printed line of oneMKL, oneDNN or this runtime says of a call.
//!
//! A line may be cut off or mixed with other text. A malformed line is no call.

use crate::integrations::verbose::library::VerboseLibrary;

/// The parts of a line of oneDNN 2 and 3, unless a header that the library prints before its first
/// call lists others.
const TEMPLATE: &str = "operation,engine,primitive,implementation,prop_kind,memory_descriptors,\
                        attributes,auxiliary,problem_desc,exec_time";
/// The same for a partition of a graph.
const GRAPH_TEMPLATE: &str = "operation,engine,partition_id,partition_kind,op_names,data_formats,\
                              logical_tensors,fpmath_mode,implementation,backend,exec_time";
/// The parts of a line of this runtime.
const RUNTIME_PARTS: [&str; 6] = ["kind", "device", "stream", "what", "bytes", "ms"];

/// What a line begins with, behind other text.
const WORDS: [(&str, Dialect); 8] = [
    ("MKL_VERBOSE ", Dialect::Mkl),
    ("accelrt_verbose,", Dialect::Accelrt),
    ("onednn_verbose,", Dialect::OneDnn { is_graph: false }),
    ("onednn_graph_verbose,", Dialect::OneDnn { is_graph: true }),
    ("dnnl_verbose,", Dialect::OneDnn { is_graph: false }),
    ("dnnl_graph_verbose,", Dialect::OneDnn { is_graph: true }),
    ("mkldnn_verbose,", Dialect::OneDnn { is_graph: false }),
    ("mkldnn_graph_verbose,", Dialect::OneDnn { is_graph: true }),
];

#[derive(Clone, Copy, Debug)]
enum Dialect {
    Mkl,
    Accelrt,
    OneDnn { is_graph: bool },
}

/// One call: the library that printed it, its name, its duration, and its fields in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VerboseRecord {
    pub(crate) library: VerboseLibrary,
    pub(crate) name: String,
    pub(crate) ms: f64,
    pub(crate) fields: Vec<(String, String)>,
    /// The line from its keyword on, without its end.
    pub(crate) line: String,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum VerboseLine {
    Call(VerboseRecord),
    /// A line with which a library introduces itself or its lines.
    Introduction,
    Other,
}

/// Reads lines in the order in which they were printed: headers say what later lines mean.
#[derive(Debug)]
pub(crate) struct VerboseParser {
    template: Vec<String>,
    graph_template: Vec<String>,
}

impl Default for VerboseParser {
    fn default() -> Self {
        let names = |text: &str| text.split(',').map(str::to_owned).collect();
        Self { template: names(TEMPLATE), graph_template: names(GRAPH_TEMPLATE) }
    }
}

impl VerboseParser {
    /// Reads the next line.
    pub(crate) fn read(&mut self, line: &str) -> VerboseLine {
        let found = WORDS.iter().filter_map(|(word, dialect)| {
            line.find(word).map(|start| (start, start + word.len(), *dialect))
        });
        let Some((start, told, dialect)) = found.min_by_key(|(start, ..)| *start) else {
            return VerboseLine::Other;
        };
        let [line, told] = [start, told].map(|from| line[from..].trim_end_matches(['\r', '\n']));
        let call = match dialect {
            Dialect::Mkl => mkl_call(told),
            Dialect::Accelrt => runtime_call(told),
            Dialect::OneDnn { is_graph } => {
                let parts = Parts::new(told, is_graph);
                let is_graph = parts.is_graph;
                let template = if is_graph { &mut self.graph_template } else { &mut self.template };
                if let Some(names) = parts.template() {
                    *template = names;
                }
                parts.call(template)
            }
        };
        let library = match dialect {
            Dialect::Mkl => VerboseLibrary::Mkl,
            Dialect::Accelrt => VerboseLibrary::Accelrt,
            Dialect::OneDnn { .. } => VerboseLibrary::OneDnn,
        };
        match call {
            Some(Call { name, ms, fields }) => {
                let line = line.to_owned();
                VerboseLine::Call(VerboseRecord { library, name, ms, fields, line })
            }
            None if is_introduction(told) => VerboseLine::Introduction,
            None => VerboseLine::Other,
        }
    }
}

struct Call {
    name: String,
    ms: f64,
    fields: Vec<(String, String)>,
}

/// True for oneMKL's first line, and for what oneDNN says of itself.
fn is_introduction(told: &str) -> bool {
    told.starts_with("oneMKL ") || told.split(',').any(|part| part == "info")
}

/// `DGEMM(N,N,64) 12.5us CNR:OFF NThr:2`: the last bracket with a time behind it ends the call.
fn mkl_call(told: &str) -> Option<Call> {
    let (name, _) = told.split_once('(')?;
    if name.is_empty() || name.contains(char::is_whitespace) || told.contains('\n') {
        return None;
    }
    let ends = told.rmatch_indices(") ").filter(|(end, _)| *end >= name.len());
    let (end, ms, rest) = ends.into_iter().find_map(|(end, _)| {
        let (time, rest) = told[end + 2..].split_once(' ').unwrap_or((&told[end + 2..], ""));
        Some((end, mkl_ms(time)?, rest))
    })?;
    let mut fields = vec![("call".to_owned(), told[..=end].to_owned())];
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

fn runtime_call(told: &str) -> Option<Call> {
    let parts: Vec<_> = told.split(',').collect();
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
    is_graph: bool,
}

impl<'a> Parts<'a> {
    fn new(told: &'a str, is_graph: bool) -> Self {
        let mut parts: Vec<_> = told.split(',').collect();
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
        let component = take(&|part| ["primitive", "graph"].contains(&part));
        let is_graph = component.map_or(is_graph, |name| name == "graph");
        Self { texts: parts, timestamp, is_graph }
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

    /// The call, if this line tells of one.
    fn call(&self, template: &[String]) -> Option<Call> {
        let operation = *self.texts.first()?;
        let is_call = ["exec", "create"].contains(&operation) || operation.starts_with("create:");
        if !is_call || template.len() < 2 || self.texts.len() < template.len() {
            return None;
        }
        let (time, parts) = self.texts.split_last()?;
        let ms = number(time)?;
        // The last part before the time is free text, which may contain commas.
        let last = template.len() - 2;
        let text = parts[last..].join(",");
        let values = parts[..last].iter().copied().chain([text.as_str(), *time]);
        let mut fields = Vec::with_capacity(template.len() + 1);
        for (name, value) in template.iter().zip(values) {
            set(&mut fields, name, value);
        }
        if let Some(timestamp) = self.timestamp {
            set(&mut fields, "timestamp", timestamp);
        }
        let named = ["primitive", "partition_kind"].into_iter().find_map(|key| {
            let field = fields.iter().find(|(name, value)| name == key && !value.is_empty());
            field.map(|(_, value)| value.clone())
        });
        let name = named.unwrap_or_else(|| "unknown".to_owned());
        let name = if operation == "exec" { name } else { format!("{name} {operation}") };
        Some(Call { name, ms, fields })
    }
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_a_line_has_twice_is_one_with_its_last_value() {
        let line = "MKL_VERBOSE DGEMM(1) 2us CNR:OFF NThr:2 CNR:AVX2";
        let VerboseLine::Call(record) = VerboseParser::default().read(line) else {
            panic!("it is a call")
        };
        let fields = record.fields.iter().map(|(name, value)| format!("{name}={value}"));
        assert_eq!(fields.collect::<Vec<_>>(), ["call=DGEMM(1)", "CNR=AVX2", "NThr=2"]);
    }
}
