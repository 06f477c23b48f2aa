//! The newest mails, in memory and, if there is a data folder, each in a file of its own.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use tokio::{sync::Mutex, task::spawn_blocking};
use url::Url;

use super::Mail;

/// How many mails are kept. A new one replaces the oldest.
const MAILS_MAX: usize = 500;

const FOLDER_NAME: &str = "mail";

/// What a mail's file is called after its number.
const FILE_EXTENSION: &str = "json";

/// All mails that are kept.
pub struct Mailbox {
    folder: Option<PathBuf>,
    /// Where links on the page may lead.
    linked: Vec<Url>,
    mails: Mutex<Mails>,
}

#[derive(Default)]
struct Mails {
    /// Oldest first, each with the number in its file's name.
    kept: VecDeque<(u64, Arc<Mail>)>,
    last_number: u64,
}

impl Mailbox {
    /// Makes a mailbox that is lost with the process.
    pub fn in_memory(linked: Vec<Url>) -> Self {
        Self {
            folder: None,
            linked,
            mails: Mutex::default(),
        }
    }

    /// Opens the mailbox stored in `folder`.
    pub fn in_folder(folder: &Path, linked: Vec<Url>) -> anyhow::Result<Self> {
        let folder = folder.join(FOLDER_NAME);
        let cannot = || format!("cannot read the mails in {}", folder.display());
        fs::create_dir_all(&folder).with_context(cannot)?;
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&folder).with_context(cannot)? {
            numbers.extend(number(&entry.with_context(cannot)?.path()));
        }
        numbers.sort_unstable();
        let mut mails = Mails::default();
        for number in numbers {
            let content = fs::read(path(&folder, number)).with_context(cannot)?;
            let mail = serde_json::from_slice(&content).with_context(cannot)?;
            if let Some(oldest) = mails.add(number, Arc::new(mail)) {
                fs::remove_file(path(&folder, oldest)).with_context(cannot)?;
            }
        }
        Ok(Self {
            folder: Some(folder),
            linked,
            mails: Mutex::new(mails),
        })
    }

    /// Keeps a mail. Returns once it is durable.
    pub async fn keep(&self, mail: Mail) -> io::Result<()> {
        let mut mails = self.mails.lock().await;
        let mail = Arc::new(mail);
        // A number whose file could not be written is not used again.
        mails.last_number += 1;
        let number = mails.last_number;
        if let Some(folder) = self.folder.clone() {
            let mail = mail.clone();
            spawn_blocking(move || write(&folder, number, &mail)).await??;
        }
        let oldest = mails.add(number, mail);
        if let Some(folder) = self.folder.clone()
            && let Some(oldest) = oldest
        {
            spawn_blocking(move || fs::remove_file(path(&folder, oldest))).await??;
        }
        Ok(())
    }

    /// All mails with their numbers, newest first.
    pub async fn newest_first(&self) -> Vec<(u64, Arc<Mail>)> {
        let mails = self.mails.lock().await;
        mails.kept.iter().rev().cloned().collect()
    }

    /// Whether the link leads to one of the addresses that links may lead to.
    pub fn may_lead_to(&self, link: &str) -> bool {
        let Ok(link) = Url::parse(link) else {
            return false;
        };
        let is_plain = link.username().is_empty() && link.password().is_none();
        let mut linked = self.linked.iter();
        is_plain && linked.any(|address| address.origin() == link.origin())
    }
}

impl Mails {
    /// Adds the newest mail. Returns the number of the mail that it replaces.
    fn add(&mut self, number: u64, mail: Arc<Mail>) -> Option<u64> {
        self.last_number = number;
        self.kept.push_back((number, mail));
        if self.kept.len() <= MAILS_MAX {
            return None;
        }
        self.kept.pop_front().map(|(oldest, _)| oldest)
    }
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.{FILE_EXTENSION}"))
}

/// The number of the mail in this file, if it is one that was written to its end.
fn number(path: &Path) -> Option<u64> {
    let is_mail = path.extension()? == FILE_EXTENSION;
    let number = path.file_stem()?.to_str()?.parse().ok()?;
    is_mail.then_some(number)
}

fn write(folder: &Path, number: u64, mail: &Mail) -> io::Result<()> {
    // A crash leaves this name behind, which the next mail takes.
    let unfinished = folder.join("unfinished");
    let mut file = File::create(&unfinished)?;
    file.write_all(&serde_json::to_vec(mail)?)?;
    file.sync_all()?;
    fs::rename(unfinished, path(folder, number))?;
    File::open(folder)?.sync_all()
}
