//! Prints the reports of a replay.

use std::io::{self, BufWriter, StdoutLock, Write};

use weir_schema::{Report, write_overview, write_tables};
use weir_system::screen::{self, Screen};

use super::{Form, ShowError, report, style, tables};
use crate::replay::{Windows, write_json};

/// How to see more than one screen.
const MORE: &str = "all of it: weir replay --full   live: weir top --replay FILE";

/// Standard output for reports.
pub struct Printed {
    form: Form,
    windows: Windows,
    out: BufWriter<Screen<StdoutLock<'static>>>,
    /// The only report. The pager may show it when nothing else is written to the terminal.
    only: Option<Report>,
}

impl Printed {
    /// An output for the reports of these windows.
    pub fn new(form: Form, windows: Windows) -> Self {
        let out = if form.json { Screen::stdout(screen::Form::Json) } else { tables() };
        Self { form, windows, out: BufWriter::new(out), only: None }
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
        // Write the report at once, so that the progress of the replay does not come between its lines.
        writeln!(self.out)?;
        self.out.flush()
    }

    /// Writes the rest.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn finish(mut self) -> Result<(), ShowError> {
        self.out.flush()?;
        self.only.map_or(Ok(()), |report| report::report(&report, self.form, MORE))
    }
}
