//! Prints the reports of a replay.

use std::io::{self, BufWriter, Stdout, Write};

use weir_report::{Report, write_overview, write_tables};

use super::{Form, ShowError, report, style};
use crate::replay::{Windows, write_json};

/// How to see more than one screen has.
const MORE: &str = "all of it: weir replay --full   live: weir top --replay FILE";

/// Standard output for reports.
pub struct Printed {
    form: Form,
    windows: Windows,
    out: BufWriter<Stdout>,
    /// The only report, which the pager may show when nothing else is written to the terminal.
    only: Option<Report>,
}

impl Printed {
    /// For reports of such windows.
    pub fn new(form: Form, windows: Windows) -> Self {
        Self { form, windows, out: BufWriter::new(io::stdout()), only: None }
    }

    /// Takes a report.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn add(&mut self, report: &Report) -> io::Result<()> {
        if self.form.json {
            return write_json(report, &mut self.out);
        }
        if self.windows == Windows::All {
            self.only = Some(report.clone());
            return Ok(());
        }
        match self.form.full {
            true => write_tables(report, style(), &mut self.out)?,
            false => write_overview(report, style(), "", &mut self.out)?,
        }
        // Nothing else may come between its lines: not the progress of the replay.
        writeln!(self.out)?;
        self.out.flush()
    }

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self) -> Result<(), ShowError> {
        self.out.flush()?;
        self.only.map_or(Ok(()), |report| report::report(&report, self.form, MORE))
    }
}
