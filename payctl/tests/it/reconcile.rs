//! What a report must be to be compared. That it is, is tested with the stack.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::{check_fails, check_refused, payctl, payctl_given};

const HEADER: &str = "\u{feff}Id,External ID,Date,Status,Amount,Currency\n";

fn words<'w>(more: &[&'w str]) -> Vec<&'w str> {
    let address = ["--charges-grpc-url", "http://127.0.0.1:1"];
    let what = ["--rail", "momo", "--layout", "momo-collection"];
    let period = ["--from", "2026-11-24", "--to", "2026-11-25"];
    [&address, &["reconcile"][..], &what, &period, more].concat()
}

/// A report that nobody will compare: nobody listens there.
struct Report {
    _folder: TempDir,
    file: PathBuf,
}

impl Report {
    fn of(text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("report.csv");
        std::fs::write(&file, text).unwrap();
        Self {
            _folder: folder,
            file,
        }
    }

    fn words<'w>(&'w self, more: &[&'w str]) -> Vec<&'w str> {
        words(&[more, &[self.file.to_str().unwrap()]].concat())
    }

    fn check(&self, more: &[&str], code: i32, says: &str) {
        check_fails(&self.words(more), code, says);
    }
}

#[test]
fn a_report_without_a_column_that_is_looked_for_is_refused() {
    let report = Report::of("Id,Date,Status,Amount,Currency\n1,,SUCCESSFUL,1.00,GHS\n");
    report.check(&[], 1, "no column \"External id\"");
    report.check(&["--reference", "id", "--rail-id", "="], 1, "Unavailable");
}

#[test]
fn a_line_that_is_not_understood_is_named() {
    let good = "1,a,2026-11-24 10:00:00,SUCCESSFUL,\"1,234.50\",GHS\n";
    for (line, says) in [
        ("1,a,,ODD,1.00,GHS", "its status \"ODD\" is not known"),
        ("1,a,,SUCCESSFUL,one,GHS", "its amount \"one\" is no number"),
        ("1,a,,SUCCESSFUL,1.001,GHS", "its amount \"1.001\""),
        ("1,a,,SUCCESSFUL,0,GHS", "its amount is nothing"),
        ("1,a,,SUCCESSFUL,1.00,cedis", "its currency \"cedis\""),
        ("1,a,24/11/26,SUCCESSFUL,1.00,GHS", "its time \"24/11/26\""),
        ("1,a,,SUCCESSFUL", "line 3"),
    ] {
        let report = Report::of(&format!("{HEADER}{good}{line}\n"));
        let output = payctl(&report.words(&[]));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("line 3 of the report"), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn a_report_says_in_its_own_words_what_is_meant() {
    let report = Report::of(&format!("{HEADER}1,a,24/11/2026 9:05,done,-1.00,ghs\n"));
    report.check(&[], 1, "its status \"done\" is not known");
    let words = ["--word", "Done=paid"];
    report.check(&words, 1, "its time");
    let format = "[day]/[month]/[year] [hour padding:none]:[minute]";
    let words = ["--word", "Done=paid", "--time-format", format];
    report.check(&words, 1, "Unavailable");
    report.check(&["--word", "done=perhaps"], 2, "\"perhaps\" means none of");
    report.check(&["--to", "tomorrow"], 2, "--to");
}

#[test]
fn a_report_that_a_pipe_cut_off_is_not_compared() {
    let line = "1,a,,SUCCESSFUL,1.00,GHS\n";
    let report = format!("{HEADER}{line}{line}");
    let sha256 = hex::encode(Sha256::digest(&report));
    let words = words(&["--sha256", &sha256, "-"]);
    // It was read and understood, and nobody is there to compare it.
    let whole = payctl_given(&words, report.as_bytes());
    check_refused(&whole, 1, "Unavailable");
    let cut = payctl_given(&words, format!("{HEADER}{line}").as_bytes());
    check_refused(&cut, 1, "it may be cut off");
}

#[test]
fn a_report_from_a_pipe_says_what_makes_it_whole() {
    check_fails(&words(&["-"]), 2, "--sha256");
}
