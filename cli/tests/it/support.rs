//! Stores in folders of their own, and processes that are driven line by line.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// No process may take longer than this for one answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn is_long() -> bool {
    std::env::var_os("REDERIVE_LONG").is_some()
}

/// `short`, or `long` where the long versions were asked for.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// A seeded source of numbers; the seed is printed where the test fails.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        let seed = std::env::var("REDERIVE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        eprintln!("REDERIVE_SEED={seed}");
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A store in a folder that goes when the test ends.
pub(crate) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        run(&self.path(), args)
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        ok(&self.path(), args)
    }

    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    pub(crate) fn writer(&self, id: &str) -> Writer {
        Writer::start(command(&self.path()).args(["append", id]))
    }

    /// The events of a session as the log's lines, the header line aside.
    pub(crate) fn events(&self, id: &str) -> Vec<serde_json::Value> {
        events(&self.path(), id)
    }
}

pub(crate) fn command(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rederive"));
    command.arg("--store").arg(store).env_remove("REDERIVE_STORE");
    command
}

pub(crate) fn run(store: &Path, args: &[&str]) -> Output {
    command(store).args(args).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn ok(store: &Path, args: &[&str]) -> String {
    let output = run(store, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The events of a session, whose seqs must follow each other from zero.
pub(crate) fn events(store: &Path, id: &str) -> Vec<serde_json::Value> {
    let log = ok(store, &["export", id]);
    let events: Vec<serde_json::Value> =
        log.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    for (seq, event) in events.iter().enumerate() {
        assert_eq!(event["seq"], seq as u64, "session {id}");
    }
    events
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An event that is found again by its number.
pub(crate) fn numbered(number: u64) -> String {
    format!("{{\"type\":\"todo/write\",\"data\":{{\"n\":{number}}}}}")
}

/// The same, with so many bytes beside it.
pub(crate) fn numbered_with(number: u64, bytes: usize) -> String {
    format!("{{\"type\":\"todo/write\",\"data\":{{\"n\":{number},\"text\":\"{}\"}}}}", "x".repeat(bytes))
}

/// Sends a signal by its name.
pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
    assert!(status.success(), "kill -{name} {pid}");
}

/// A process that answers by lines; it is killed where it is left.
pub(crate) struct Lines {
    child: Child,
    lines: Receiver<String>,
}

impl Lines {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line; `None` at the end of the output.
    pub(crate) fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no answer of process {} in time", self.child.id()),
        }
    }

    /// Kills the process, and gives the lines that it had printed.
    pub(crate) fn kill(&mut self) -> Vec<String> {
        // It may have ended by itself.
        let _ = self.child.kill();
        self.child.wait().unwrap();
        self.lines.iter().collect()
    }

    /// Waits for the end; gives whether it was a success, and what it said.
    pub(crate) fn end(mut self) -> (bool, String) {
        let status = self.child.wait().unwrap();
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        }
        (status.success(), said)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `rederive append`, with its ends held.
pub(crate) struct Writer {
    pub(crate) lines: Lines,
    input: Option<ChildStdin>,
}

impl Writer {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut lines = Lines::start(command.stdin(Stdio::piped()));
        let input = lines.child.stdin.take();
        Self { lines, input }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.lines.pid()
    }

    /// Sends one event; `false` where the process is gone.
    pub(crate) fn send(&mut self, event: &str) -> bool {
        let input = self.input.as_mut().unwrap();
        input.write_all(format!("{event}\n").as_bytes()).and_then(|()| input.flush()).is_ok()
    }

    /// The next seq that it acknowledges; `None` at its end.
    pub(crate) fn acknowledged(&mut self) -> Option<u64> {
        self.lines.line().map(|line| line.parse().unwrap())
    }

    /// Sends one event, which must be acknowledged.
    pub(crate) fn append(&mut self, event: &str) -> u64 {
        assert!(self.send(event), "the writer is gone");
        match self.acknowledged() {
            Some(seq) => seq,
            None => panic!("the writer ended"),
        }
    }

    /// Ends the input, and waits for the process, which must succeed.
    pub(crate) fn close(mut self) {
        drop(self.input.take());
        let (success, said) = self.lines.end();
        assert!(success, "{said}");
    }

    /// As [`Writer::close`], whatever comes.
    pub(crate) fn end(mut self) -> (bool, String) {
        drop(self.input.take());
        self.lines.end()
    }
}
