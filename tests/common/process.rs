//! Programs: this test binary run again, with a name in the environment that says what to be.

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::watchdog::receive_within;

/// Names the program that a process is.
const PROGRAM: &str = "ACCELRT_TEST_PROGRAM";

/// Far beyond what any program takes: only a hang lasts as long.
const HANG: Duration = Duration::from_secs(30);

/// The program that this process was started as, if any.
pub(crate) fn program() -> Option<String> {
    std::env::var(PROGRAM).ok()
}

/// Starts the program `name` of the test function `entry` (`module::function`, ignored by itself),
/// and waits for its end. Panics when it hangs.
pub(crate) fn run(entry: &str, name: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    for (inherited, _) in std::env::vars().filter(|(name, _)| name.starts_with("ACCELRT_")) {
        command.env_remove(inherited);
    }
    command
        .args(["--exact", entry, "--ignored", "--nocapture", "--test-threads=2"])
        .env(PROGRAM, name)
        // What these programs leave behind, they leave on purpose; errors are still looked for.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    wait(command.spawn().expect("this binary starts again"), name)
}

/// As `Child::wait_with_output`, with a limit.
fn wait(mut child: Child, name: &str) -> Output {
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    // Both pipes close when the process, and whoever it forked, has ended.
    let stdout = receive_within(HANG, &stdout);
    let stderr = receive_within(HANG, &stderr);
    let (Ok(stdout), Ok(stderr)) = (stdout, stderr) else {
        // It may have ended meanwhile.
        let _ = child.kill();
        panic!("the program {name} hangs");
    };
    let status = child.wait().expect("a child can be waited for");
    Output { status, stdout, stderr }
}

fn read(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (tell, told) = mpsc::channel();
    let mut pipe = pipe.expect("the child's output is piped");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before a pipe broke is what there is.
        let _ = pipe.read_to_end(&mut bytes);
        // Nobody listens any more after a hang.
        let _ = tell.send(bytes);
    });
    told
}

/// Asserts that a program ended well, and returns its standard error.
#[track_caller]
pub(crate) fn stderr_of_success(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("1 passed"), "the program did not run:\n{stdout}\n{stderr}");
    stderr
}
