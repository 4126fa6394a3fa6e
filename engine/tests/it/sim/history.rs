//! What the host knows of its sessions, and the check of a store against it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rederive_disk::{Disk, sim::SimDisk};
use rederive_engine::{Seq, SessionId, Store, StoreError, object_member};
use rederive_fuzz::Model;

use super::lines::{check_against_model, model_of, moved, read_all};
use super::run::{FOLDER, options};

/// How much of a log must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// What was acknowledged as synced: after a loss of power.
    Synced,
    /// What the store has shown: after a kill.
    Visible,
}

/// One event that was handed to the store.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) line: String,
    /// Its place in the generated log; none where the store wrote it by itself.
    pub(crate) from: Option<usize>,
}

/// What is known of one session.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    generated: Arc<[String]>,
    /// What was written, and behind `visible` what was being written when something failed.
    pub(crate) entries: Vec<Entry>,
    pub(crate) visible: usize,
    pub(crate) synced: usize,
    /// The naive fold of what is visible.
    pub(crate) model: Model,
    /// False while it is being made or deleted.
    pub(crate) is_certain: bool,
    /// Whether an opening failed half-way, so that closers and a marker may follow.
    pub(crate) may_resume: bool,
}

impl Log {
    pub(crate) fn new(generated: Arc<[String]>) -> Self {
        Self {
            generated,
            entries: Vec::new(),
            visible: 0,
            synced: 0,
            model: Model::new().without_requests(),
            is_certain: false,
            may_resume: false,
        }
    }

    /// The next `count` lines, as they come behind what is visible.
    pub(crate) fn next_lines(&self, count: usize) -> Vec<Entry> {
        let mut model = self.model.clone();
        let mut places: BTreeMap<usize, u64> = BTreeMap::new();
        let mut next = 0;
        for (seq, entry) in (0..).zip(&self.entries[..self.visible]) {
            if let Some(from) = entry.from {
                places.insert(from, seq);
                next = from + 1;
            }
        }
        let mut entries = Vec::new();
        // What the store alone writes is no event of a host.
        let of_a_host = |(_, line): &(usize, &String)| {
            let kind = object_member(line, "type").unwrap();
            kind != "\"session/end-seed\"" && kind != "\"request/dispatch\""
        };
        let left = self.generated.iter().enumerate().skip(next).filter(of_a_host);
        for (from, line) in left.take(count) {
            let line = moved(line, &model, |seq| places[&(seq as usize)]);
            model.push_line(&line).unwrap_or_else(|refusal| panic!("moved wrongly: {line}: {refusal}"));
            places.insert(from, model.next_seq() - 1);
            entries.push(Entry { line, from: Some(from) });
        }
        entries
    }

    /// Says that `entries` were handed to the store, which has not answered yet.
    pub(crate) fn attempt(&mut self, entries: Vec<Entry>) {
        assert_eq!(self.visible, self.entries.len(), "one attempt at a time");
        self.entries.extend(entries);
    }

    /// Says that the store took everything.
    pub(crate) fn confirm(&mut self) {
        for entry in &self.entries[self.visible..] {
            self.model.push_line(&entry.line).unwrap();
        }
        self.visible = self.entries.len();
    }

    /// Says that the store took nothing of the attempt.
    pub(crate) fn refute(&mut self) {
        self.entries.truncate(self.visible);
    }

    /// Takes what the store wrote by itself, which reads as `lines`.
    pub(crate) fn adopt_end(&mut self, lines: &[String]) {
        let own = lines.iter().skip(self.visible).map(|line| Entry { line: line.clone(), from: None });
        self.attempt(own.collect());
        self.confirm();
    }

    /// Whether it is not known what the store has taken.
    pub(crate) fn is_in_the_air(&self) -> bool {
        self.visible < self.entries.len() || self.may_resume
    }

    /// Every line that is visible.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.entries[..self.visible].iter().map(|entry| entry.line.as_str()).collect()
    }

    fn line(&self, seq: usize) -> Option<&str> {
        self.entries.get(seq).map(|entry| entry.line.as_str())
    }

    /// Behind which events no turn is open.
    pub(crate) fn is_outside_of_turns(&self, at: usize) -> bool {
        let of_turns = |entry: &&Entry| {
            let kind = object_member(&entry.line, "type").unwrap();
            kind == "\"turn/start\"" || kind == "\"turn/end\""
        };
        let last = self.entries[..=at].iter().rev().find(of_turns);
        last.is_none_or(|entry| entry.line.contains("\"type\":\"turn/end\""))
    }

    /// The child that begins with this log's first events.
    pub(crate) fn fork(&self, behind: usize) -> Self {
        let entries = self.entries[..behind].to_vec();
        let model = model_of(entries.iter().map(|entry| entry.line.as_str()));
        Self { synced: behind, visible: behind, entries, model, ..Self::new(Arc::clone(&self.generated)) }
    }
}

/// What is known of a store.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) logs: BTreeMap<String, Log>,
    /// Whether making the store came to its end.
    pub(crate) is_made: bool,
    pub(crate) names: u64,
}

/// Everything that a second open must leave as it is.
#[derive(Debug, PartialEq, Eq)]
struct Everything {
    logs: BTreeMap<String, Vec<String>>,
    segments: BTreeMap<PathBuf, Vec<u8>>,
}

impl History {
    /// Says that everything that is visible was synced.
    pub(crate) fn all_synced(&mut self) {
        for log in self.logs.values_mut() {
            log.synced = log.visible;
        }
    }

    /// Opens the store on `disk`, which must succeed, and checks all of it, twice; goes on from what
    /// is there.
    pub(crate) fn survives(&mut self, disk: &SimDisk, floor: Floor, context: &str) {
        let Some(first) = self.open_and_check(disk, floor, context) else { return };
        let logs = first.logs.clone();
        let second = self.open_and_check(disk, floor, &format!("{context}, opened again"));
        assert_eq!(Some(first), second, "{context}: a second open changes nothing");
        self.logs.retain(|id, _| logs.contains_key(id));
        for (id, lines) in logs {
            let log = self.logs.get_mut(&id).unwrap();
            log.entries.truncate(lines.len());
            log.visible = log.entries.len();
            log.model = model_of(log.entries.iter().map(|entry| entry.line.as_str()));
            log.adopt_end(&lines);
            log.synced = log.visible;
            log.is_certain = true;
            log.may_resume = false;
        }
    }

    fn open_and_check(&mut self, disk: &SimDisk, floor: Floor, context: &str) -> Option<Everything> {
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let store = match Store::open_on(Arc::clone(&shared), FOLDER, options()) {
            Ok(store) => store,
            Err(StoreError::NoStore { .. }) if !self.is_made => {
                let made = Store::create_on(shared, FOLDER, options());
                let store = made.unwrap_or_else(|error| panic!("{context}: made again: {error:?}"));
                assert_eq!(store.sessions(None, 10).unwrap().len(), 0, "{context}");
                store.close().unwrap();
                return None;
            }
            Err(error) => panic!("{context}: a cut is no damage: {error:?}"),
        };
        self.is_made = true;
        let mut logs = BTreeMap::new();
        for info in store.sessions(None, usize::MAX).unwrap() {
            let id = info.id().as_str();
            let log = self.logs.get(id).unwrap_or_else(|| panic!("{context}: {id} is back"));
            let lines = Self::check(&store, log, id, floor, context);
            assert_eq!(info.events(), lines.len() as u64, "{context}: {id} as listed");
            logs.insert(id.to_owned(), lines);
        }
        for (id, log) in &self.logs {
            assert!(!log.is_certain || logs.contains_key(id), "{context}: {id} is lost");
        }
        store.close().unwrap_or_else(|error| panic!("{context}: close: {error:?}"));
        let mut segments = disk.files();
        segments.retain(|path, _| path.starts_with(Path::new(FOLDER).join("segments")));
        Some(Everything { logs, segments })
    }

    fn check(store: &Store, log: &Log, id: &str, floor: Floor, context: &str) -> Vec<String> {
        let context = format!("{context}: {id}");
        let reader = store.read_session(&SessionId::new(id).unwrap());
        let reader = reader.unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let lines = read_all(&reader);
        let least = match floor {
            Floor::Synced => log.synced,
            Floor::Visible => log.visible,
        };
        assert!(least <= lines.len(), "{context}: {} of {least} events are left", lines.len());
        for (seq, line) in lines.iter().enumerate() {
            match log.line(seq) {
                Some(written) => assert_eq!(line, written, "{context}: event {seq}"),
                None => assert!(log.may_resume, "{context}: event {seq} was never written: {line}"),
            }
        }
        let model = model_of(lines.iter().map(String::as_str));
        check_against_model(reader.fold(), &model, &context);
        // One cut that goes through the middle of a segment.
        let middle = lines.len() as u64 / 2;
        let past = reader.fold_at(Seq::new(middle));
        let past = past.unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let surface: Vec<u64> = past.surface().seqs().into_iter().map(Seq::value).collect();
        assert_eq!(surface, model.surface_at(middle), "{context}: before {middle}");
        assert_eq!(reader.owner(), None, "{context}: nobody writes it");
        lines
    }
}
