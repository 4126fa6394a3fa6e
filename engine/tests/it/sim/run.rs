//! The workload: one life of a process that has the store open.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::BufReader;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rederive_disk::{Disk, sim::SimDisk};
use rederive_engine::{
    AppendError, Durability, ForkError, ImportError, IndexError, JournalError, NewSession, SegmentError, Seq,
    Session, SessionId, Store, StoreError, StoreOptions, object_member,
};
use rederive_fuzz::workload::{self, Operation, Options};

use super::history::{Entry, History, Log};
use super::lines::{check_against_model, read_all};
use super::random::Random;

pub(crate) const FOLDER: &str = "/store";
const SESSIONS_MAX: usize = 5;

/// What the workload makes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Power was lost: the life is over.
    Cut,
    /// An operation failed: go on as a host would, and open the store anew where it refuses.
    Fault,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Closed,
    Cut,
}

/// Small limits, so that every threshold is passed; no thread, no clock.
pub(crate) fn options() -> StoreOptions {
    StoreOptions::default()
        .segment_bytes(4096)
        .journal_switch_bytes(24 * 1024)
        .zstd_level(1)
        .lock_timeout(Duration::from_millis(20))
        .clock(Arc::new(|| 1_800_000_000_000))
        .seal_inline()
}

/// An error that a caller can act on: none of these says that the store is damaged.
fn assert_typed(error: &StoreError, context: &str) {
    match error {
        StoreError::Seal { source } => assert_typed(source, context),
        StoreError::Gap { .. }
        | StoreError::Inconsistent { .. }
        | StoreError::Internal { .. }
        | StoreError::Version { .. }
        | StoreError::Restless { .. }
        | StoreError::Index(IndexError::Damaged { .. } | IndexError::Version { .. })
        | StoreError::Journal(JournalError::Damaged { .. } | JournalError::Version { .. }) => {
            panic!("{context}: a failed operation is no damage: {error:?}")
        }
        StoreError::Segment(error) => assert!(
            !matches!(error, SegmentError::Damaged { .. } | SegmentError::Missing { .. }),
            "{context}: a failed operation is no damage: {error:?}"
        ),
        _ => {}
    }
}

/// Why an operation of the workload did not come to its end.
#[derive(Debug)]
enum Failed {
    /// The store is to be opened anew.
    Reopen(Box<dyn Error>),
    /// The store goes on.
    GoesOn(Box<dyn Error>),
}

impl From<AppendError> for Failed {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Refused(refusal) => panic!("refused: {refusal}"),
            AppendError::Journal(error @ JournalError::Write { .. }) => Self::GoesOn(error.into()),
            AppendError::Journal(error) => Self::from(StoreError::from(error)),
            error => panic!("{error:?}"),
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        assert_typed(&error, "workload");
        Self::Reopen(error.into())
    }
}

/// One life: opens the store (making it where it was never made), does `operations` things, closes.
pub(crate) fn run(disk: &SimDisk, seed: u64, mode: Mode, operations: u64, history: &mut History) -> Outcome {
    let mut life = Life { disk, mode, random: Random(seed), history, store: None, open: BTreeMap::new() };
    if !life.reopen() {
        return Outcome::Cut;
    }
    let mut patience = 0;
    for _ in 0..operations {
        match life.operate() {
            Ok(()) => {}
            Err(failed) if mode == Mode::Cut => {
                assert!(disk.power_lost(), "seed {seed}: failed without a cut: {failed:?}");
                return Outcome::Cut;
            }
            Err(Failed::GoesOn(error)) => {
                trace(|| format!("goes on: {error:?}"));
                life.check_open();
            }
            Err(Failed::Reopen(error)) => {
                trace(|| format!("refused: {error:?}"));
                life.check_open();
                // A host may go on with what refuses: nothing gets worse.
                patience += 1;
                if patience == 3 || life.random.one_in(2) {
                    patience = 0;
                    assert!(life.reopen(), "seed {seed}");
                }
            }
        }
    }
    life.check_open();
    let closed = life.close();
    match closed {
        Err(failed) if mode == Mode::Cut => {
            assert!(disk.power_lost(), "seed {seed}: failed without a cut: {failed:?}");
            Outcome::Cut
        }
        Ok(()) | Err(_) => Outcome::Closed,
    }
}

/// Says what happens, where `REDERIVE_TRACE` asks for it.
fn trace(what: impl FnOnce() -> String) {
    if std::env::var_os("REDERIVE_TRACE").is_some() {
        println!("{}", what());
    }
}

struct Life<'a> {
    disk: &'a SimDisk,
    mode: Mode,
    random: Random,
    history: &'a mut History,
    store: Option<Store>,
    open: BTreeMap<String, Session>,
}

impl Life<'_> {
    fn store(&self) -> Store {
        self.store.clone().unwrap()
    }

    fn log(&mut self, id: &str) -> &mut Log {
        self.history.logs.get_mut(id).unwrap()
    }

    /// Lets go of everything and opens the store; `false` where power is lost.
    fn reopen(&mut self) -> bool {
        self.open.clear();
        self.store = None;
        if self.mode == Mode::Fault && self.history.is_made {
            // What was begun when it failed is settled by what is there.
            self.disk.heal();
            self.history.survives(self.disk, super::Floor::Visible, "reopened after a failure");
        }
        for attempt in 0..4 {
            let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
            let opened = if self.history.is_made {
                Store::open_on(disk, FOLDER, options())
            } else {
                match Store::create_on(Arc::clone(&disk), FOLDER, options()) {
                    Err(StoreError::Exists { .. }) => Store::open_on(disk, FOLDER, options()),
                    made => made,
                }
            };
            match opened {
                Ok(store) => {
                    self.store = Some(store);
                    self.history.is_made = true;
                    return true;
                }
                Err(_) if self.mode == Mode::Cut && self.disk.power_lost() => return false,
                Err(error) => {
                    assert_eq!(self.mode, Mode::Fault, "cannot open: {error:?}");
                    assert_typed(&error, "opening");
                    assert!(attempt < 3, "cannot open: {error:?}");
                    if attempt == 2 {
                        self.disk.heal();
                    }
                }
            }
        }
        unreachable!("the last attempt returns or panics")
    }

    /// Every open session is as far as it is known to be.
    fn check_open(&mut self) {
        for (id, session) in &self.open {
            let log = &self.history.logs[id];
            // A batch in the air may be visible or not.
            if !log.is_in_the_air() {
                check_against_model(&session.fold(), &log.model, &format!("{id}, open"));
            }
        }
    }

    fn close(&mut self) -> Result<(), Failed> {
        while let Some((id, session)) = self.open.pop_first() {
            session.close()?;
            self.sealed(&id);
        }
        self.store.take().unwrap().close()?;
        self.history.all_synced();
        Ok(())
    }

    fn sealed(&mut self, id: &str) {
        let log = self.log(id);
        log.synced = log.visible;
    }

    fn some_open(&mut self) -> Option<String> {
        let at = self.random.index(self.open.len());
        self.open.keys().nth(at).cloned()
    }

    fn some_closed(&mut self) -> Option<String> {
        let closed: Vec<&String> = self
            .history
            .logs
            .iter()
            .filter(|(id, log)| log.is_certain && !log.is_in_the_air() && !self.open.contains_key(*id))
            .map(|(id, _)| id)
            .collect();
        closed.get(self.random.index(closed.len())).map(|id| (*id).clone())
    }

    fn new_name(&mut self) -> String {
        self.history.names += 1;
        format!("s{}", self.history.names)
    }

    fn generated(&mut self) -> Vec<String> {
        let seed = self.random.next();
        let turns = 1 + self.random.below(4);
        let options = Options::swarm(seed).turns(turns).without(Operation::OddKeys);
        workload::random(seed, &options).collect()
    }

    fn operate(&mut self) -> Result<(), Failed> {
        let choice = self.random.below(24);
        trace(|| {
            let known = |(id, log): (&String, &Log)| {
                format!("{id} {}/{}/{}", log.synced, log.visible, log.entries.len())
            };
            let logs: Vec<String> = self.history.logs.iter().map(known).collect();
            format!("choice {choice} at {}, open {:?}, {logs:?}", self.disk.operations(), self.open.keys())
        });
        match choice {
            0 | 1 => self.create(),
            2..10 => self.append(),
            10 => self.flush(),
            11 => self.seal_one(),
            12 => self.seal_all(),
            13 | 14 => self.close_one(),
            15..18 => self.open_one(),
            18 => self.fork(),
            19 => self.delete(),
            20 => self.sweep(),
            21 => self.import(),
            22 => self.read_one(),
            _ => self.restart(),
        }
    }

    fn create(&mut self) -> Result<(), Failed> {
        if self.open.len() >= SESSIONS_MAX {
            return Ok(());
        }
        let id = self.new_name();
        let generated = Arc::from(self.generated().split_off(1));
        self.history.logs.insert(id.clone(), Log::new(generated));
        let session = self.store().create_session(NewSession::new(&id))?;
        self.log(&id).is_certain = true;
        self.open.insert(id, session);
        Ok(())
    }

    fn append(&mut self) -> Result<(), Failed> {
        let Some(id) = self.some_open() else { return self.create() };
        if self.log(&id).is_in_the_air() {
            return Ok(());
        }
        let count = 1 + self.random.index(6);
        let durability = if self.random.one_in(2) { Durability::Synced } else { Durability::Buffered };
        let entries = self.log(&id).next_lines(count);
        if entries.is_empty() {
            return Ok(()); // an empty batch does nothing, and syncs nothing
        }
        let lines: Vec<Bytes> = entries.iter().map(|entry| Bytes::from(entry.line.clone())).collect();
        self.log(&id).attempt(entries);
        let appended = self.open.get_mut(&id).unwrap().append_lines(&lines, durability);
        let ticket = match appended {
            Ok(ticket) => ticket,
            Err(error) => {
                // A frame that could not be taken back may turn up after a loss of power.
                let in_the_air = matches!(error, AppendError::Journal(JournalError::Sync { .. }));
                if self.mode == Mode::Fault && !in_the_air {
                    self.log(&id).refute();
                }
                return Err(error.into());
            }
        };
        let log = self.log(&id);
        log.confirm();
        ticket.wait().map_err(StoreError::from)?;
        let log = self.log(&id);
        if durability == Durability::Synced {
            log.synced = log.visible;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failed> {
        let Some(id) = self.some_open() else { return Ok(()) };
        self.open[&id].flush()?;
        for id in self.open.keys() {
            let log = self.history.logs.get_mut(id).unwrap();
            log.synced = log.visible;
        }
        Ok(())
    }

    fn seal_one(&mut self) -> Result<(), Failed> {
        let Some(id) = self.some_open() else { return Ok(()) };
        self.open[&id].seal()?;
        self.sealed(&id);
        Ok(())
    }

    fn seal_all(&mut self) -> Result<(), Failed> {
        let store = self.store();
        if let Err(error) = store.seal_all() {
            // A segment that could not be written is written by the next round.
            let of_index = matches!(&error, StoreError::Seal { source }
                if matches!(**source, StoreError::Index(_) | StoreError::Journal(_)));
            if self.mode == Mode::Cut || of_index || self.random.one_in(2) {
                return Err(error.into());
            }
            assert_typed(&error, "sealing");
            self.check_open();
            store.seal_all()?;
        }
        for id in self.open.keys() {
            let log = self.history.logs.get_mut(id).unwrap();
            log.synced = log.visible;
        }
        Ok(())
    }

    fn close_one(&mut self) -> Result<(), Failed> {
        let Some(id) = self.some_open() else { return Ok(()) };
        let session = self.open.remove(&id).unwrap();
        if self.random.one_in(4) {
            drop(session);
            // Sealed by now, or in the journal: nobody says which.
            if self.store().read_session(&SessionId::new(&id).unwrap())?.owner().is_some() {
                return Err(Failed::Reopen("letting go failed".into()));
            }
        } else {
            session.close()?;
        }
        self.sealed(&id);
        Ok(())
    }

    fn open_one(&mut self) -> Result<(), Failed> {
        let Some(id) = self.some_closed() else { return self.create() };
        let name = SessionId::new(&id).unwrap();
        let store = self.store();
        // What readers are shown is what the next writer appends.
        let shown = read_all(&store.read_session(&name)?.with_closers());
        self.log(&id).may_resume = true;
        let session = store.open_session(&name)?;
        let lines = read_all(&session.reader());
        let log = self.log(&id);
        assert!(lines.starts_with(&shown), "{id}: the closers that were shown");
        assert!(lines.len() <= shown.len() + 1, "{id}: closers and one marker");
        log.adopt_end(&lines);
        log.may_resume = false;
        check_against_model(&session.fold(), &log.model, &format!("{id}, just opened"));
        self.open.insert(id, session);
        Ok(())
    }

    fn fork(&mut self) -> Result<(), Failed> {
        let ids: Vec<String> = self.history.logs.keys().cloned().collect();
        let Some(parent) = ids.get(self.random.index(ids.len())) else { return Ok(()) };
        let log = &self.history.logs[parent];
        if log.visible == 0 || !log.is_certain || log.is_in_the_air() || self.open.len() >= SESSIONS_MAX {
            return Ok(());
        }
        let at = self.random.index(log.visible);
        let is_place = log.is_outside_of_turns(at);
        let mut child = log.fork(at + 1);
        if is_place {
            child.attempt(vec![Entry { line: marker(&child), from: None }]);
        }
        let id = self.new_name();
        let name = SessionId::new(parent).unwrap();
        if is_place {
            self.history.logs.insert(id.clone(), child);
        }
        match self.store().fork_session(&name, Seq::new(at as u64), NewSession::new(&id)) {
            Ok(session) => {
                assert!(is_place, "{parent}: forked inside a turn, at {at}");
                let log = self.log(&id);
                log.confirm();
                log.is_certain = true;
                check_against_model(&session.fold(), &log.model, &format!("{id}, forked"));
                self.open.insert(id, session);
                if self.open.contains_key(parent) {
                    self.sealed(&parent.clone());
                }
                Ok(())
            }
            Err(ForkError::OpenTurn { .. }) => {
                assert!(!is_place, "{parent}: a turn is open behind {at}");
                Ok(())
            }
            Err(ForkError::Store(error)) => Err(error.into()),
            Err(error) => panic!("{parent} at {at}: {error:?}"),
        }
    }

    fn delete(&mut self) -> Result<(), Failed> {
        let Some(id) = self.some_closed() else { return Ok(()) };
        self.log(&id).is_certain = false;
        self.store().delete_session(&SessionId::new(&id).unwrap())?;
        self.history.logs.remove(&id);
        Ok(())
    }

    fn sweep(&mut self) -> Result<(), Failed> {
        self.store().sweep()?;
        for id in self.open.keys() {
            let log = self.history.logs.get_mut(id).unwrap();
            log.synced = log.visible;
        }
        Ok(())
    }

    fn import(&mut self) -> Result<(), Failed> {
        if self.history.logs.len() >= 2 * SESSIONS_MAX {
            return self.delete();
        }
        let id = self.new_name();
        let mut generated = self.generated();
        let header = generated.remove(0);
        let name = object_member(&header, "id").unwrap();
        let header = header.replace(name, &format!("\"{id}\""));
        let text: Vec<&str> =
            std::iter::once(header.as_str()).chain(generated.iter().map(String::as_str)).collect();
        let text = text.join("\n");
        let entries =
            generated.iter().enumerate().map(|(from, line)| Entry { line: line.clone(), from: Some(from) });
        let mut log = Log::new(Arc::from(generated.clone()));
        log.attempt(entries.collect());
        self.history.logs.insert(id.clone(), log);
        match self.store().import(BufReader::new(text.as_bytes())) {
            Ok(imported) => assert_eq!(imported.events(), generated.len() as u64),
            Err(ImportError::Store(error)) => return Err(error.into()),
            Err(error) => panic!("{error:?}"),
        }
        let log = self.log(&id);
        log.confirm();
        log.synced = log.visible;
        log.is_certain = true;
        Ok(())
    }

    fn read_one(&mut self) -> Result<(), Failed> {
        let ids: Vec<&String> = self.history.logs.keys().collect();
        let Some(id) = ids.get(self.random.index(ids.len())) else { return Ok(()) };
        let log = &self.history.logs[*id];
        if !log.is_certain || log.is_in_the_air() {
            return Ok(());
        }
        let reader = self.store().read_session(&SessionId::new(id).unwrap())?;
        check_against_model(reader.fold(), &log.model, &format!("{id}, read"));
        let lines: Vec<&str> = log.entries[..log.visible].iter().map(|entry| entry.line.as_str()).collect();
        assert_eq!(read_all(&reader), lines, "{id}, read");
        Ok(())
    }

    fn restart(&mut self) -> Result<(), Failed> {
        self.close()?;
        if self.reopen() { Ok(()) } else { Err(Failed::Reopen("power is lost".into())) }
    }
}

/// The marker that a fork begins with.
fn marker(child: &Log) -> String {
    let last = child.entries.last();
    let last = last.map(|entry| object_member(&entry.line, "time").unwrap().parse::<u64>().unwrap());
    let time = last.unwrap_or(0).max(1_800_000_000_000);
    format!(
        "{{\"type\":\"session/end-seed\",\"seq\":{},\"time\":{time},\"data\":{{\"inherited\":true}}}}",
        child.entries.len()
    )
}
