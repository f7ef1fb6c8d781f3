//! Programs: what an allocator is asked, a step a line. `tests/oracle/README.md` has the words.

/// One step.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) word: &'a str,
    /// What stands behind the word.
    pub(crate) rest: &'a str,
}

impl<'a> Step<'a> {
    fn parse(line: &'a str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Self { word, rest: rest.trim() }
    }

    pub(crate) fn argument(&self, index: usize) -> &'a str {
        let found = self.rest.split_whitespace().nth(index);
        found.unwrap_or_else(|| panic!("{self:?} has no argument {index}"))
    }

    pub(crate) fn number<T: TryFrom<i64>>(&self, index: usize) -> T {
        let number: i64 = self.argument(index).parse().expect("a number");
        T::try_from(number).unwrap_or_else(|_| panic!("{number} in {self:?}"))
    }
}

/// The steps, and where they are run.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub(crate) name: &'a str,
    pub(crate) settings: &'a str,
    pub(crate) device_count: usize,
    pub(crate) capacity_bytes: usize,
    pub(crate) steps: Vec<Step<'a>>,
}

/// The programs of a text; each begins with a line `program NAME`.
pub(crate) fn parse(text: &str) -> Vec<Program<'_>> {
    let mut programs: Vec<Program<'_>> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let step = Step::parse(line);
        if step.word == "program" || programs.is_empty() {
            let name = if step.word == "program" { step.rest } else { "" };
            let (settings, steps) = ("", Vec::new());
            programs.push(Program {
                name,
                settings,
                device_count: 1,
                capacity_bytes: 1 << 36,
                steps,
            });
        }
        let program = programs.last_mut().expect("one was begun");
        match step.word {
            "program" => {}
            "with" => program.settings = step.rest,
            "devices" => program.device_count = step.number(0),
            "capacity" => program.capacity_bytes = step.number(0),
            _ => program.steps.push(step),
        }
    }
    programs
}
