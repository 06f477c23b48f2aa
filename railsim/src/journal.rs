//! The journal file: an append-only JSON line for every event of every payment and
//! credit.
//!
//! Promise: once [`Durability::reached`] returns for a number of lines, they are on disk. Lines that
//! wait at the same time share one sync. A last line that a crash tore is cut off at the next
//! start; nobody was told about its event.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
    sync::mpsc,
};

use anyhow::Context as _;
use chassis::error_chain::chain;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{credit, credits::Recipient, payment, rail::Rail};

const FILE_NAME: &str = "journal.jsonl";

/// Approximate limit on the bytes that share one sync.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// One line: what happened, and what it belongs to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JournalLine {
    Payment {
        rail: Rail,
        reference: String,
        event: payment::Event,
    },
    Credit {
        rail: Rail,
        reference: String,
        credit: credit::Event,
    },
    /// A payee became known.
    Recipient { recipient: Recipient },
    /// Somebody added to a float, or took from it.
    Float { rail: Rail, added_minor: i64 },
}

/// Writes lines in the order of the calls.
#[derive(Debug)]
pub struct Journal {
    lines: mpsc::Sender<Vec<u8>>,
    appended: u64,
}

/// Tells how many lines are on disk.
#[derive(Clone, Debug)]
pub struct Durability(watch::Receiver<u64>);

/// The disk refused a line, so nothing more can be promised.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the journal can no longer be written")]
pub struct JournalLost;

impl Journal {
    /// Opens the journal in `folder`, which is created if missing, and reads its lines.
    pub fn open(folder: &Path) -> anyhow::Result<(Self, Durability, Vec<JournalLine>)> {
        let path = folder.join(FILE_NAME);
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        let kept = replay(&mut file).with_context(|| format!("cannot read {}", path.display()))?;
        // The file's entry in the folder must be as durable as its lines.
        File::open(folder)?.sync_all()?;

        let (lines, to_write) = mpsc::channel();
        let (written, durable) = watch::channel(0);
        std::thread::Builder::new()
            .name("railsim-journal".to_owned())
            .spawn(move || write_lines(file, &to_write, &written))?;
        let journal = Self { lines, appended: 0 };
        Ok((journal, Durability(durable), kept))
    }

    pub fn append(&mut self, line: &JournalLine) {
        let mut line = serde_json::to_vec(line).expect("a line has string keys only");
        line.push(b'\n');
        self.appended += 1;
        if self.lines.send(line).is_err() {
            tracing::error!("the journal has ended");
        }
    }

    /// How many lines were appended since the journal was opened.
    pub fn appended(&self) -> u64 {
        self.appended
    }
}

impl Durability {
    /// Waits until this many lines are on disk.
    pub async fn reached(&self, lines: u64) -> Result<(), JournalLost> {
        let mut written = self.0.clone();
        match written.wait_for(|written| *written >= lines).await {
            Ok(_) => Ok(()),
            Err(_) => Err(JournalLost),
        }
    }
}

/// Reads every complete line and cuts off what follows the last one.
fn replay(file: &mut File) -> anyhow::Result<Vec<JournalLine>> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let whole = content
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1);
    if whole < content.len() {
        tracing::warn!(bytes = content.len() - whole, "cut off a torn last line");
        content.truncate(whole);
        file.set_len(u64::try_from(whole)?)?;
        file.sync_all()?;
    }
    content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .enumerate()
        .map(|(index, line)| {
            serde_json::from_slice(line).with_context(|| format!("line {} is broken", index + 1))
        })
        .collect()
}

/// Runs in its own thread until the journal is dropped or the disk refuses a write.
fn write_lines(mut file: File, lines: &mpsc::Receiver<Vec<u8>>, written: &watch::Sender<u64>) {
    let mut count = 0;
    while let Ok(mut batch) = lines.recv() {
        count += 1;
        while batch.len() < BATCH_BYTES_MAX
            && let Ok(line) = lines.try_recv()
        {
            batch.extend_from_slice(&line);
            count += 1;
        }
        if let Err(error) = file.write_all(&batch).and_then(|()| file.sync_data()) {
            tracing::error!(
                error = %chain(&error),
                "the journal is lost"
            );
            return;
        }
        written.send_replace(count);
    }
}
